"""The training loop: on one process or many, resumable, every number of it written down."""

from __future__ import annotations

import copy
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from recap.errors import InputError
from recap.policies.autoencoder import FrameEncoder
from recap.policies.checkpoint import save_pretrained
from recap.policies.network import load_pretrained_network
from recap.policies.policy import WamPolicy
from recap.policies.wam import Batch, WorldActionModel
from recap.run_directory import hold_run_directory
from recap.training.autoencoder import (
    frozen_latents,
    load_autoencoder,
    reconstruction,
    train_autoencoder,
)
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.training.config import TrainConfig
from recap.training.data import TrainingData, load_data
from recap.training.records import Records, git_state
from recap.training.schedule import cosine
from recap.training.state import load_state, save_state

LOG_EVERY = 25
N_JUDGED = 1024  # held-out moments
BEST, LAST = "best", "last"


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    best: Path
    last: Path
    iterations: int
    best_iteration: int
    best_loss: float
    seconds: float


Progress = Callable[[str, int, int], None]  # what, done, of all
Rollout = Callable[[int, WamPolicy], dict[str, float]]


def train(
    config: TrainConfig,
    out: Path,
    *,
    progress: Progress | None = None,
    rollout: Rollout | None = None,
    rollout_every: int = 0,
    data: TrainingData | None = None,
    max_seconds: float = math.inf,
    device: str | None = None,
) -> Outcome:
    """Train what the config says into `out`; the same call resumes a run that was stopped.

    Args:
        rollout: called with the policy so far every `rollout_every` iterations; what it returns is recorded.
        data: given instead of loaded.
        max_seconds: after so long the run stops as if interrupted, but without complaint.
        device: cpu, or what accelerate finds.
    """
    accelerator = make_accelerator(config, device)
    report = progress or (lambda what, done, total: None)
    with _held(out, config, accelerator):
        data = data or load_data(config, lambda done, total: report("moments", done, total))
        return _Run(config, out, data, accelerator, report).train(rollout, rollout_every, max_seconds)


def make_accelerator(config: TrainConfig, device: str | None = None) -> Accelerator:
    """Processes and precision: one process, or as many as torchrun started."""
    cuda = torch.cuda.is_available() and device != "cpu"
    plugin: dict[str, Any] = {}
    if config.fsdp and cuda and torch.cuda.device_count() > 1:
        from accelerate import FullyShardedDataParallelPlugin

        plugin["fsdp_plugin"] = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=["CosmosTransformerBlock"],
        )
    return Accelerator(
        cpu=not cuda,
        mixed_precision="bf16" if config.bf16 and cuda else "no",
        gradient_accumulation_steps=config.accumulate,
        **plugin,
    )


@contextmanager
def _held(out: Path, config: TrainConfig, accelerator: Accelerator) -> Iterator[None]:
    """The main process holds the run directory."""
    if accelerator.is_main_process:
        with hold_run_directory(out, config.to_json()):
            yield
    else:
        yield


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits until the step is whole: half a step could not be resumed bit by bit."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


class _Loss(nn.Module):
    """The model as distributed training wants it: losses from forward."""

    def __init__(self, model: WorldActionModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, noise: dict[str, Tensor], level: Tensor) -> dict[str, Tensor]:
        return {name: loss.mean() for name, loss in self.model.losses(batch, noise, level).items()}


class _Run:
    """One run's moving parts."""

    def __init__(
        self, config: TrainConfig, out: Path, data: TrainingData, accelerator: Accelerator, report: Progress
    ) -> None:
        self.config, self.out, self.data, self.accelerator, self.report = (
            config,
            out,
            data,
            accelerator,
            report,
        )
        self.device: torch.device = accelerator.device
        world = accelerator.num_processes * config.accumulate
        if config.batch_size % world:
            raise InputError(
                f"batch_size {config.batch_size} is not divisible by {accelerator.num_processes} processes × "
                f"{config.accumulate} accumulated steps: give a multiple of {world}"
            )
        self.micro = config.batch_size // world
        self.encoder = self._encoder()
        latents = torch.zeros(0)
        if self.encoder is not None:
            latents = frozen_latents(self.encoder, data.pictures, self.device)
        torch.manual_seed(config.seed)
        model = WorldActionModel(config.policy)
        if config.weights is not None:
            load_pretrained_network(model.network, config.weights)
        model = model.to(self.device)
        self.smooth = copy.deepcopy(model).requires_grad_(False).eval()
        if config.checkpointing:
            model.network.enable_gradient_checkpointing()  # type: ignore[operator]
        if config.compile and self.device.type == "cuda":
            model.network.compile(dynamic=False)
        self.raw = model
        optimizer = torch.optim.AdamW(
            _groups(model, config.weight_decay), lr=config.learning_rate, betas=(0.9, 0.99)
        )
        self.model, self.optimizer = accelerator.prepare(_Loss(model), optimizer)
        self.source = BatchSource(data.train, latents, data.statistics, config.policy, self.device)
        self.judge = BatchSource(data.held_out, latents, data.statistics, config.policy, self.device)
        self.iteration, self.best_loss, self.best_iteration = 0, math.inf, 0
        self.records = Records(out, enabled=accelerator.is_main_process)

    def _encoder(self) -> FrameEncoder | None:
        """The autoencoder: given, found in the run, or trained first."""
        config = self.config
        if not config.policy.sees:
            return None
        kept = self.out / "autoencoder"
        if config.autoencoder is not None:
            return load_autoencoder(config.autoencoder, self.device)
        if not (kept / "config.json").is_file() and self.accelerator.is_main_process:
            encoder = train_autoencoder(
                self.data.pictures,
                n_iterations=config.autoencoder_iterations,
                batch_size=config.autoencoder_batch,
                seed=0,  # one eye for every seed of the policy
                device=self.device,
                report=lambda done, loss: self.report("autoencoder", done, config.autoencoder_iterations),
            )
            encoder.network.save_pretrained(kept)
        self.accelerator.wait_for_everyone()
        return load_autoencoder(str(kept), self.device)

    def policy(self) -> WamPolicy:
        """The smoothed weights as a policy."""
        return WamPolicy(self.smooth, self.data.statistics, self.data.stamp, self.encoder)

    def train(self, rollout: Rollout | None, rollout_every: int, max_seconds: float) -> Outcome:
        """All iterations that are left."""
        config, main = self.config, self.accelerator.is_main_process
        state = load_state(self.out, self.raw, self.smooth, self.optimizer)
        if state is not None:
            self.iteration = int(state["iteration"])
            self.best_loss, self.best_iteration = float(state["best_loss"]), int(state["best_iteration"])
            self.records.cut(self.iteration)
        elif main:
            self.records.write("run.json", {"git": git_state(), **self._facts()})
        began = time.monotonic()
        first = self.iteration
        sums: dict[str, Tensor] = {}
        n_summed = 0
        try:
            while self.iteration < config.n_iterations:
                with _undisturbed():
                    losses = self._step()
                    sums = {name: sums.get(name, 0.0) + loss for name, loss in losses.items()}
                    self.iteration += 1
                    n_summed += 1
                if self.iteration % LOG_EVERY == 0 or self.iteration == config.n_iterations:
                    means = {name: value / n_summed for name, value in sums.items()}
                    self._log(means, time.monotonic() - began, self.iteration - first)
                    sums, n_summed = {}, 0
                due = self.iteration % config.validate_every == 0 or self.iteration == config.n_iterations
                if due:
                    self._validate()
                if main and rollout is not None and rollout_every and self.iteration % rollout_every == 0:
                    self.records.log(self.iteration, {"rollout": rollout(self.iteration, self.policy())})
                if self.iteration % config.save_every == 0:
                    self._save()
                self.report("iterations", self.iteration, config.n_iterations)
                late = (
                    due
                    and config.patience > 0
                    and self.iteration - self.best_iteration >= config.patience * config.validate_every
                )
                overdue = time.monotonic() - began > max_seconds
                asked = (due and config.patience > 0) or math.isfinite(max_seconds)
                if asked and self._agreed(late or overdue):
                    break
        except KeyboardInterrupt:
            self._save()
            raise KeyboardInterrupt(
                f"stopped at iteration {self.iteration} of {config.n_iterations}: "
                "kept; the same command resumes"
            ) from None
        self._save()
        if main:
            seconds = time.monotonic() - began
            self._checkpoint(LAST, self.iteration)
            self.records.picture(self.policy(), self.data.held_out, self.judge)
        self.accelerator.wait_for_everyone()
        self.records.close()
        return Outcome(
            self.out / BEST,
            self.out / LAST,
            self.iteration,
            self.best_iteration,
            self.best_loss,
            time.monotonic() - began if not main else seconds,
        )

    def _agreed(self, stop: bool) -> bool:
        """Whether the main process, which alone validates, wants to stop: all must stop together."""
        if self.accelerator.num_processes == 1:
            return stop
        vote = torch.tensor([float(stop and self.accelerator.is_main_process)], device=self.device)
        return bool(self.accelerator.reduce(vote, "sum").item() > 0)

    def _step(self) -> dict[str, Tensor]:
        """One iteration: every draw depends on seed and iteration alone."""
        config, accelerator = self.config, self.accelerator
        draw = torch.Generator(self.device).manual_seed(config.seed * 1_000_003 + self.iteration)
        whole = self.source.draw(config.batch_size, config.augment, draw)
        noise = self.raw.draw_noise(config.batch_size, draw, self.device)
        level = torch.rand(config.batch_size, generator=draw, device=self.device)
        rate = learning_rate(config, self.iteration)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.raw.train()
        total: dict[str, Tensor] = {}
        for i in range(config.accumulate):
            begin = (i * accelerator.num_processes + accelerator.process_index) * self.micro
            part = slice(begin, begin + self.micro)
            with accelerator.accumulate(self.model):
                losses = self.model(_part(whole, part), {k: v[part] for k, v in noise.items()}, level[part])
                weighed = sum(
                    loss * (config.action_loss if name == "action" else config.state_loss)
                    for name, loss in losses.items()
                )
                accelerator.backward(weighed)
                if accelerator.sync_gradients and config.max_norm > 0:
                    accelerator.clip_grad_norm_(self.model.parameters(), config.max_norm)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
            for name, loss in losses.items():
                total[name] = total.get(name, 0.0) + loss.detach() / config.accumulate
        self._smooth()
        return total

    @torch.no_grad()
    def _smooth(self) -> None:
        """The running mean of the weights, quick to leave where it began."""
        decay = min(self.config.ema, (1 + self.iteration) / (10 + self.iteration))
        ours = [p.data for p in self.smooth.parameters()]
        theirs = [p.data for p in self.raw.parameters()]
        torch._foreach_lerp_(ours, theirs, 1 - decay)

    def _log(self, means: dict[str, Tensor], seconds: float, n_done: int) -> None:
        if self.accelerator.num_processes > 1:
            means = {name: self.accelerator.reduce(value, "mean") for name, value in means.items()}
        row = {f"loss/{name}": float(value) for name, value in means.items()}
        row["learning_rate"] = learning_rate(self.config, self.iteration - 1)
        row["samples_per_s"] = round(n_done * self.config.batch_size / max(seconds, 1e-9), 1)
        self.records.log(self.iteration, row)

    def _validate(self) -> None:
        """The smoothed weights on held-out demonstrations, retrieved for as at test time."""
        if not self.accelerator.is_main_process:
            return
        losses, rms = judge(self.smooth, self.judge, self.data, self.device)
        row = {f"held_out/{name}": value for name, value in losses.items()}
        self.records.log(self.iteration, {**row, "held_out/action_rms": rms})
        if losses["action"] < self.best_loss:
            self.best_loss, self.best_iteration = losses["action"], self.iteration
            self._checkpoint(BEST, self.iteration)

    def _checkpoint(self, name: str, iteration: int) -> None:
        facts = {**self._facts(), "iteration": iteration, "held_out_action_loss": round(self.best_loss, 5)}
        save_pretrained(self.policy(), self.out / name, facts)

    def _facts(self) -> dict[str, Any]:
        n_train, n_held_out, n_pool = self.data.n_episodes
        facts: dict[str, Any] = {
            "preset": self.config.preset,
            "seed": self.config.seed,
            "demonstrations": f"{n_train} of the target, {n_held_out} held out, {n_pool} of the pool",
            "moments": len(self.data.train),
            "batch_size": self.config.batch_size,
        }
        if self.encoder is not None:
            some = self.data.pictures[:: max(1, len(self.data.pictures) // 256)]
            facts["autoencoder_psnr_db"] = round(reconstruction(self.encoder, some), 2)
        return facts

    def _save(self) -> None:
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            facts = {
                "iteration": self.iteration,
                "best_loss": self.best_loss,
                "best_iteration": self.best_iteration,
            }
            save_state(self.out, self.raw, self.smooth, self.optimizer, facts)


@torch.no_grad()
def judge(
    model: WorldActionModel, source: BatchSource, data: TrainingData, device: torch.device
) -> tuple[dict[str, float], float]:
    """Losses on held-out moments with always the same noise, and the sampled chunk's error in world units."""
    n = min(N_JUDGED, len(source))
    rows = torch.linspace(0, len(source) - 1, n).long().to(device)
    generator = torch.Generator(device).manual_seed(0)
    sums: dict[str, float] = {}
    square, count = 0.0, 0.0
    std = torch.from_numpy(data.statistics.std["action"]).to(device)
    mixed = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    for part in torch.split(rows, 256):
        batch = source.take(part, NO_AUGMENT, generator)
        noise = model.draw_noise(len(part), generator, device)
        level = torch.rand(len(part), generator=generator, device=device)
        with mixed:
            for name, loss in model.losses(batch, noise, level).items():
                sums[name] = sums.get(name, 0.0) + float(loss.sum()) / n
            found = model.sample(batch, noise, model.config.sampling)["action"]
        assert batch.weight is not None
        error = ((found.float() - batch.values["action"]) * std) ** 2 * batch.weight
        square, count = square + float(error.sum()), count + float(batch.weight.sum())
    return sums, math.sqrt(square / max(count, 1.0))


def learning_rate(config: TrainConfig, iteration: int) -> float:
    """At an iteration."""
    if not config.decay:
        return config.learning_rate * min(1.0, (iteration + 1) / max(1, config.warm_up))
    return cosine(config.learning_rate, iteration, config.n_iterations, config.warm_up)


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices are decayed, scales are not."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def _part(batch: Batch, part: slice) -> Batch:
    weight = None if batch.weight is None else batch.weight[part]
    return Batch({k: v[part] for k, v in batch.values.items()}, batch.present[part], batch.text[part], weight)


def describe_plan(config: TrainConfig, n_processes: int = 1) -> dict[str, Any]:
    """What a run would be, without running it: sizes, parameters and an estimate of memory."""
    with torch.device("meta"):
        model = WorldActionModel(config.policy)
    n = sum(p.numel() for p in model.parameters())
    network = config.policy.network
    width = network.num_attention_heads * network.attention_head_dim
    tokens = model.layout.n_tokens
    micro = config.batch_size // (config.accumulate * n_processes)
    kept = 2 if config.checkpointing else 34  # activations of width `width` kept a token and layer, roughly
    activations = micro * tokens * width * network.num_layers * kept * (2 if config.bf16 else 4)
    weights = n * 4 * 5  # weights, gradients, two moments and the smoothed copy
    return {
        "preset": config.preset,
        "slots": [f"{s.name}{' *' if s.denoised else ''}" for s in model.layout.slots],
        "tokens": tokens,
        "parameters": n,
        "iterations": config.n_iterations,
        "samples": config.n_iterations * config.batch_size,
        "batch": f"{micro} × {config.accumulate} × {n_processes} = {config.batch_size}",
        "flops_per_sample": 6 * n * tokens,
        "memory_gib": round((weights + activations) / 2**30, 2),
    }


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl."""
    file = out / "metrics.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]

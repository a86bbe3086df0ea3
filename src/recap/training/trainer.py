"""The training loop: for one process or many, resumable, with all metrics recorded."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from recap.errors import InputError
from recap.policies.checkpoint import from_pretrained, save_pretrained
from recap.policies.flow import draw_levels
from recap.policies.model import SlotModel
from recap.policies.policy import TrainedPolicy, change_deviations
from recap.training.autoencoder import find_autoencoder, reconstruction
from recap.training.batches import BatchSource, Prefetcher, PreparedBatch
from recap.training.config import TrainConfig
from recap.training.data import load_data
from recap.training.data_cache import TrainingData
from recap.training.init_from_checkpoint import check_initial_checkpoints, load_fitting, load_initial_policy
from recap.training.latent_files import encode_latents
from recap.training.networks import build_networks, learning_rate, make_optimizer, with_change_deviations
from recap.training.processes import (
    Stopped,
    delay_signals,
    leave_group_at_exit,
    make_accelerator,
    record_signals,
    stopped_by_signals,
)
from recap.training.records import Records, git_state, lock_run
from recap.training.sharding import empty_copy, gather, local
from recap.training.stages import Report, Stages
from recap.training.state import load_state, save_state
from recap.training.validation import replay_rms, validate

LOG_EVERY = 25
BEST, LAST = "best", "last"


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    best: Path
    last: Path
    iterations: int
    best_iteration: int
    best_loss: float
    seconds: float
    left_out: tuple[str, ...] = ()  # demonstrations left out as mis-aligned


Rollout = Callable[[int, TrainedPolicy], dict[str, float]]


def train(
    config: TrainConfig,
    out: Path,
    *,
    progress: Report | None = None,
    rollout: Rollout | None = None,
    rollout_every: int = 0,
    data: TrainingData | None = None,
    notify: Callable[[str], None] | None = None,
    max_seconds: float = math.inf,
    device: str | None = None,
    log: str = "tensorboard",
) -> Outcome:
    """Run the training of a config in `out`; the same call resumes a stopped run.

    Args:
        rollout: called with the current policy every `rollout_every` iterations; its results are logged.
        data: used instead of loading data.
        notify: called with lines about initial weights and preparation.
        max_seconds: stop after this time, without an error; the run can be resumed.
        device: cpu; otherwise accelerate chooses.
        log: tracker of metrics, in addition to metrics.jsonl: tensorboard or wandb.
    """
    accelerator = make_accelerator(config, device, log, out)
    stages = Stages(progress)
    notify = notify if notify is not None and accelerator.is_main_process else lambda line: None
    with accelerator.local_main_process_first():  # the others use what it downloads
        check_initial_checkpoints(config)
    with stopped_by_signals(), lock_run(out, config, accelerator), leave_group_at_exit(accelerator):
        if data is None:
            with accelerator.local_main_process_first():  # the others memory-map what it writes
                data = load_data(config, stages, notify=notify)
        return _Run(config, out, data, accelerator, stages, notify).train(rollout, rollout_every, max_seconds)


class _Run:
    """The state of a run."""

    def __init__(
        self,
        config: TrainConfig,
        out: Path,
        data: TrainingData,
        accelerator: Accelerator,
        stages: Stages,
        notify: Callable[[str], None],
    ) -> None:
        self.config, self.out, self.data = config, out, data
        self.accelerator, self.stages, self.notify = accelerator, stages, notify
        self.device: torch.device = accelerator.device
        world = accelerator.num_processes * config.accumulate
        if config.batch_size % world:
            raise InputError(
                f"batch_size {config.batch_size} is not divisible by {accelerator.num_processes} processes × "
                f"{config.accumulate} accumulated steps: give a multiple of {world}"
            )
        self.micro = config.batch_size // world
        initial = None if config.init is None else load_initial_policy(config.init, config.policy)
        if initial is not None:
            self.data = data = replace(data, statistics=initial.statistics)
        self.distributed = accelerator.num_processes > 1
        self.sharded = self.distributed and config.fsdp
        loss, self.ema = build_networks(
            config, initial, self.device, accelerator.num_processes if self.sharded else 1
        )
        source = None if config.init_from is None else from_pretrained(config.init_from)
        if source is not None:
            notify(load_fitting([loss.model, self.ema], source, str(config.init_from)))
        if initial is not None:
            self.encoder = initial.encoder
        else:
            first = None if source is None else source.encoder
            self.encoder = find_autoencoder(config, data, out, first, accelerator, stages)
        if self.encoder is not None:
            self.encoder.to(self.device).refuse_other(config.policy.image)
        latents = encode_latents(self.data, config, self.encoder, accelerator, stages)
        if config.scale_future and initial is None:
            statistics = with_change_deviations(data.statistics, data.train, latents)
            self.data = data = replace(data, statistics=statistics)
        self.raw_model = loss.model
        for model in (self.raw_model, self.ema):
            model.deviations = change_deviations(data.statistics, model)
        optimizer = make_optimizer(self.raw_model, config)
        # A sharded model reduces its gradients itself: accelerate only sets the precision.
        self.model = accelerator.prepare_model(loss, evaluation_mode=self.sharded)
        self.optimizer = accelerator.prepare_optimizer(optimizer)
        self.source = BatchSource(data.train, latents, data.statistics, config.policy, self.device)
        self.held_out_source = BatchSource(
            data.held_out, self.source.latents, data.statistics, config.policy, self.device
        )
        self.prefetcher = Prefetcher(self._draw, config.n_iterations, self.device)
        self.iteration, self.best_loss, self.best_iteration = 0, math.inf, 0
        self.loss = math.inf  # on held-out demonstrations, at the last validation
        self.errors: dict[str, float] = {}  # of held-out chunks, at the last validation
        self.note = ""  # losses, for the progress bar
        self.records = Records(out, accelerator, config.to_json())

    def _policy(self, model: SlotModel) -> TrainedPolicy:
        """The smoothed weights as a policy."""
        return TrainedPolicy(model, self.data.statistics, self.data.stamp, self.encoder)

    def _gather_weights(self) -> SlotModel | None:
        """The smoothed weights for the main process, which alone uses them; None for the others.

        Sharded weights are gathered by all processes, and the main one keeps all of them until it is done: a
        rollout calls the model any number of times, and the other processes could not follow.
        """
        main = self.accelerator.is_main_process
        if not self.sharded:
            return self.ema if main else None
        tensors = gather(self.ema.state_dict(), self.device, keep=main)
        if not main:
            return None
        model = empty_copy(self.ema)
        model.load_state_dict(tensors, assign=True)
        return model.requires_grad_(False)

    def train(self, rollout: Rollout | None, rollout_every: int, max_seconds: float) -> Outcome:
        """Run the remaining iterations."""
        config, main = self.config, self.accelerator.is_main_process
        state = load_state(self.out, self.raw_model, self.ema, self.optimizer)
        if state is not None:
            self.iteration = int(state["iteration"])
            self.best_loss, self.best_iteration = float(state["best_loss"]), int(state["best_iteration"])
            self.loss = float(state["loss"])
            self.records.cut(self.iteration)
        elif main:
            self.records.write("run.json", {"git": git_state(), **self._facts()})
        began = time.monotonic()
        # Processes that stop at different steps would wait for each other. So each of several processes
        # records the signal, and all stop after the same step.
        with self.prefetcher, record_signals(self.distributed) as caught:
            try:
                self._iterate(rollout, rollout_every, began, max_seconds, caught)
            except KeyboardInterrupt as stop:
                with record_signals():  # a second signal must not interrupt saving
                    self._save()
                raise Stopped(
                    f"stopped at iteration {self.iteration} of {config.n_iterations}: "
                    + ("kept; the same command resumes" if config.save_every else "nothing is kept"),
                    getattr(stop, "number", signal.SIGINT),
                ) from None
            self._save()
        seconds = time.monotonic() - began
        model = self._gather_weights()
        if model is not None:
            self._checkpoint(LAST, model)
            self.records.picture(self._policy(model), self.data.held_out, self.held_out_source)
        self.accelerator.wait_for_everyone()
        self.records.close()
        return Outcome(
            self.out / BEST,
            self.out / LAST,
            self.iteration,
            self.best_iteration,
            self.best_loss,
            seconds,
            self.data.left_out,
        )

    def _iterate(
        self, rollout: Rollout | None, rollout_every: int, began: float, max_seconds: float, caught: list[int]
    ) -> None:
        """Train, validate, roll out and save, until the end or a reason to stop."""
        config, first, logged = self.config, self.iteration, began
        sums: dict[str, Tensor] = {}
        n_summed = 0
        while self.iteration < config.n_iterations:
            with delay_signals(not self.distributed):
                losses = self._first_step() if self.iteration == first else self._step()
                sums = {name: sums.get(name, 0.0) + loss for name, loss in losses.items()}
                self.iteration += 1
                n_summed += 1
            if self.iteration % LOG_EVERY == 0 or self.iteration == config.n_iterations:
                means = {name: value / n_summed for name, value in sums.items()}
                logged = self._log(means, logged, n_summed)
                sums, n_summed = {}, 0
            validating = self.iteration % config.validate_every == 0 or self.iteration == config.n_iterations
            rolling_out = rollout_every > 0 and self.iteration % rollout_every == 0
            if validating or rolling_out:
                self._evaluate(validating, rollout if rolling_out else None)
            if config.save_every and self.iteration % config.save_every == 0:
                self._save()
            self.stages.report("iterations", self.iteration, config.n_iterations, self.note)
            stalled = (
                validating
                and config.patience > 0
                and self.iteration - self.best_iteration >= config.patience * config.validate_every
            )
            stop, interrupted = self._agreed(stalled or time.monotonic() - began > max_seconds, bool(caught))
            if interrupted:
                raise Stopped(number=caught[0] if caught else signal.SIGINT)
            if stop:
                break

    def _first_step(self) -> dict[str, Tensor]:
        """The first step of a run or after resuming it; then the preparation times are known."""
        with self.stages("first step"):  # includes compilation
            losses = self._step()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        self.notify(str(self.stages))
        self.records.write("preparation.json", {"seconds": self.stages.seconds, "reused": self.stages.reused})
        return losses

    def _evaluate(self, validating: bool, rollout: Rollout | None) -> None:
        """Evaluate the smoothed weights: all processes gather them, the main one evaluates."""
        model = self._gather_weights()
        if model is None:
            return
        if validating:
            self._validate(model)
        if rollout is not None:
            self.records.log(self.iteration, {"rollout": rollout(self.iteration, self._policy(model))})

    def _agreed(self, stop: bool, interrupted: bool) -> tuple[bool, bool]:
        """Whether all stop: the main process, which alone validates, wants to, or any was interrupted."""
        if not self.distributed:
            return stop, interrupted
        votes = [float(stop and self.accelerator.is_main_process), float(interrupted)]
        totals = self.accelerator.reduce(torch.tensor(votes, device=self.device), "sum").tolist()
        return totals[0] > 0, totals[1] > 0

    def _draw(self, iteration: int) -> PreparedBatch:
        """This process's part of a batch with its noise; it depends only on seed and iteration."""
        config, process = self.config, self.accelerator
        draw = torch.Generator(self.device).manual_seed(config.seed * 1_000_003 + iteration)
        part = None
        if self.distributed:
            rows = torch.arange(config.batch_size, device=self.device).view(config.accumulate, -1, self.micro)
            part = rows[:, process.process_index].reshape(-1)
        batch = self.source.draw(config.batch_size, config.augment, draw, part)
        noise = self.raw_model.draw_noise(config.batch_size, draw, self.device)
        level = draw_levels(config.batch_size, config.policy, draw, self.device)
        if part is None:
            return batch, noise, level
        return batch, {name: values[part] for name, values in noise.items()}, level[part]

    def _step(self) -> dict[str, Tensor]:
        """One iteration."""
        config, accelerator = self.config, self.accelerator
        batch, noise, level = self.prefetcher(self.iteration)
        rate = learning_rate(config, self.iteration)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.raw_model.train()
        sums: dict[str, Tensor] = {}
        for i in range(config.accumulate):
            part = slice(i * self.micro, (i + 1) * self.micro)
            with accelerator.accumulate(self.model):
                part_noise = {name: value[part] for name, value in noise.items()}
                losses = self.model(batch.each(itemgetter(part)), part_noise, level[part])
                total_loss = sum(
                    loss * (config.action_loss if name == "action" else config.state_loss)
                    for name, loss in losses.items()
                )
                accelerator.backward(total_loss)
                if accelerator.sync_gradients and config.max_norm > 0:
                    accelerator.clip_grad_norm_(self.model.parameters(), config.max_norm)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
            for name, loss in losses.items():
                sums[name] = sums.get(name, 0.0) + loss.detach() / config.accumulate
        self._update_ema()
        return sums

    @torch.no_grad()
    def _update_ema(self) -> None:
        """Update the smoothed weights; at first they follow quickly, to leave the initial weights."""
        decay = min(self.config.ema, (1 + self.iteration) / (10 + self.iteration))
        averaged = [local(p.data) for p in self.ema.parameters()]
        current = [local(p.data) for p in self.raw_model.parameters()]
        torch._foreach_lerp_(averaged, current, 1 - decay)

    def _log(self, means: dict[str, Tensor], since: float, n_done: int) -> float:
        """Write a row with the rate since the last one; return the time."""
        if self.distributed:
            means = {name: self.accelerator.reduce(value, "mean") for name, value in means.items()}
        row = {f"loss/{name}": float(value) for name, value in means.items()}
        now = time.monotonic()  # the device has finished
        self.note = "loss " + ", ".join(f"{name} {float(value):.3g}" for name, value in means.items())
        if math.isfinite(self.loss):
            self.note += f", held-out action {self.loss:.3g}"
        row["learning_rate"] = learning_rate(self.config, self.iteration - 1)
        row["samples_per_s"] = round(n_done * self.config.batch_size / max(now - since, 1e-9), 3)
        if self.device.type == "cuda":
            row["peak_gib"] = round(torch.cuda.max_memory_allocated(self.device) / 2**30, 2)
        self.records.log(self.iteration, row)
        return now

    def _validate(self, model: SlotModel) -> None:
        """Evaluate the smoothed weights on held-out demonstrations, with retrieval as at test time."""
        losses, rms = validate(model, self.held_out_source, self.data, self.device)
        row = {f"held_out/{name}": value for name, value in losses.items()}
        row["held_out/action_rms"] = self.errors["policy"] = rms
        if self.config.policy.retrieval:
            replayed = replay_rms(self.data.held_out, self.config.policy)
            row["held_out/replay_rms"] = self.errors["replay"] = replayed
        self.records.log(self.iteration, row)
        self.loss = losses["action"]
        if self.loss < self.best_loss:
            self.best_loss, self.best_iteration = self.loss, self.iteration
            self._checkpoint(BEST, model)

    def _checkpoint(self, name: str, model: SlotModel) -> None:
        facts = {**self._facts(), "iteration": self.iteration}
        if math.isfinite(self.loss):
            facts["held_out_action_loss"] = round(self.loss, 5)
        facts |= {f"held_out_{name}_error": round(error, 5) for name, error in self.errors.items()}
        save_pretrained(self._policy(model), self.out / name, facts, contents=self.data.contents)

    def _facts(self) -> dict[str, Any]:
        n_train, n_held_out, n_pool = self.data.n_episodes
        facts: dict[str, Any] = {
            "preset": self.config.preset,
            "seed": self.config.seed,
            "demonstrations": f"{n_train} of the target, {n_held_out} held out, {n_pool} of the pool",
            "moments": len(self.data.train),
            "batch_size": self.config.batch_size,
            "retrieval_dropout": self.config.augment.retrieval_dropout,
            "pair_by": self.config.pairs.by,
            "held_out_by": self.config.held_out_by,
            "tasks": len(set(self.data.train.tasks)),
        }
        if self.data.left_out:
            facts["left_out"] = ", ".join(self.data.left_out)
        if self.encoder is not None:
            facts["autoencoder_psnr_db"] = self._psnr_db
        return facts

    @cached_property
    def _psnr_db(self) -> float:
        """Signal-to-noise ratio of the autoencoder in dB; its weights no longer change."""
        assert self.encoder is not None
        some = self.data.pictures[:: max(1, len(self.data.pictures) // 256)]
        return round(reconstruction(self.encoder, some), 2)

    def _save(self) -> None:
        self.accelerator.wait_for_everyone()
        if not self.config.save_every:
            return
        facts = {
            "iteration": self.iteration,
            "loss": self.loss,
            "best_loss": self.best_loss,
            "best_iteration": self.best_iteration,
        }
        main = self.accelerator.is_main_process
        save_state(self.out, self.raw_model, self.ema, self.optimizer, facts, write=main)

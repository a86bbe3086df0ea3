"""Train an image policy that predicts future images, on thousands of demonstrations, in minutes on one GPU.

    recap collect pusht --pusher triangle --angles=-45,45 --per-angle 1500 --seed 200000 --image-size 0 \\
        --out data/triangle
    python research/scripts/train_foresight.py prepare data/triangle --out runs/foresight/data.npz
    python research/scripts/train_foresight.py train runs/foresight/data.npz --out runs/foresight \\
        --seconds 480

`prepare` finds the pairs on a CPU; `train` renders every image, fits or loads an autoencoder, trains,
and measures the predicted share of the change on held-out demonstrations; `roll-out` counts successes
in the paper's setting, in parallel with the trainings.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recap import config as configs
from recap.policies.autoencoder import FrameEncoder
from recap.policies.checkpoint import save_pretrained
from recap.policies.config import SamplingConfig
from recap.policies.flow import draw_levels
from recap.policies.policy import RetrievalStamp, TrainedPolicy, change_deviations
from recap.training.autoencoder import load_autoencoder, train_autoencoder
from recap.training.batches import BatchSource, Prefetcher, PreparedBatch
from recap.training.config import TrainConfig
from recap.training.data import demonstrations, split, training_retrieval, where
from recap.training.networks import build_networks, cosine, make_optimizer, with_change_deviations
from recap.training.presets import preset
from recap.training.samples import Samples
from recap.training.statistics import statistics_of
from recap.types import Episode
from recap_research.foresight import Foresight, Way
from recap_research.lockstep import BOARD, roll_out
from recap_research.lockstep_worlds import Worlds
from recap_research.recorded import Recorded, encoded, pictures, read, record, samples_of, scenes, write

BEGAN = time.monotonic()
LOG_EVERY = 100
LOOK_EVERY_S = 40.0


def base_config() -> TrainConfig:
    """The paper's setting: images only, published features, pool of the true angle, no sub-trajectories."""
    chosen = preset("pusht-nano-world-oracle")
    policy = replace(
        chosen.policy,
        retrieval_name="pusht-published",
        subtrajectories=False,
        inputs="I",
        image=replace(chosen.policy.image, size=128, camera_size=128),
        network=replace(chosen.policy.network, coordinates=True, beside=True),
        future_change=True,
        future_clean=True,
        future_steps=(2, 4, 8),
        noise_shift=10.0,
        n_action_steps=8,
    )
    augment = replace(
        chosen.augment, mirror=False, image_dropout=0.0, action_given=0.5, state_noise=0.0, latent_noise=0.05
    )
    return replace(
        chosen,
        preset="pusht-nano-world-oracle",
        policy=policy,
        augment=augment,
        scale_future=True,
        batch_size=128,
        learning_rate=6e-4,
        action_loss=4.0,
        decay=True,
        ema=0.998,
    )


def log(*words: object) -> None:
    """Print a line with the time since the start."""
    print(f"[{time.monotonic() - BEGAN:6.1f}]", *words, flush=True)


def prepare(options: argparse.Namespace) -> None:
    """Write demonstrations and their matches into one small file."""
    config = base_config()
    pool = where(demonstrations(config.pool), config.pool_where)
    train, held_out = split(demonstrations(config.target), config.held_out)
    more = demonstrations(str(options.dataset)) if options.dataset else []
    few = [e for i, e in enumerate(more) if i % 30 == 29]  # also held out
    train += [e for i, e in enumerate(more) if i % 30 != 29]
    if options.mirror:
        train += [mirrored(e) for i, e in enumerate(more) if i % 30 != 29]
    sides = {
        "everywhere": record(demonstrations(config.pool), [], config, True),
        "pool": record(pool, [], config, True),
        "held_out": record([*held_out, *few], pool, config, False),
        "train": record(train, pool, config, True),
    }
    write(options.out, sides)
    log({side: (len(one.length), len(one.proprio)) for side, one in sides.items()}, "demonstrations, frames")


def mirrored(episode: Episode) -> Episode:
    """The episode mirrored, with the opposite goal; the walls are then off by one px."""
    across, turned = np.array([-1, 1], np.float32), np.array([-1, 1, -1], np.float32)
    assert episode.goal is not None
    return replace(
        episode,
        id=f"{episode.id}-mirrored",
        proprio=episode.proprio * across + np.array([BOARD, 0], np.float32),
        actions=episode.actions * across + np.array([BOARD, 0], np.float32),
        objects={"block": episode.objects["block"] * turned + np.array([BOARD, 0, 0])},
        goal=np.asarray(episode.goal) * turned + np.array([BOARD, 0, 0]),
        attributes={**episode.attributes, "goal_angle": -float(episode.attributes["goal_angle"])},
    )


class Data:
    """All data on the device: latents of every frame, and samples of both sides."""

    def __init__(self, file: Path, config: TrainConfig, encoder: FrameEncoder, n: int = 0) -> None:
        device = encoder.mean.device
        sides = read(file)
        self.train, self.held_out, self.pool = sides["train"], sides["held_out"], sides["pool"]
        self.everywhere = sides["everywhere"]
        if n:
            self.train = first_of(self.train, n)
        pushers = {"train": "triangle", "held_out": "triangle", "pool": "disc", "everywhere": "disc"}
        size = config.policy.image.size
        parts = [encoded(getattr(self, s), size, p, encoder, device) for s, p in pushers.items()]
        self.latents = torch.cat(parts)
        self.begins = dict(zip(pushers, np.cumsum([0, *map(len, parts)]).tolist(), strict=False))

    def samples(self, config: TrainConfig, side: str) -> Any:
        """Samples for the policy of a config; co-training adds the disc's demonstrations at every goal."""
        sides = [side, "everywhere"] if side == "train" and config.co_training else [side]
        shown = self.begins["pool"]
        parts = [samples_of(getattr(self, s), self.pool, config.policy, self.begins[s], shown) for s in sides]
        return parts[0] if len(parts) == 1 else joined(parts)

    def first(self, n: int) -> Data:
        """The same data with only the first n training demonstrations."""
        found = copy.copy(self)
        found.train = first_of(self.train, n)
        return found


def joined(parts: Sequence[Samples]) -> Samples:
    """The concatenated samples."""

    def table(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], dict):
            return {key: np.concatenate([value[key] for value in values]) for key in values[0]}
        return np.concatenate(values)

    names = ("fixed", "matched", "actions", "base", "valid", "weight", "images", "task")
    return replace(parts[0], **{name: table(name) for name in names})


def first_of(one: Recorded, n: int) -> Recorded:
    """The first n demonstrations."""
    frames = int(one.length[:n].sum())
    parts = {key: getattr(one, key)[:frames] for key in ("proprio", "actions", "block", "match", "weight")}
    return Recorded(one.length[:n], goal=one.goal[:n], **parts)


def fit_autoencoder(
    file: Path,
    config: TrainConfig,
    device: torch.device,
    n_iterations: int,
    begun: FrameEncoder | None = None,
) -> FrameEncoder:
    """Train an autoencoder on a sample of all frames, new or from an existing one."""
    drawn, size = [], config.policy.image.size
    for side, pusher, n in (("train", "triangle", 12_000), ("pool", "disc", 4_000)):
        one = read(file)[side]
        rows = torch.linspace(0, len(one.proprio) - 1, n).long()
        scene = [part.to(device) for part in scenes(one, size)]
        drawn += [pictures(scene, r.to(device), pusher).cpu() for r in torch.split(rows, 500)]
    return train_autoencoder(
        torch.cat(drawn).numpy(),
        n_iterations=n_iterations,
        batch_size=config.autoencoder_batch,
        seed=0,
        device=device,
        paper=config.policy.image.white,
        begun=begun,
    )


def fit(
    config: TrainConfig, data: Data, encoder: FrameEncoder, seconds: float, out: Path, least: float = 0.0
) -> TrainedPolicy:
    """Train; the rate decays as a cosine of the iterations, or of the time if `seconds` ends first.

    Args:
        seconds: training time after the first steps, which include compilation.
        least: share of the change, given the action, that must be predicted after a third of the time.
    """
    device = encoder.mean.device
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(config.seed)
    samples = data.samples(config, "train")
    statistics = statistics_of(samples, config.policy)
    if config.scale_future:
        statistics = with_change_deviations(statistics, samples, data.latents)
    loss, smooth = build_networks(config, None, device, 1)
    raw = loss.model
    for model in (raw, smooth):
        model.deviations = {k: v.to(device) for k, v in change_deviations(statistics, model).items()}
    optimizer = make_optimizer(raw, config)
    source = BatchSource(samples, data.latents, statistics, config.policy, device)
    judge = BatchSource(data.samples(config, "held_out"), data.latents, statistics, config.policy, device)

    def draw(iteration: int) -> PreparedBatch:
        dice = torch.Generator(device).manual_seed(config.seed * 1_000_003 + iteration)
        batch = source.draw(config.batch_size, config.augment, dice)
        noise = raw.draw_noise(config.batch_size, dice, device)
        return batch, noise, draw_levels(config.batch_size, config.policy, dice, device)

    describer, found_by = training_retrieval(config, [])
    stamp = RetrievalStamp(
        found_by.name, describer.fingerprint, found_by.metric_fingerprint, dict(found_by.scales)
    )
    policy = TrainedPolicy(smooth, statistics, stamp, encoder)
    rows: list[dict[str, Any]] = []
    sums: dict[str, Tensor] = {}
    began, looked = math.inf, time.monotonic()  # nothing is measured before the first iteration
    iteration = 0
    with Prefetcher(draw, 10**9, device) as ahead:
        while True:
            batch, noise, level = ahead(iteration)
            if iteration == 20:
                if device.type == "cuda":
                    torch.cuda.synchronize()
                began = time.monotonic()
                log(out.name, "begins")
            late = 0.0 if began == math.inf else (time.monotonic() - began) / seconds
            gone = max(late, iteration / config.n_iterations)
            if gone >= 1:
                break
            rate = cosine(config.learning_rate, round(gone * 1000), 1000, 0) * min(1, (iteration + 1) / 200)
            for group in optimizer.param_groups:
                group["lr"] = rate
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                losses = loss(batch, noise, level)
            total = sum(v * (config.action_loss if k == "action" else 1.0) for k, v in losses.items())
            total.backward()  # type: ignore[union-attr]
            torch.nn.utils.clip_grad_norm_(raw.parameters(), config.max_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            iteration += 1
            with torch.no_grad():
                decay = min(config.ema, (1 + iteration) / (10 + iteration))
                ours, theirs = list(smooth.parameters()), list(raw.parameters())
                torch._foreach_lerp_(ours, theirs, 1 - decay)
            for name, value in losses.items():
                sums[name] = sums.get(name, 0.0) + value.detach()
            if iteration % LOG_EVERY == 0:
                row = {"iteration": iteration, "seconds": round(time.monotonic() - began, 1)}
                row |= {k: round(float(v) / LOG_EVERY, 4) for k, v in sums.items()}
                rows.append(row)
                sums = {}
                if time.monotonic() - looked > LOOK_EVERY_S:
                    row |= held_out_losses(smooth, judge, device)
                    if config.policy.future_image:
                        row |= foreseen_at_a_glance(policy, judge, data)
                    log(out.name, row)
                    looked = time.monotonic()
                    if gone > 1 / 3 and row.get("given", 1.0) < least:
                        break
    log(out.name, iteration, "iterations")
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (out / "config.json").write_text(json.dumps(config.to_json(), indent=1) + "\n", "utf-8")
    facts = {
        "preset": config.preset,
        "seed": config.seed,
        "iterations": iteration,
        "batch_size": config.batch_size,
        "demonstrations": f"{len(data.train.length)} of the target",
    }
    save_pretrained(policy, out / "policy", facts, half=True)
    return policy


@torch.no_grad()
def held_out_losses(model: Any, judge: BatchSource, device: torch.device) -> dict[str, float]:
    """Losses on 512 held-out frames, always with the same noise."""
    from recap.training.batches import NO_AUGMENT

    dice = torch.Generator(device).manual_seed(0)
    rows = torch.linspace(0, len(judge) - 1, min(512, len(judge)), device=device).long()
    batch = judge.take(rows, NO_AUGMENT, dice)
    noise = model.draw_noise(len(rows), dice, device)
    level = torch.rand(len(rows), generator=dice, device=device)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        return {
            f"held_out/{k}": round(float(v.mean()), 4) for k, v in model.losses(batch, noise, level).items()
        }


def foreseen_at_a_glance(policy: TrainedPolicy, source: BatchSource, data: Data) -> dict[str, float]:
    """The predicted share of the change after a chunk, on 120 frames: with predicted and given action."""
    rows = np.linspace(0, len(data.held_out.proprio) - 1, 120).astype(np.int64)
    ways = (Way("jointly"), Way("given", given=True))
    found = Foresight(policy, source, data.held_out, rows).run(ways)
    far = policy.config.chunk_size
    names = {way.name for way in ways}
    return {r["what"]: r["explained"] for r in found if r["what"] in names and r["steps_ahead"] == far}


def foresee(policy: TrainedPolicy, data: Data, config: TrainConfig, n_moments: int) -> list[dict[str, Any]]:
    """Rows of the predicted share, on frames spread evenly over held-out demonstrations."""
    held_out = data.held_out
    source = BatchSource(
        data.samples(config, "held_out"), data.latents, policy.statistics, config.policy, policy.device
    )
    rows = np.linspace(0, len(held_out.proprio) - 1, n_moments).astype(np.int64)
    return Foresight(policy, source, held_out, rows).run()


def train(options: argparse.Namespace) -> None:
    """Train, save and evaluate every variant in turn. A variant without enough time is left out."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 32
    n = options.iterations or 10**9
    base = replace(with_settings(base_config(), options.set), n_iterations=n)
    if options.autoencoder:
        encoder = load_autoencoder(str(options.autoencoder), device)
    else:
        encoder = fit_autoencoder(options.data, base, device, base.autoencoder_iterations)
        encoder.network.save_pretrained(options.out / "autoencoder")
    log("autoencoder")
    data = Data(options.data, base, encoder, options.demonstrations)
    log(len(data.latents), "frames encoded")
    for variant in options.variant or ["base"]:
        name, _, settings = variant.partition(":")
        config = with_settings(base, [s for s in settings.split(",") if s])
        if time.monotonic() - BEGAN > options.begin_before:
            log("no time for", name)
            continue
        policy = fit(config, data, encoder, options.seconds, options.out / name, options.least)
        if not config.policy.future_image:
            continue
        found = foresee(policy, data, config, options.moments)
        facts = {"n": options.moments, "demonstrations_held_out": len(data.held_out.length), "rows": found}
        (options.out / name / "foresight.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
        for row in found:
            if row["steps_ahead"] >= 8:
                log(name, row["steps_ahead"], row["what"], row["explained"], row["interval"])


ANGLES = tuple(range(-60, 61, 15))
SAMPLINGS = (SamplingConfig(n_steps=5), SamplingConfig(n_steps=2, temperature=0.5))


def roll_policies_out(options: argparse.Namespace) -> None:
    """Evaluate replay, then every policy as soon as it is saved, with the paper's sampling and with ours."""
    from recap.policies.checkpoint import from_pretrained

    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    pool = read(options.data)["everywhere"]
    episodes = [(seed, float(angle)) for angle in ANGLES for seed in range(*options.seeds)]
    options.results.mkdir(parents=True, exist_ok=True)
    worlds = Worlds(episodes, "triangle", max(1, (os.cpu_count() or 2) - 2))

    def note(name: str, policy: TrainedPolicy | None, sampling: SamplingConfig) -> None:
        best = roll_out(policy, pool, worlds, sampling, device)
        rows = [[seed, angle, round(float(b), 4)] for (seed, angle), b in zip(episodes, best, strict=True)]
        found = {"name": name, "sampling": configs.plain(sampling), "episodes": rows}
        (options.results / f"{name}.json").write_text(json.dumps(found) + "\n", "utf-8")
        unseen = np.array([abs(angle) != 45 for _, angle in episodes])
        shares = [float((best[chosen] > 0.85).mean()) for chosen in (unseen, ~unseen)]
        log(name, "past 0.85: unseen", round(shares[0], 3), "seen", round(shares[1], 3))

    note("replay", None, SAMPLINGS[0])
    waiting = list(options.names)
    while waiting and time.monotonic() - BEGAN < options.until:
        ready = [name for name in waiting if (options.out / name / "policy" / "config.json").exists()]
        for name in ready:
            policy = from_pretrained(str(options.out / name / "policy"), str(device))
            for sampling in SAMPLINGS:
                note(f"{name}-{sampling.n_steps}", policy, sampling)
            waiting.remove(name)
        time.sleep(1)
    worlds.close()
    log("left:", *waiting)


def with_settings(config: TrainConfig, settings: Sequence[str]) -> TrainConfig:
    """The config changed by KEY=VALUE, as by `recap train --set`."""
    return configs.with_changes(config, settings) if settings else config


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("prepare")
    one.add_argument("dataset", type=Path, nargs="?")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--mirror", action="store_true", help="the further ones in a mirror too")
    one.set_defaults(run=prepare)
    two = verbs.add_parser("train")
    two.add_argument("data", type=Path)
    two.add_argument("--out", type=Path, required=True)
    two.add_argument("--seconds", type=float, default=math.inf)
    two.add_argument("--iterations", type=int, default=0)
    two.add_argument("--begin-before", type=float, default=math.inf, help="seconds; later none is begun")
    two.add_argument("--autoencoder", type=Path)
    two.add_argument(
        "--least", type=float, default=0.0, help="foreseen after a third of the time, or it ends"
    )
    two.add_argument("--demonstrations", type=int, default=0, help="only the first so many")
    two.add_argument("--moments", type=int, default=720)
    two.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    two.add_argument("--variant", action="append", metavar="NAME:KEY=VALUE,…")
    two.set_defaults(run=train)
    three = verbs.add_parser("roll-out")
    three.add_argument("data", type=Path)
    three.add_argument("--out", type=Path, required=True, help="where policies are trained")
    three.add_argument("--results", type=Path, required=True)
    three.add_argument("--names", nargs="+", required=True)
    three.add_argument("--until", type=float, default=math.inf, help="seconds to wait for policies")
    three.add_argument("--seeds", type=int, nargs=2, default=(500, 510), metavar=("FIRST", "END"))
    three.add_argument("--device")
    three.set_defaults(run=roll_policies_out)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()

"""How good are the policy's predictions? Its predicted frame and block pose, compared with copying.

    python research/benchmarks/policy_future.py --json docs/results/policy_future.json

Held-out demonstrations of the training split, matches as at test time, 8 steps ahead.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from recap.cli.one_line import run_script
from recap.pictures import write_png
from recap.policies.checkpoint import from_pretrained
from recap.policies.policy import TrainedPolicy
from recap.training.autoencoder import psnr
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.training.data import build_data, demonstrations, split, where
from recap.training.presets import preset
from recap.training.samples import Samples, take_rows
from recap.types import F32, U8

N_MOMENTS = 192


def _pair(text: str) -> tuple[int, float]:
    steps, temperature = text.split(":")
    return int(steps), float(temperature)


def main() -> None:
    """Predict, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="pusht-nano")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--strip", type=Path, help="a PNG: what was, what was predicted, what came")
    parser.add_argument("--sampling", type=_pair, nargs="*", default=[(2, 0.5), (2, 1.0), (5, 1.0)])
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    policy = from_pretrained(arguments.policy)
    config = replace(preset("pusht-nano"), policy=policy.config)
    _, held_out = split(demonstrations(config.target), config.held_out)
    pool = where(demonstrations(config.pool), config.pool_where)
    data = build_data(held_out, pool, replace(config, held_out=0.5))
    found, strip = foresee(policy, data.held_out, data.pictures, arguments.sampling)
    if arguments.json:
        arguments.json.write_text(json.dumps({"n": N_MOMENTS, "rows": found}, indent=1) + "\n", "utf-8")
    if arguments.strip:
        write_png(arguments.strip, strip)


def foresee(
    policy: TrainedPolicy, samples: Samples, pictures: U8, samplings: Sequence[tuple[int, float]]
) -> tuple[list[dict[str, object]], U8]:
    """A row for copying and for each way of sampling, and a strip of the present, prediction and outcome."""
    rows = np.linspace(0, len(samples) - 1, N_MOMENTS).astype(int)
    used = sorted({int(n) for table in samples.images.values() for n in table[rows].ravel()})
    place = {number: i for i, number in enumerate(used)}
    latents = torch.from_numpy(policy.encode_pictures(pictures[used]))[:, None].to(policy.device)
    few = take_rows(samples, rows)
    few = replace(few, images={k: np.vectorize(place.get)(v) for k, v in few.images.items()})
    source = BatchSource(few, latents, policy.statistics, policy.config, policy.device)
    camera = policy.config.image.future[0]
    now = pictures[samples.images[f"frame/{camera}"][rows]]
    then = pictures[samples.images[f"future_frame/{camera}"][rows]]
    body = policy.config.proprio_dim
    pose_then = samples.fixed["future_proprio"][rows][:, body : body + 4]
    pose_now = samples.fixed["proprio"][rows][:, body : body + 4]
    if policy.config.canonical:
        pose_now = np.tile(np.array([0.0, 0.0, 1.0, 0.0]), (len(rows), 1))
    decoded_now = policy.decode_frames(policy.encode_pictures(now)).astype(int)

    def on_present(decoded: U8) -> U8:
        """The current image plus the difference of the decoded images, so that unchanged parts stay exact."""
        return np.clip(now + (decoded.astype(int) - decoded_now), 0, 255).astype(np.uint8)

    best = policy.decode_frames(policy.encode_pictures(then))
    found = [
        _row("copying the present", now, now, then, pose_now, pose_then),
        _row("what came, through the autoencoder", best, now, then, pose_then, pose_then),
        _row("what came, as a change of the present", on_present(best), now, then, pose_then, pose_then),
    ]
    strip = []
    for steps, temperature in samplings:
        sampling = replace(policy.config.sampling, n_steps=steps, temperature=temperature)
        parts, poses = [], []
        for chunk in torch.arange(len(rows)).split(64):
            generator = torch.Generator(policy.device).manual_seed(0)
            batch = source.take(chunk.to(policy.device), NO_AUGMENT, generator)
            noise = policy.model.draw_noise(len(chunk), generator, policy.device)
            drawn = policy.model.sample(batch, noise, sampling)
            parts.append(policy.decode_frames(drawn[f"future_frame/{camera}"]))
            if "future_proprio" in drawn:
                told = policy.statistics.restore("future_proprio", drawn["future_proprio"]).cpu().numpy()
                poses.append(told[:, body : body + 4])
        name = f"predicted, {steps} steps, temperature {temperature:g}"
        guess = on_present(np.concatenate(parts))
        pose = np.concatenate(poses) if poses else pose_now
        found.append(_row(name, guess, now, then, pose, pose_then))
        strip = [now[::24], guess[::24], then[::24]]
        print(found[-1], flush=True)
    return found, np.concatenate([np.concatenate(list(part), axis=1) for part in strip])


def _row(what: str, guess: U8, now: U8, then: U8, poses: F32, true_poses: F32) -> dict[str, object]:
    changed = np.abs(now.astype(int) - then.astype(int)).max(axis=3) > 16  # (n, h, w)
    found = {
        "what": what,
        "explained": 1 - _squared(guess, then) / _squared(now, then),  # share of the squared change
        "psnr_db": psnr(guess, then),
        "ink_psnr_db": psnr(guess[changed], then[changed]),
    }
    if poses.shape[1] == 4:  # x, y, cosine, sine of the first object
        turns = np.arctan2(poses[:, 3], poses[:, 2]) - np.arctan2(true_poses[:, 3], true_poses[:, 2])
        turns = (turns + np.pi) % (2 * np.pi) - np.pi
        found["block_px"] = float(np.sqrt(np.square(poses[:, :2] - true_poses[:, :2]).sum(1).mean()))
        found["block_deg"] = float(np.degrees(np.sqrt(np.square(turns).mean())))
    return found


def _squared(a: U8, b: U8) -> float:
    return float(np.square(a.astype(np.float64) - b.astype(np.float64)).sum())


if __name__ == "__main__":
    run_script(main)

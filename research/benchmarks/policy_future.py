"""Does the policy foresee? Its predicted frame and block pose against copying the present ones.

    python research/benchmarks/policy_future.py --json docs/results/policy_future.json

Held-out demonstrations of the training split, matches found as at test time, 8 steps ahead.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from recap.cli.one_line import run_script
from recap.policies.checkpoint import from_pretrained
from recap.training.autoencoder import psnr
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.training.data import build_data, demonstrations, split, where
from recap.training.presets import preset

N_MOMENTS = 192


def _pair(text: str) -> tuple[int, float]:
    steps, temperature = text.split(":")
    return int(steps), float(temperature)


def main() -> None:
    """Predict, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="pusht-nano")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sampling", type=_pair, nargs="*", default=[(2, 0.5), (2, 1.0), (5, 1.0)])
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    policy = from_pretrained(arguments.policy)
    config = replace(preset("pusht-nano"), policy=policy.config)
    _, held_out = split(demonstrations(config.target), config.held_out)
    pool = where(demonstrations(config.pool), config.pool_where)
    data = build_data(held_out, pool, replace(config, held_out=0.5))
    pictures = data.pictures
    assert policy.encoder is not None
    samples = data.held_out
    rows = np.linspace(0, len(samples) - 1, N_MOMENTS).astype(int)
    used = sorted({int(n) for table in samples.images.values() for n in table[rows].ravel()})
    place = {number: i for i, number in enumerate(used)}
    latents = torch.from_numpy(policy.encoder.encode_images(pictures[used]))[:, None].expand(
        -1, 2, -1, -1, -1
    )
    few = replace(
        samples,
        fixed={k: v[rows] for k, v in samples.fixed.items()},
        matched={k: v[rows] for k, v in samples.matched.items()},
        actions=samples.actions[rows],
        base=samples.base[rows],
        valid=samples.valid[rows],
        weight=samples.weight[rows],
        task=samples.task[rows],
        images={k: np.vectorize(place.get)(v[rows]) for k, v in samples.images.items()},
    )
    source = BatchSource(few, latents, policy.statistics, policy.config, torch.device("cpu"))
    camera = policy.config.image.cameras[0]
    now = pictures[samples.images[f"frame/{camera}"][rows]]
    then = pictures[samples.images[f"future_frame/{camera}"][rows]]
    changed = np.abs(now.astype(int) - then.astype(int)).max(axis=3) > 16  # (n, h, w)
    pose_then = samples.fixed["future_proprio"][rows][:, 2:]
    pose_now = np.tile(np.array([0.0, 0.0, 1.0, 0.0]), (len(rows), 1))
    found = [_row("copying the present", now, then, changed, pose_now, pose_then)]
    for steps, temperature in arguments.sampling:
        sampling = replace(policy.config.sampling, n_steps=steps, temperature=temperature)
        parts, poses = [], []
        for chunk in torch.arange(len(rows)).split(64):
            generator = torch.Generator().manual_seed(0)
            batch = source.take(chunk, NO_AUGMENT, generator)
            noise = policy.model.draw_noise(len(chunk), generator, torch.device("cpu"))
            drawn = policy.model.sample(batch, noise, sampling)
            parts.append(policy.decode_frames(drawn[f"future_frame/{camera}"]))
            poses.append(policy.statistics.restore("future_proprio", drawn["future_proprio"]).numpy()[:, 2:])
        name = f"predicted, {steps} steps, temperature {temperature:g}"
        found.append(_row(name, np.concatenate(parts), then, changed, np.concatenate(poses), pose_then))
        print(found[-1], flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"n": len(rows), "rows": found}, indent=1) + "\n", "utf-8")
    print(found)


def _row(
    what: str,
    guess: np.ndarray,
    truth: np.ndarray,
    changed: np.ndarray,
    poses: np.ndarray,
    true_poses: np.ndarray,
) -> dict[str, object]:  # type: ignore[type-arg]
    turns = np.arctan2(poses[:, 3], poses[:, 2]) - np.arctan2(true_poses[:, 3], true_poses[:, 2])
    turns = (turns + np.pi) % (2 * np.pi) - np.pi
    return {
        "what": what,
        "psnr_db": psnr(guess, truth),
        "ink_psnr_db": psnr(guess[changed], truth[changed]),
        "block_px": float(np.sqrt(np.square(poses[:, :2] - true_poses[:, :2]).sum(1).mean())),
        "block_deg": float(np.degrees(np.sqrt(np.square(turns).mean()))),
    }


if __name__ == "__main__":
    run_script(main)

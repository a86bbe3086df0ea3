"""How precise are tool poses from films of hands, on synthetic motions with known truth?

python research/benchmarks/hands.py --out docs/results/hands.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from recap_hands.metric import from_cameras, from_one_camera
from recap_hands.tool import tool_path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "hands"))
# Cameras, pixel noise, noise of the hand's shape in m, error of its size, share of lost landmarks.
CASES = {
    "two cameras, 1 px": (2, 1.0, 0.0, 1.0, 0.0),
    "two cameras, 2 px": (2, 2.0, 0.0, 1.0, 0.0),
    "two cameras, 4 px": (2, 4.0, 0.0, 1.0, 0.0),
    "two cameras, 2 px, 1 % of landmarks lost": (2, 2.0, 0.0, 1.0, 0.01),
    "one camera, 2 px, shape exact": (1, 2.0, 0.0, 1.0, 0.0),
    "one camera, 2 px, shape to 5 mm": (1, 2.0, 0.005, 1.0, 0.0),
    "one camera, 2 px, shape to 5 mm, size 5 % off": (1, 2.0, 0.005, 1.05, 0.0),
}


def main() -> None:
    """Medians and 95th percentiles over motions of 90 frames."""
    from made_hands import FRONT, SIDE, angle_deg, motion, seen_by

    from recap_hands.tool import palm_length

    parser = argparse.ArgumentParser()
    parser.add_argument("--motions", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = {}
    for name, (n_cameras, noise, shape, size, lost) in CASES.items():
        errors: list[list[float]] = [[], [], []]
        seen = n = 0
        for seed in range(options.motions):
            _, points = motion(seed=seed)
            cameras = (FRONT, SIDE)[:n_cameras]
            hands = [
                seen_by(camera, points, noise, shape, 100 * seed + i) for i, camera in enumerate(cameras)
            ]
            for i, hand in enumerate(hands):
                hand.pixels[np.random.default_rng([seed, i]).random(hand.pixels.shape[:2]) < lost] = np.nan
            if n_cameras > 1:
                found = from_cameras(cameras, hands)
            else:
                found = from_one_camera(FRONT, hands[0], size * float(palm_length(points)[0]))
            ours, truth = tool_path(found.points), tool_path(points)
            good = ours.seen
            errors[0] += (1000 * np.linalg.norm(ours.position - truth.position, axis=1)[good]).tolist()
            errors[1] += angle_deg(ours.rotation[good], truth.rotation[good]).tolist()
            errors[2] += (1000 * np.abs(ours.opening - truth.opening)[good]).tolist()
            seen, n = seen + int(good.sum()), n + len(good)
        parts = ("position_mm", "rotation_deg", "opening_mm")
        rows[name] = {
            part: {"median": round(float(np.median(e)), 2), "p95": round(float(np.percentile(e, 95)), 2)}
            for part, e in zip(parts, errors, strict=True)
        } | {"frames": n, "seen": seen}
        print(name, rows[name], flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps({"motions": options.motions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

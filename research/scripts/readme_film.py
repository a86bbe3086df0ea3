"""The film of the README: a frozen policy fails, demonstrations are appended, the same weights succeed.

python research/scripts/readme_film.py                  # docs/images/before-after.gif, minutes on one core
python research/scripts/readme_film.py --seed 511       # from another start

Without --seed it takes the first start from 500 up that stays below 0.85 coverage before.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import recap
from recap.pool.memory import MemoryPool
from recap.types import U8
from recap_apps.demo.spec import DemoSpec
from recap_apps.demo.teaching import collect
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.tasks import THRESHOLDS

SOLVED = THRESHOLDS[-1]
SIDE, GAP, TOP, BOTTOM = 232, 12, 30, 26
N_FRAMES = 34  # of each part
ANGLE, MAX_STEPS, MS, PAUSE = 30.0, 300, 90, 14
PAPER, INK, FAINT = "#ffffff", "#1f2430", "#b9bdc9"
TITLES = ("1  empty pool", "2  a disc shows it", "3  same weights, again")


def roll_out(agent: recap.Agent, seed: int) -> tuple[list[U8], list[float]]:
    """Pictures and coverage of one episode."""
    env = PushTEnv("triangle", goal_angle=ANGLE)
    env.reset(seed=seed)
    agent.reset(seed=seed)
    frames, coverage = [env.draw(SIDE)], [env.coverage()]
    for _ in range(MAX_STEPS):
        env.step(agent.act(env.observe(agent.robot.cameras["top"].size[0])))
        frames.append(env.draw(SIDE))
        coverage.append(env.coverage())
        if coverage[-1] > SOLVED:
            break
    return frames, coverage


def thinned(frames: Sequence[U8], values: Sequence[float]) -> list[tuple[U8, float]]:
    """As many as fit into a part, first and last among them."""
    keep = np.linspace(0, len(frames) - 1, N_FRAMES).round().astype(int)
    return [(frames[i], values[i]) for i in keep]


def picture(panels: Sequence[tuple[U8 | None, str]], now: int) -> Image.Image:
    """Three panels beside each other, the present one in ink."""
    page = Image.new("RGB", (3 * SIDE + 4 * GAP, TOP + SIDE + BOTTOM + GAP), PAPER)
    draw = ImageDraw.Draw(page)
    font = ImageFont.load_default(15)
    for number, (frame, below) in enumerate(panels):
        x = GAP + number * (SIDE + GAP)
        draw.text((x, 7), TITLES[number], fill=INK if number <= now else FAINT, font=font)
        if frame is not None:
            page.paste(Image.fromarray(frame), (x, TOP))
        draw.rectangle((x, TOP, x + SIDE - 1, TOP + SIDE - 1), outline=INK if number == now else FAINT)
        draw.text((x, TOP + SIDE + 6), below, fill=INK, font=font)
    return page


def film(seed: int | None, out: Path) -> None:
    """Find a start, film it, write it."""
    pool = MemoryPool()
    policy = recap.load_policy("pusht-nano")
    agent = recap.Agent(policy, pool, recap.AgentConfig(reaction="ignore"))
    spec = DemoSpec(additions=(50,), angle=ANGLE)
    shown = collect(spec.collection(0, SIDE), 1, lambda done, total: None)
    for start in [seed] if seed is not None else range(500, 520):
        before = roll_out(recap.Agent(policy, MemoryPool(), recap.AgentConfig(reaction="ignore")), start)
        if max(before[1]) <= THRESHOLDS[0]:
            break
    pool.add(*shown)
    after = roll_out(agent, start)
    print(f"seed {start}: best coverage {max(before[1]):.2f} before, {max(after[1]):.2f} after")
    teacher = list(shown[0].images["top"])
    parts = [thinned(*before), thinned(teacher, [0.0] * len(teacher)), thinned(*after)]
    last: list[tuple[U8 | None, str]] = [(None, "")] * 3
    pages, times = [], []
    for now, part in enumerate(parts):
        for frame, value in part:
            last[now] = (frame, "50 demonstrations appended" if now == 1 else f"coverage {value:.2f}")
            pages.append(picture(last, now))
            times.append(MS)
        times[-1] = MS * PAUSE
    palette = pages[-1].quantize(64)
    small = [page.quantize(palette=palette, dither=Image.Dither.NONE) for page in pages]
    out.parent.mkdir(parents=True, exist_ok=True)
    small[0].save(out, save_all=True, append_images=small[1:], duration=times, loop=0, optimize=True)
    print(f"{out}: {len(pages)} frames, {out.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="the start")
    parser.add_argument("--out", type=Path, default=Path("docs/images/before-after.gif"))
    options = parser.parse_args()
    film(options.seed, options.out)


if __name__ == "__main__":
    main()

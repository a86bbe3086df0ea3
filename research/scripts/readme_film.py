"""The animation of the README: a frozen policy fails, one demonstration is dragged, the same weights succeed.

python research/scripts/readme_film.py              # docs/images/before-after.gif, a minute on one core
python research/scripts/readme_film.py --start 3    # from another start

The demonstration goes through the studio's teaching session; a scripted pointer drags the disc in place of
a person. Without --start, the first start with less than 0.85 coverage before the demonstration is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import recap
from recap.pool.memory import MemoryPool
from recap.types import U8, Episode
from recap_apps.studio.task import DONE, SOLVED, Task
from recap_apps.studio.teaching import Teaching
from recap_worlds.pusht.drawing import BOARD_SIZE
from recap_worlds.pusht.expert import Expert

SIDE, GAP, TOP, BOTTOM = 232, 12, 30, 26
N_FRAMES = 34  # frames of each part
ANGLE, MAX_STEPS, MS, PAUSE = 30.0, 300, 90, 14
PAPER, INK, FAINT = "#ffffff", "#1f2430", "#b9bdc9"
TITLES = ("1  empty pool: it fails", "2  drag one demonstration", "3  same weights: it succeeds")
ARROW = ((0, 0), (0, 17), (4, 13), (7, 20), (10, 19), (7, 12), (12, 12))  # px of a mouse pointer


def roll_out(policy: recap.Policy, pool: MemoryPool, task: Task) -> tuple[list[U8], list[float]]:
    """Images and coverage of one episode of the triangle."""
    agent = recap.Agent(policy, pool, recap.AgentConfig(reaction="ignore"))
    env = task.open("triangle")
    agent.reset(seed=0)
    frames, coverage = [env.draw(SIDE)], [env.coverage()]
    while len(frames) <= MAX_STEPS and coverage[-1] <= DONE:
        env.step(agent.act(env.observe(agent.robot.cameras["top"].size[0])))
        frames.append(env.draw(SIDE))
        coverage.append(env.coverage())
    return frames, coverage


def drag(task: Task) -> tuple[Episode, list[U8], list[float]]:
    """A demonstration by the scripted pointer, with its images and coverage."""
    teaching, expert, env = Teaching(task), Expert("disc", task.block), task.open("disc")
    frames, coverage = [], []
    while not teaching.is_over:
        x, y = (float(value) for value in expert.act(env.observe()))
        frames.append(with_pointer(env.draw(SIDE), x, y))
        coverage.append(env.coverage())
        teaching.point(x, y)
        teaching.tick()
        env.step(teaching.last_action)
    return teaching.episode("one", 0, teaching.best_end()), frames, coverage


def with_pointer(frame: U8, x: float, y: float) -> U8:
    """The board with a mouse pointer at the disc's target."""
    image = Image.fromarray(frame)
    left, top = x * SIDE / BOARD_SIZE, y * SIDE / BOARD_SIZE
    outline = [(left + dx, top + dy) for dx, dy in ARROW]
    ImageDraw.Draw(image).polygon(outline, fill="#ffffff", outline=INK)
    return np.asarray(image)


def thinned(frames: Sequence[U8], values: Sequence[float]) -> list[tuple[U8, float]]:
    """At most `N_FRAMES` frames, including the first and the last."""
    keep = np.linspace(0, len(frames) - 1, N_FRAMES).round().astype(int)
    return [(frames[i], values[i]) for i in keep]


def picture(panels: Sequence[tuple[U8 | None, str]], now: int) -> Image.Image:
    """Three panels side by side, the current one highlighted."""
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


def film(start: int | None, out: Path) -> None:
    """Find a start, record it, write the file."""
    policy = recap.load_policy("pusht-small")
    for number in [start] if start is not None else range(20):
        task = Task("tee", ANGLE, number)
        before = roll_out(policy, MemoryPool(), task)
        if max(before[1]) <= SOLVED:
            break
    episode, *dragged = drag(task)
    after = roll_out(policy, MemoryPool([episode]), task)
    print(f"{task}: best coverage {max(before[1]):.2f} before, {max(after[1]):.2f} after")
    last: list[tuple[U8 | None, str]] = [(None, "")] * 3
    pages, times = [], []
    for now, (frames, coverage) in enumerate((before, dragged, after)):
        for frame, value in thinned(frames, coverage):
            last[now] = (frame, f"coverage {value:.2f}")
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
    parser.add_argument("--start", type=int, help="the start, as in the studio")
    parser.add_argument("--out", type=Path, default=Path("docs/images/before-after.gif"))
    options = parser.parse_args()
    film(options.start, options.out)


if __name__ == "__main__":
    main()

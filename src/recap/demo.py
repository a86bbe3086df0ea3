"""The first look: the expert pushes the T to several goals, with both pushers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from recap.envs.pusht.env import PushTEnv
from recap.envs.pusht.pushers import PUSHERS
from recap.envs.pusht.tasks import FPS
from recap.evaluation.agents import make_agent
from recap.evaluation.rollouts import EvalSpec, run_trials
from recap.evaluation.runner import evaluate
from recap.evaluation.summary import Summary
from recap.pictures import filmstrip, halved, write_png
from recap.types import U8
from recap.video import write_video

ANGLES = (-60.0, -15.0, 30.0, 45.0)
SEEDS = (900, 901, 902, 903)
TILE = 240  # px, of one episode in the video
N_MOMENTS = 8  # of an episode in the still
N_HOLD = 15  # frames that the last picture stays


def specs() -> dict[str, EvalSpec]:
    """What is rolled out, by pusher."""
    return {pusher: EvalSpec("expert", pusher=pusher, angles=ANGLES, seeds=SEEDS) for pusher in PUSHERS}


def run_demo(out: Path, workers: int, progress: Callable[[int, int], None]) -> dict[str, Summary]:
    """Evaluate the expert with both pushers, then film the first start of every goal."""
    summaries: dict[str, Summary] = {}
    n_before = 0
    total = sum(len(spec.trials()) for spec in specs().values())

    def report(done: int, _: int) -> None:
        progress(n_before + done, total)

    for pusher, spec in specs().items():
        summaries[pusher] = evaluate(spec, out / pusher, workers=workers, progress=report)
        n_before += len(spec.trials())
    film(out)
    return summaries


def film(out: Path) -> None:
    """`demo.mp4`, a row a pusher and a column a goal, and `demo.png`, moments of the triangle's row."""
    reels = {pusher: _shoot(spec) for pusher, spec in specs().items()}
    length = max(len(reel) for row in reels.values() for reel in row) + N_HOLD
    frames = [
        np.concatenate([np.concatenate([_at(reel, t) for reel in row], axis=1) for row in reels.values()])
        for t in range(length)
    ]
    write_video(out / "demo.mp4", frames, FPS * 2)
    strips = [filmstrip(reel, N_MOMENTS) for reel in reels["triangle"]]
    write_png(out / "demo.png", halved(np.concatenate(strips)))


def _at(reel: list[U8], t: int) -> U8:
    return reel[min(t, len(reel) - 1)]


def _shoot(spec: EvalSpec) -> list[list[U8]]:
    """The pictures of the first start at every goal."""
    agent = make_agent(spec.agent, spec)
    reels: list[list[U8]] = []
    for trial in (t for t in spec.trials() if t.seed == SEEDS[0]):
        reel: list[U8] = []
        for _ in run_trials(agent, spec, [trial], 1, partial(_picture, reel)):
            reels.append(reel)
    return reels


def _picture(reel: list[U8], board: PushTEnv) -> None:
    reel.append(board.draw(TILE))

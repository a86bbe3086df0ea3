"""Chosen episodes run again with a camera on: a video and a film strip of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from recap.envs.pusht.tasks import FPS, angle_key
from recap.errors import InputError
from recap.evaluation.agents import make_agent
from recap.evaluation.rollouts import EvalSpec, run_trials
from recap.evaluation.run_directory import Key
from recap.pictures import filmstrip, halved, write_png
from recap.types import U8, EpisodeResult
from recap.video import write_video

N_STRIP_FRAMES = 8
ARMS_FPS = 20.0  # of two arms, a picture each control step
Choice = Callable[[EpisodeResult], bool]


@dataclass(frozen=True, slots=True)
class Recording:
    """What was written of one episode, and how the episode ended this time."""

    video: Path | None  # None when the agent could not even begin
    strip: Path | None
    recorded: EpisodeResult  # by the evaluation
    replayed: EpisodeResult  # in front of the camera

    @property
    def differs(self) -> bool:
        """Whether it went otherwise: the agent is not deterministic, or has changed since."""
        a, b = self.recorded, self.replayed
        return (a.outcome, a.steps, a.max_coverage) != (b.outcome, b.steps, b.max_coverage)


def parse_choice(text: str, spec: EvalSpec) -> Choice:
    """Which episodes: `3` (the first ones), `all`, `failures`, or by goal or task and seed: `+45:48`."""
    if text == "failures":
        return lambda result: result.outcome == "failure"
    ordered: list[Key] = [(task, seed) for task in spec.task_keys for seed in sorted(spec.seeds)]
    if text == "all":
        chosen = set(ordered)
    elif text.isdecimal() and int(text):
        chosen = set(ordered[: int(text)])
    else:
        chosen = {_parse_key(item, spec) for item in text.split(",")}
        for task, seed in sorted(chosen - set(ordered)):
            raise InputError(f"cannot record {task}:{seed}: this evaluation has no such episode")
    return lambda result: (result.task, result.seed) in chosen


def _parse_key(item: str, spec: EvalSpec) -> Key:
    goal, _, seed = item.partition(":")
    try:
        return goal if spec.env == "dualarm" else angle_key(float(goal)), int(seed)
    except ValueError:
        raise InputError(
            f"unknown episodes to record '{item}': give a number, failures, all, or angle:seed such as +45:48"
        ) from None


def record(spec: EvalSpec, results: Sequence[EpisodeResult], out: Path) -> Iterator[Recording]:
    """Run the episodes again, one by one, and write `<angle>_<seed>_<outcome>` .mp4 and .png for each."""
    if not results:
        return
    agent = make_agent(spec.agent, spec)
    trials = {(trial.task, trial.seed): trial for trial in spec.trials()}
    for result in results:
        frames: list[U8] = []
        trial = trials[result.task, result.seed]
        (replayed,) = run_trials(agent, spec, [trial], 1, partial(_shoot, frames))
        stem = f"{result.task}_{result.seed}_{replayed.outcome}"
        if not frames:
            yield Recording(None, None, result, replayed)
            continue
        video, strip = out / f"{stem}.mp4", out / f"{stem}.png"
        write_video(video, frames, ARMS_FPS if spec.env == "dualarm" else FPS)
        write_png(strip, halved(filmstrip(frames, N_STRIP_FRAMES, gap=8)))
        yield Recording(video, strip, result, replayed)


def _shoot(frames: list[U8], world: Any) -> None:
    frames.append(world.render())

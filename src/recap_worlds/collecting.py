"""Collects demonstrations of a suite's expert as one LeRobot dataset; a stopped collection can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from recap.errors import InputError, RecapError
from recap.evaluation.agents import Trial
from recap.suites import Options, Suite, World, suites
from recap.types import Episode
from recap_worlds.staging import collect_lerobot

COLLECTION_SEEDS = 100_000  # and above; never used for evaluation
N_SCENES = 5  # scenes that are tried per demonstration
NEXT_SCENE = 10_000_000  # added to the seed for the next scene


@dataclass(frozen=True)
class Demo:
    """One demonstration to collect."""

    index: int
    task: str
    seed: int


@dataclass(frozen=True)
class SuiteSpec:
    """What to collect; two embodiments with the same tasks and seeds start from the same scenes."""

    env: str
    tasks: tuple[str, ...]
    episodes: int  # per task
    embodiment: str
    options: Options = field(default_factory=dict)
    first_seed: int = COLLECTION_SEEDS
    image_size: int = 128  # 0: no images
    after: int = 10  # steps that are recorded after success

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise InputError(f"{self.episodes} episodes cannot be collected: give 1 or more")
        if self.image_size and (self.image_size % 2 or not 16 <= self.image_size <= 1024):
            raise InputError(
                f"image size {self.image_size} cannot be filmed: give 0, or an even number from 16 to 1024"
            )
        if not COLLECTION_SEEDS <= self.first_seed <= NEXT_SCENE - self.episodes:
            raise InputError(
                f"seed {self.first_seed} is not one to collect with: give {COLLECTION_SEEDS} or more, so "
                "that no scene of an evaluation is shown"
            )

    def demos(self) -> list[Demo]:
        """The demonstrations, task by task."""
        pairs = [(task, self.first_seed + i) for task in self.tasks for i in range(self.episodes)]
        return [Demo(index, task, seed) for index, (task, seed) in enumerate(pairs)]


def collect_suite(
    spec: SuiteSpec, out: Path, *, workers: int = 1, progress: Callable[[int, int], None] | None = None
) -> None:
    """Collect missing demonstrations and write the dataset `out`; the same call resumes after a stop."""
    make = partial(_demonstrations, spec, _widths(spec))
    collect_lerobot(
        asdict(spec), spec.demos(), make, out, spec.embodiment, workers=workers, progress=progress
    )


def _widths(spec: SuiteSpec) -> dict[str, int]:
    """Widths of the objects of all tasks, which share one dataset; empty for a single task."""
    from recap.pool.importers.mapping import OBJECT

    suite, found = suites()[spec.env], dict[str, int]()
    if len(spec.tasks) > 1:
        world = suite.make(suite.check(spec.options))
        for task in spec.tasks:
            world.reset(spec.first_seed, task)
            found |= {OBJECT + name: len(pose) for name, pose in world.observe(None).objects.items()}
        _close(world)
    return found


def _demonstrations(
    spec: SuiteSpec, widths: Mapping[str, int], demos: Iterator[Demo]
) -> Iterator[tuple[int, Episode]]:
    from recap.pool.lerobot_stage import filled

    suite = suites()[spec.env]
    options = suite.check(spec.options)
    world, expert = suite.make(options), suite.expert(options)
    for demo in demos:
        yield demo.index, filled(successful(spec, suite, world, expert, demo), widths)
    _close(world)


def _close(world: World) -> None:
    close = getattr(world, "close", None)
    if close is not None:
        close()


def successful(spec: SuiteSpec, suite: Suite, world: World, expert: Any, demo: Demo) -> Episode:
    """A successful demonstration of the demo's scene or, if the expert fails there, of another scene."""
    for scene in range(N_SCENES):
        episode = demonstrate(spec, suite, world, expert, demo.task, demo.seed + scene * NEXT_SCENE)
        if episode.success:
            return episode
    raise RecapError(
        f"the expert failed in {N_SCENES} scenes of {demo.task} (seed {demo.seed}): start at another --seed"
    )


def demonstrate(spec: SuiteSpec, suite: Suite, world: World, expert: Any, task: str, seed: int) -> Episode:
    """The expert's episode in a scene, successful or not."""
    options = suite.check(spec.options)
    robot = suite.robot(options)
    world.reset(seed, task)
    expert.reset(0, Trial(task, seed))
    seen, actions, solved, after = [], [], False, 0
    for _ in range(suite.max_steps(task, options)):
        seen.append(world.observe(spec.image_size or None))
        actions.append(expert.act([0], seen[-1:])[0])
        metrics, ended = world.step(actions[-1])
        solved = solved or metrics[suite.metric] > suite.thresholds[-1]
        after += solved
        if ended or after > spec.after:
            break
    scene = f"{suite.name}/{task}/{seed}"
    names = [name for name in seen[0].objects if all(name in one.objects for one in seen)]
    return Episode(
        id=f"{scene}/{spec.embodiment}",
        scene_id=scene,
        task=seen[0].task,
        embodiment=spec.embodiment,
        fps=robot.control_hz,
        timestamps=np.arange(len(seen)) / robot.control_hz,
        proprio=np.array([one.proprio for one in seen], np.float32),
        actions=np.array(actions, np.float32),
        objects={name: np.array([one.objects[name] for one in seen], np.float32) for name in names},
        images={camera: [one.images[camera] for one in seen] for camera in seen[0].images},
        success=solved,
        source="scripted expert",
        attributes={"env": suite.name, "task_key": task, "seed": seed},
    )

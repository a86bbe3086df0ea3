"""Collects dual-arm demonstrations of scripted experts, one dataset per task, for LeRobot or RoboTwin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recap.errors import InputError, RecapError, RunDirectoryError, one_of
from recap.types import Episode
from recap_worlds.dualarm.persons import FILMS, as_filmed
from recap_worlds.dualarm.robots import HAND, robot_named
from recap_worlds.dualarm.tasks import check_collection_seeds, task_named

if TYPE_CHECKING:
    from recap.pool.robotwin_write import Layout
    from recap_worlds.dualarm.env import DualArmEnv

MAX_DEMOS = 1_000_000
N_SCENES = 5  # scenes that are tried per demonstration
NEXT_SCENE = 10_000_000  # added to the seed for the next scene


@dataclass(frozen=True)
class DualArmDemo:
    """One demonstration to collect."""

    index: int
    seed: int


@dataclass(frozen=True)
class DualArmSpec:
    """What to collect for one task; two embodiments with the same seeds start from the same scenes."""

    task: str
    embodiment: str
    episodes: int
    split: str = "clean"
    first_seed: int = 100_000
    image_size: int = 128  # 0: no images
    film: str = "truth"  # how hand poses are measured, of FILMS

    def __post_init__(self) -> None:
        task_named(self.task)
        robot_named(self.embodiment)
        one_of("split", self.split, ("clean", "randomised"))
        one_of("film", self.film, FILMS)
        if self.film != "truth" and self.embodiment != HAND.name:
            raise InputError(f"film {self.film} is of hands: give --embodiment hand, or leave it out")
        if not 1 <= self.episodes <= MAX_DEMOS:
            raise InputError(f"{self.episodes} episodes cannot be collected: give 1 to {MAX_DEMOS}")
        if self.image_size and (self.image_size % 2 or not 16 <= self.image_size <= 1024):
            raise InputError(
                f"image size {self.image_size} cannot be filmed: give 0, or an even number from 16 to 1024"
            )
        check_collection_seeds(self.first_seed, self.episodes)

    def settings(self) -> dict[str, object]:
        """Settings of a collection without the default `film`, so that older collections can be resumed."""
        return {key: value for key, value in asdict(self).items() if key != "film" or value != "truth"}

    def demos(self) -> list[DualArmDemo]:
        """All demonstrations; each has its own seed."""
        return [DualArmDemo(i, self.first_seed + i) for i in range(self.episodes)]


def collect_dualarm(
    spec: DualArmSpec, out: Path, *, workers: int = 1, progress: Callable[[int, int], None] | None = None
) -> None:
    """Collect missing demonstrations and write the dataset `out`; the same call resumes after a stop."""
    from recap_worlds.staging import collect_lerobot

    make = partial(_demonstrations, spec)
    collect_lerobot(
        spec.settings(), spec.demos(), make, out, spec.embodiment, workers=workers, progress=progress
    )


def collect_robotwin(
    spec: DualArmSpec,
    out: Path,
    *,
    layout: Layout = "release",
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """The same in RoboTwin 2.0's format; `out` is `DIR/TASK/CONFIG`."""
    from recap.pool.robotwin_write import LAYOUTS
    from recap_worlds.dualarm.robotwin_staging import assemble_robotwin, staged_robotwin
    from recap_worlds.staging import collect_staged

    one_of("layout", layout, LAYOUTS)
    for place in out.parents[:2]:
        if is_lerobot(place):
            raise RunDirectoryError(f"{place} is a LeRobot dataset: give another --out for RoboTwin's files")
    collect_staged(
        {**spec.settings(), "layout": layout},
        spec.demos(),
        partial(_stage_robotwin, spec, layout),
        out,
        staged_robotwin,
        assemble_robotwin,
        workers=workers,
        progress=progress,
    )


def is_lerobot(folder: Path) -> bool:
    """True if a LeRobot dataset exists there."""
    return (folder / "meta/info.json").is_file()


def _stage_robotwin(
    spec: DualArmSpec, layout: Layout, staging: Path, demos: Iterator[DualArmDemo]
) -> Iterator[int]:
    from recap_worlds.dualarm.env import DualArmEnv
    from recap_worlds.dualarm.robotwin_staging import stage_robotwin

    env = DualArmEnv(spec.task, spec.embodiment, split=spec.split, image_size=0)
    for demo in demos:
        episode = _successful(spec, demo, env)
        joints = np.array(env.joint_history[: len(episode)])  # (t, 2, 6)
        stage_robotwin(staging, demo.index, layout, episode, (joints[:, 0], joints[:, 1]))
        yield demo.index
    env.close()


def _demonstrations(spec: DualArmSpec, demos: Iterator[DualArmDemo]) -> Iterator[tuple[int, Episode]]:
    from recap_worlds.dualarm.env import DualArmEnv

    env = DualArmEnv(spec.task, spec.embodiment, split=spec.split, image_size=0)
    for demo in demos:
        yield demo.index, _successful(spec, demo, env)
    env.close()


def _successful(spec: DualArmSpec, demo: DualArmDemo, env: DualArmEnv) -> Episode:
    """A successful demonstration of the demo's scene or, if the expert fails there, of another scene."""
    from recap_worlds.dualarm.collection import demonstrate_patiently

    for scene in range(N_SCENES):
        seed = demo.seed + scene * NEXT_SCENE
        episode = demonstrate_patiently(
            spec.task, spec.embodiment, seed, spec.image_size, spec.split, env=env, cameras=env.robot.cameras
        )
        if episode.success:
            return as_filmed(episode, FILMS[spec.film], seed)
    raise RecapError(
        f"the expert failed in {N_SCENES} scenes of {spec.task} (seed {demo.seed}): start at another --seed"
    )

"""PushT as a suite: goals at many angles, coverage as the metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recap.errors import InputError
from recap.robot import RobotSpec
from recap.suites import Options, PoseEstimator, Suite
from recap.types import F64, U8, Episode, Observation, TaskContext
from recap_worlds.pusht.robot import PUSHT
from recap_worlds.pusht.tasks import (
    ANGLES,
    EVALUATION_SEEDS,
    FPS,
    INSTRUCTION,
    MAX_STEPS,
    SEEN_ANGLES,
    THRESHOLDS,
    angle_key,
    wrapped,
)

if TYPE_CHECKING:
    from recap.features.describer import TermDescriber
    from recap.pool.view import PoolSource
    from recap.retrieval.config import RetrievalConfig
    from recap.training.config import TrainConfig

POLICIES = ("pusht-nano", "pusht-small")


class PushTSuite(Suite):
    """Push a block onto a goal."""

    name: ClassVar[str] = "pusht"
    metric: ClassVar[str] = "coverage"
    thresholds: ClassVar[tuple[float, ...]] = THRESHOLDS
    seeds: ClassVar[Sequence[int]] = EVALUATION_SEEDS
    default_pool: ClassVar[str | None] = "pusht-9x100"
    default_retrieval: ClassVar[str] = "pusht-object"
    options: ClassVar[Options] = {"pusher": "disc", "block": "tee"}

    def check(self, options: Options) -> Options:
        """Options with a known pusher and block."""
        from recap_worlds.pusht.blocks import block_named
        from recap_worlds.pusht.pushers import pusher_named

        known = super().check(options)
        pusher_named(str(known["pusher"]))
        block_named(str(known["block"]))
        return known

    def tasks(self, options: Options) -> tuple[str, ...]:
        """Goal angles in degrees."""
        return tuple(angle_key(angle) for angle in ANGLES)

    def seen(self) -> frozenset[str]:
        """The goals that policies are trained on."""
        return frozenset(angle_key(angle) for angle in SEEN_ANGLES)

    def task_key(self, name: str) -> str:
        """Any angle is a task."""
        try:
            angle = float(name)
        except ValueError:
            angle = np.nan
        if not np.isfinite(angle):
            raise InputError(f"goal angle '{name}' is not a number: give degrees, such as -30")
        return angle_key(wrapped(angle))

    def ordered(self, tasks: Sequence[str]) -> tuple[str, ...]:
        """In ascending order."""
        return tuple(sorted(tasks, key=float))

    def title(self, task: str) -> str:
        """With the degree sign."""
        return f"goal {task}°"

    def robot(self, options: Options) -> RobotSpec:
        """A point in the plane."""
        return PUSHT

    def context(self, options: Options) -> TaskContext:
        """The pusher and the block."""
        return context_of(str(options.get("block", "tee")), str(options.get("pusher", "")))

    def embodied(self, embodiment: str) -> Options:
        """The pusher."""
        return {"pusher": embodiment} if embodiment else {}

    def max_steps(self, task: str, options: Options) -> int:
        """The same for every goal."""
        return MAX_STEPS

    def make(self, options: Options) -> PushTWorld:
        """A world with one board."""
        return PushTWorld(str(options["pusher"]), str(options["block"]))

    def expert(self, options: Options) -> Any:
        """The planning expert."""
        from recap_worlds.pusht.expert import Expert

        return Expert(str(options["pusher"]), str(options["block"]))

    def estimator(self, options: Options) -> PoseEstimator:
        """Estimates block and goal from the image."""
        from recap_worlds.pusht.tracker import PoseTracker

        pusher = options.get("pusher")
        return PoseTracker(str(options.get("block", "tee")), None if pusher is None else str(pusher))

    def retrievals(self) -> Mapping[str, tuple[TermDescriber, RetrievalConfig]]:
        """In the world's frame, in the block's frame, and by contact."""
        from recap_worlds.pusht.retrieval import RETRIEVALS

        return RETRIEVALS

    def retrieval_for(self, target: Episode, shown: Episode) -> str | None:
        """`pusht-object`, if block and goal are known in the plane."""
        poses = target.objects.get("block")
        planar = poses is not None and poses.shape[1] == 3 and target.proprio.shape[1] == 2
        known = "block" in shown.objects and target.goal is not None and shown.goal is not None
        return "pusht-object" if planar and known else None

    def policies(self) -> Mapping[str, Path]:
        """The included policies."""
        return {name: Path(__file__).parents[1] / "assets" / name for name in POLICIES}

    def pools(self) -> Mapping[str, str]:
        """The included pools of scripted demonstrations."""
        from recap_worlds.pusht.pools import STANDARD_POOLS

        return STANDARD_POOLS

    def open_pool(self, name: str) -> PoolSource:
        """Open an included pool."""
        from recap_worlds.pusht.pools import open_standard

        return open_standard(name)

    def dress(self, pool: Any) -> PoolSource | None:
        """The pool with camera frames that are drawn on demand, if possible."""
        from recap_worlds.pusht.pools import StandardPool, can_be_drawn

        return StandardPool(pool) if can_be_drawn(pool) else None

    def draw(self, episode: Episode, size: int) -> Sequence[U8] | None:
        """Frames drawn from the poses, if possible."""
        from recap_worlds.pusht.pools import is_drawable
        from recap_worlds.pusht.rendering import RenderedFrames

        return RenderedFrames(episode, size) if is_drawable(episode) else None

    def training_presets(self) -> Mapping[str, TrainConfig]:
        """The recipes."""
        from recap_worlds.pusht.recipes import RECIPES

        return RECIPES

    def check_training(self, config: TrainConfig, target: Sequence[Episode]) -> None:
        """Refuse mirroring for an asymmetric block if the policy does not retrieve."""
        from recap_worlds.pusht.shapes import LOPSIDED

        if not config.augment.mirror or config.policy.retrieval:
            return
        for block in sorted({str(e.attributes.get("block")) for e in target} & LOPSIDED):
            raise InputError(
                f"mirrored, demonstrations of block '{block}' are of another block: set augment.mirror=false"
            )


def context_of(block: str, pusher: str) -> TaskContext:
    """The context of a block and a pusher."""
    from recap_worlds.pusht.blocks import block_named

    return TaskContext(pusher, block_named(block).symmetry, {"block": block})


class PushTWorld:
    """One board; the metric is coverage of the goal."""

    control_hz = FPS

    def __init__(self, pusher: str, block: str) -> None:
        from recap_worlds.pusht.env import PushTEnv

        self.env = PushTEnv(pusher, block=block, success_threshold=max(THRESHOLDS))

    def reset(self, seed: int, task: str) -> Mapping[str, float]:
        """Start an episode of a goal angle."""
        _, info = self.env.reset(seed=seed, options={"goal_angle": float(task)})
        return {"coverage": float(info["coverage"])}

    def observe(self, image_size: int | None) -> Observation:
        """With the true poses."""
        return self.env.observe(image_size)

    def step(self, action: F64) -> tuple[Mapping[str, float], bool]:
        """One control step."""
        *_, info = self.env.step(action)
        return {"coverage": float(info["coverage"])}, False

    def state(self) -> F64:
        """The state from which a frame is drawn: (8,)."""
        return self.env.state()

    def draw_states(self, states: Sequence[F64], size: int) -> list[U8]:
        """Images of states (t, 8): tool x y, block x y angle, goal x y angle."""
        from recap_worlds.pusht.rendering import RenderedFrames

        rows = np.array(states)
        episode = Episode(
            id="drawn",
            scene_id="drawn",
            task=INSTRUCTION,
            embodiment=self.env.pusher,
            fps=FPS,
            timestamps=np.arange(len(rows)) / FPS,
            proprio=rows[:, :2].astype(np.float32),
            actions=np.zeros((len(rows), 2), np.float32),
            objects={"block": rows[:, 2:5].astype(np.float32)},
            goal=rows[0, 5:].astype(np.float32),
            attributes={"block": self.env.shape.name},
        )
        return list(RenderedFrames(episode, size))

    def render(self) -> U8:
        """An image of the board."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

"""A demonstration by hand: the simulated physics follow a person's pointer and are recorded."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recap.errors import InputError
from recap.types import F64, Episode, Observation, Scalar
from recap_apps.studio.task import DONE, SOLVED, Task, moment
from recap_worlds.pusht.drawing import BOARD_SIZE
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.robot import IMAGE_SIZE
from recap_worlds.pusht.tasks import ACTION_SPACE, FPS, INSTRUCTION

MAX_FRAMES = 900  # a minute and a half
MIN_FRAMES = 10  # a second; shorter demonstrations show nothing
MAX_STEP_PX = 14.0  # largest movement of the target per control step: slightly more than the expert's
REST_PX = 0.5  # distance to the target, and movement per step, below which the disc is at rest
MAX_NAME = 80  # characters
PREFIX = "studio/"  # prefix of the ids of demonstrations that are taught here
PUSHER = "disc"
_PART = re.compile(r"@\d+-\d+$")  # ending of a sub-trajectory's id, not allowed in a name


@dataclass
class Teaching:
    """A demonstration that is being recorded. Time runs while the disc is held, and until it is at rest."""

    task: Task
    held: bool = False
    _env: PushTEnv = field(init=False)
    _observations: list[Observation] = field(default_factory=list)
    _actions: list[F64] = field(default_factory=list)
    _coverage: list[float] = field(default_factory=list)  # before each action, and after the last

    def __post_init__(self) -> None:
        self._env = self.task.open(PUSHER)
        self._target = np.array(self._env.agent.position, np.float64)
        self._pointer = self._target.copy()
        self._coverage.append(self._env.coverage())

    def __len__(self) -> int:
        return len(self._actions)

    @property
    def is_over(self) -> bool:
        """True if the goal is reached, or there are too many frames."""
        return self._coverage[-1] > DONE or len(self) >= MAX_FRAMES

    @property
    def last_action(self) -> F64:
        """The last action: (2,)."""
        return self._actions[-1]

    @property
    def goal(self) -> F64:
        """The block's target pose: (3,)."""
        return np.array(self._env.goal_pose)

    def point(self, x: float, y: float) -> None:
        """Set the person's target for the disc; the disc is held from now on."""
        self._pointer = on_board(x, y)
        self.held = True

    def release(self) -> None:
        """Release the disc, which stays where it is."""
        self._pointer, self.held = self._target.copy(), False

    def tick(self) -> dict[str, Any] | None:
        """One control step of 0.1 s, and the new state; None while nothing moves."""
        if self.is_over or (not self.held and self._is_resting()):
            return None
        self._target = towards(self._target, self._pointer)
        action = self._target.astype(np.float32).astype(np.float64)  # executed as it is recorded
        self._observations.append(self._env.observe(IMAGE_SIZE))
        self._actions.append(action)
        self._env.step(action)
        self._coverage.append(self._env.coverage())
        return self.moment()

    def moment(self) -> dict[str, Any]:
        """The current state, with the number of steps."""
        over = "solved" if self._coverage[-1] > DONE else "full" if self.is_over else None
        return {"t": len(self), **moment(self._env), "target": self._target.round(2).tolist(), "over": over}

    def best_end(self) -> int:
        """The best place to end: at the highest coverage if that is a success, otherwise at the end."""
        best = int(np.argmax(self._coverage))
        return best if self._coverage[best] > SOLVED and best >= MIN_FRAMES else len(self)

    def episode(self, name: str, first: int, last: int) -> Episode:
        """Steps first … last - 1 as a demonstration."""
        if not 0 <= first < last <= len(self):
            raise InputError(f"there are no steps {first} to {last}: it has {len(self)}")
        if last - first < MIN_FRAMES:
            raise InputError(f"{last - first} steps show too little: keep {MIN_FRAMES} or more")
        kept = self._observations[first:last]
        return Episode(
            id=PREFIX + checked_name(name),
            scene_id=self.task.scene_id,
            task=INSTRUCTION,
            embodiment=PUSHER,
            fps=FPS,
            timestamps=np.arange(last - first) / FPS,
            proprio=np.array([o.proprio for o in kept], np.float32),
            actions=np.array(self._actions[first:last], np.float32),
            objects={"block": np.array([o.objects["block"] for o in kept], np.float32)},
            goal=np.asarray(kept[0].goal, np.float32),
            images={"top": [o.images["top"] for o in kept]},
            action_space=ACTION_SPACE,
            success=self._coverage[last] > SOLVED,
            source="a person in the studio",
            attributes={**attributes_of(self.task), "coverage": round(self._coverage[last], 4)},
        )

    def _is_resting(self) -> bool:
        position, velocity = self._env.agent.position, self._env.agent.velocity
        away = math.hypot(position[0] - self._target[0], position[1] - self._target[1])
        return away < REST_PX and math.hypot(*velocity) / FPS < REST_PX


def on_board(x: float, y: float) -> F64:
    """A pointer position, limited to the board: (2,)."""
    if not (math.isfinite(x) and math.isfinite(y)):
        raise InputError("a target is two finite numbers: give x and y")
    return np.clip([x, y], 0.0, BOARD_SIZE)


def towards(target: F64, pointer: F64) -> F64:
    """The next target (2,), at most at a robot's speed: no policy could follow a chunk that jumps."""
    way = pointer - target
    far = float(np.hypot(*way))
    return target + way * min(1.0, MAX_STEP_PX / far) if far > 0 else target


def attributes_of(task: Task) -> dict[str, Scalar]:
    """Attributes that collected demonstrations have, too."""
    return {
        "block": task.block,
        "goal_angle": task.angle,
        "noise": 0.0,
        "seed": task.seed,
        "speed": 1.0,
        "style": 0,
        "symmetry": task.symmetry,
    }


def checked_name(name: str) -> str:
    """The name without surrounding spaces; an invalid name is an error."""
    name = name.strip()
    if not name or len(name) > MAX_NAME:
        raise InputError(f"a demonstration needs a name of 1 to {MAX_NAME} characters")
    if not name.isprintable():
        raise InputError("the name has a character that cannot be shown: type another")
    if _PART.search(name):
        raise InputError(f"'{name}' ends like a part of a demonstration: choose another name")
    return name


def free_name(task: Task, taken: frozenset[str], kind: str = "") -> str:
    """An unused name for a demonstration of the task."""
    n = 1
    while PREFIX + (name := f"{task}{kind}" if n == 1 else f"{task}{kind or ', take'} {n}") in taken:
        n += 1
    return name

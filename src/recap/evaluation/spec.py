"""What is evaluated: agent, environment, goals or tasks, seeds and settings, as a run directory keeps it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

from recap.assembly import REPLAY
from recap.envs.pusht.blocks import block_named
from recap.envs.pusht.pushers import pusher_named
from recap.envs.pusht.tasks import ANGLES, EVALUATION_SEEDS, MAX_STEPS, SEEN_ANGLES, THRESHOLDS, angle_key
from recap.errors import InputError, one_of
from recap.evaluation.agents import Trial
from recap.evaluation.worlds import SUCCESS
from recap.plain import plain_value

ENVS = ("pusht", "dualarm")
MODES = ("oracle", "single", "aligned", "contact", "published")
OBJECTS = ("truth", "pixels")
REACTIONS = ("ignore", "hold", "stop")
MATCHINGS = ("retrieved", "random", "none")
WORDINGS = ("seen", "unseen")
_OF_PUSHT = (
    "pusher",
    "block",
    "angles",
    "max_steps",
    "thresholds",
    "hindsight",
    "pose_noise_px",
)
_OF_ARMS = ("tasks", "embodiment", "split", "wording", "pose_noise_mm")
_LATER = ("pose_noise_mm", "pose_noise_deg")  # with two arms: not written where there is none


def threshold_key(threshold: float) -> str:
    """How a threshold is written in results: 0.85."""
    return f"{threshold:g}"


@dataclass(frozen=True)
class EvalSpec:
    """What is evaluated; two runs of equal specs have equal results, however they are spread out.

    PushT has goal angles and thresholds of coverage, two arms have tasks and success; the settings of the
    other environment are not looked at and not written down.
    """

    agent: str
    settings_of: str | None = None  # a policy: replay retrieves and looks as it does, for an equal comparison
    env: str = "pusht"
    pusher: str = "disc"
    block: str = "tee"
    angles: tuple[float, ...] = ANGLES
    seeds: tuple[int, ...] = EVALUATION_SEEDS
    max_steps: int = MAX_STEPS  # of PushT; each task of two arms has its own
    thresholds: tuple[float, ...] = THRESHOLDS  # an episode runs until the last one is passed
    mode: str = "aligned"  # how agents that retrieve choose: oracle, single, aligned, contact or published
    pool: str | None = None  # what they retrieve from; None is the environment's standard pool
    n_candidates: int | None = None  # trajectories that stage 1 keeps; None as the mode has it
    objects: str = "truth"  # where poses come from: truth, or pixels (then no pose reaches the agent)
    min_confidence: float = 0.0  # below it the reaction is taken
    reaction: str = "hold"  # to low confidence, or to nothing retrieved: hold, stop or ignore
    pool_version: int | None = None  # the pool's when the run began
    n_action_steps: int | None = None  # of a chunk that are executed; None as the agent has it
    denoising_steps: int | None = None  # of a policy; None as it was shipped
    temperature: float | None = None
    sampler: str | None = None
    matching: str = "retrieved"  # or `random`, `none`: what the match is worth
    hindsight: bool | None = None  # parts of demonstrations are retrieved too; None as the agent has it
    residual: bool = True  # False: what is retrieved is acted out as it is
    half_at: float = 0.0  # distance of a match at which the residual counts half; 0: it counts whole
    device: str = "cpu"  # where a policy computes
    noise_seed: int = 0  # other than 0: the same starts with other noise in the policy
    mask: str | None = (
        None  # what a policy's action slot may not look at: `retrieved@3`, see policies.attention
    )
    pose_noise_px: float = 0.0  # standard deviation of what is added to the block's place, anew at each look
    pose_noise_deg: float = 0.0  # and to its angle; with two arms to each object's, about each axis
    tasks: tuple[str, ...] = ()  # of two arms, by key; none are all ten
    embodiment: str = "viperx"
    split: str = "clean"  # how the scenes look: clean or randomised
    wording: str = "seen"  # of the instructions: seen or unseen
    pose_noise_mm: float = 0.0  # as pose_noise_px, of the places of their objects

    def __post_init__(self) -> None:
        one_of("env", self.env, ENVS)
        one_of("mode", self.mode, MODES)
        one_of("objects", self.objects, OBJECTS)
        one_of("reaction", self.reaction, REACTIONS)
        one_of("matching", self.matching, MATCHINGS)
        if self.settings_of is not None and self.agent != REPLAY:
            raise InputError(f"--settings-of is for replay: '{self.agent}' has settings of its own")
        if self.n_candidates is not None and self.n_candidates < 1:
            raise InputError(f"candidates {self.n_candidates} keeps nothing: give 1 or more")
        if not 0 <= self.min_confidence < 1:
            raise InputError(
                f"min_confidence {self.min_confidence} is out of range: give 0 to 1, such as 0.05"
            )
        if not 0 <= self.half_at < math.inf:
            raise InputError(f"half_at {self.half_at} is no distance: give 0 or more, such as 15")
        for name in ("pose_noise_px", "pose_noise_mm", "pose_noise_deg"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} {getattr(self, name)} is no deviation: give 0 or more, such as 4")
        if (self.pose_noise_px or self.pose_noise_deg) and self.objects == "pixels":
            raise InputError("poses from pixels have their own noise: give --pose-noise with --objects truth")
        _check_distinct("seed", self.seeds)
        if min(self.seeds) < 0:
            raise InputError(f"seed {min(self.seeds)} is negative: give whole numbers from 0 up")
        if self.env == "pusht":
            self._check_pusht()
        else:
            self._check_arms()

    def _check_arms(self) -> None:
        from recap.envs.dualarm.tasks import SEEN, UNSEEN, task_named

        if self.objects == "pixels" or self.pose_noise_px:
            raise InputError("poses from pixels and noise in px are of pusht: leave them out for dualarm")
        if self.angles not in ((), ANGLES):
            raise InputError("goal angles are of pusht: give --task for dualarm, such as lift_pot")
        one_of("wording", self.wording, WORDINGS)
        # What is not said is as this environment has it.
        object.__setattr__(self, "tasks", self.tasks or (*SEEN, *UNSEEN))
        object.__setattr__(self, "angles", ())
        object.__setattr__(self, "thresholds", (SUCCESS,))
        _check_distinct("task", self.tasks)
        for task in self.tasks:
            task_named(task)

    def _check_pusht(self) -> None:
        if self.tasks:
            raise InputError(f"task {self.tasks[0]} is of dualarm: give --env dualarm, or leave --task out")
        if self.pose_noise_mm:
            raise InputError("pose noise in mm is of dualarm: give pose_noise_px for pusht")
        pusher_named(self.pusher)
        block_named(self.block)
        for angle in self.angles:
            if not math.isfinite(angle):
                raise InputError(f"goal angle {angle} is not a number: give degrees, such as -30")
        _check_distinct("angle", [angle_key(angle) for angle in self.angles])
        if self.max_steps < 1:
            raise InputError(f"max_steps {self.max_steps} leaves no time to act: give 1 or more")
        rising = all(a < b for a, b in zip(self.thresholds, self.thresholds[1:], strict=False))
        if not self.thresholds or not rising or not all(0 < t < 1 for t in self.thresholds):
            raise InputError(f"thresholds {self.thresholds} are not rising fractions: give 0.85, 0.95")

    def trials(self) -> list[Trial]:
        """Every episode, all seeds of one angle or task before the next."""
        goals = [(angle_key(angle), angle) for angle in self.angles] or [(task, 0.0) for task in self.tasks]
        return [Trial(task, angle, seed) for task, angle in goals for seed in self.seeds]

    @property
    def task_keys(self) -> tuple[str, ...]:
        """The tasks as results name them, in the order in which they are told: angles rise."""
        return self.tasks if self.env == "dualarm" else tuple(angle_key(a) for a in sorted(self.angles))

    @property
    def seen_keys(self) -> frozenset[str]:
        """The tasks that policies are trained on."""
        if self.env == "pusht":
            return frozenset(angle_key(angle) for angle in SEEN_ANGLES)
        from recap.envs.dualarm.tasks import SEEN

        return frozenset(SEEN)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file, without the settings of the other environment."""
        unused = [name for name in _LATER if not getattr(self, name)]
        other = _OF_ARMS if self.env == "pusht" else (*_OF_PUSHT, *unused)
        values = asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if k not in other}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> EvalSpec:
        """The inverse of `to_json`; unknown or missing keys and values of another kind are refused."""
        known = {field.name for field in fields(cls)}
        for key in sorted(set(values) - known):
            raise InputError(f"the config has an unknown key '{key}': it is of a newer version")
        if "agent" not in values:
            raise InputError("the config lacks key 'agent'")
        usual = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(cls(agent="")).items()}
        values = {**usual, **values}  # a run from before a setting was there
        return cls(**{name: _read(name, kind, values[name]) for name, kind in get_type_hints(cls).items()})


def _read(name: str, kind: Any, value: Any) -> Any:
    """A value of a JSON file as a field of that type has it."""
    try:
        return plain_value(kind, value)
    except TypeError as wanted:
        raise InputError(
            f"the config's {name} is {value!r}, not {wanted}: write it so, or leave it out"
        ) from None


def _check_distinct(what: str, values: Iterable[str | int]) -> None:
    seen: set[str | int] = set()
    for value in values:
        if value in seen:
            raise InputError(f"{what} {value} is given twice: give each {what} once")
        seen.add(value)
    if not seen:
        raise InputError(f"no {what}s to evaluate: give at least one {what}")

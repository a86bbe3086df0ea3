"""The types that are passed between the folders of the library, with the shapes of their arrays."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recap_client.messages import CORRECTION_FROM

QUARANTINE = "quarantine"  # attribute: true if a demonstration must not be retrieved

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
U8: TypeAlias = NDArray[np.uint8]

Scalar: TypeAlias = str | int | float | bool
Outcome: TypeAlias = Literal["success", "failure", "error"]


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation at one control step."""

    proprio: F32  # (p,)
    task: str  # the instruction
    time_s: float  # since the start of the episode
    images: Mapping[str, U8] = field(default_factory=dict)  # camera -> (h, w, 3)
    objects: Mapping[str, F64] = field(default_factory=dict)  # name -> pose; missing if not seen
    goal: F64 | None = None  # goal pose, if the task has one

    def seen_by(self, cameras: Sequence[str]) -> Observation:
        """The observation with the images of only these cameras."""
        return replace(self, images={name: self.images[name] for name in cameras if name in self.images})


@dataclass(frozen=True, slots=True)
class Span:
    """Frames begin to end - 1 of a demonstration."""

    episode_id: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """One demonstration; images are sequences of frames, which may be decoded lazily."""

    id: str
    scene_id: str  # equal for demonstrations that start from the same scene
    task: str
    embodiment: str
    fps: float
    timestamps: F64  # (t,) seconds, strictly increasing
    proprio: F32  # (t, p)
    actions: F32  # (t, a)
    objects: Mapping[str, F32] = field(default_factory=dict)  # name -> (t, d)
    goal: F32 | None = None  # (g,)
    images: Mapping[str, Sequence[U8]] = field(default_factory=dict)  # camera -> t frames (h, w, 3)
    action_space: str = ""  # meaning and unit of an action
    success: bool = True
    source: str = ""  # program or dataset that it comes from
    attributes: Mapping[str, Scalar] = field(default_factory=dict)  # further values to keep
    cut_from: Span | None = None  # frames that a sub-trajectory was cut from

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def symmetry(self) -> int:
        """The order of the rotational symmetry of the task's object."""
        return int(self.attributes.get("symmetry", 1))

    @property
    def symmetry_index(self) -> int:
        """Always 0: a demonstration is described by the first of its symmetric poses."""
        return 0

    @property
    def first_match(self) -> int:
        """The first frame that may be retrieved: 0, or in a correction where the person took over."""
        since = self.attributes.get(CORRECTION_FROM)
        if not isinstance(since, int | float):
            return 0
        return min(int(np.searchsorted(self.timestamps, since - 1e-6)), len(self) - 1)

    @property
    def context(self) -> TaskContext:
        """The embodiment, symmetry and attributes."""
        return TaskContext(self.embodiment, self.symmetry, self.attributes)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What observations do not show: the embodiment, the object's symmetry, further attributes."""

    embodiment: str = ""
    symmetry: int = 1  # order of the rotational symmetry of the task's object
    attributes: Mapping[str, Scalar] = field(default_factory=dict)  # like those of an `Episode`


NO_CONTEXT = TaskContext()


@dataclass(frozen=True, slots=True)
class Moment:
    """The current observation and those before it; the last frame is the present."""

    task: str
    timestamps: F64  # (t,)
    proprio: F32  # (t, p)
    objects: Mapping[str, F32] = field(default_factory=dict)  # name -> (t, d), if seen in every frame
    goal: F32 | None = None  # (g,)
    images: Mapping[str, Sequence[U8]] = field(default_factory=dict)
    context: TaskContext = NO_CONTEXT
    symmetry_index: int = 0

    @classmethod
    def of(
        cls, observations: Sequence[Observation], context: TaskContext = NO_CONTEXT, symmetry_index: int = 0
    ) -> Moment:
        """Stack consecutive observations, oldest first."""
        now = observations[-1]
        seen = [name for name in now.objects if all(name in o.objects for o in observations)]
        cameras = [name for name in now.images if all(name in o.images for o in observations)]
        return cls(
            now.task,
            np.array([o.time_s for o in observations]),
            np.array([o.proprio for o in observations], np.float32),
            {name: np.array([o.objects[name] for o in observations], np.float32) for name in seen},
            None if now.goal is None else np.asarray(now.goal, np.float32),
            {name: [o.images[name] for o in observations] for name in cameras},
            context,
            symmetry_index,
        )

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def id(self) -> str:
        """A fixed name, since the frames belong to no demonstration."""
        return "query"

    @property
    def embodiment(self) -> str:
        return self.context.embodiment

    @property
    def symmetry(self) -> int:
        """The order of the rotational symmetry of the task's object."""
        return self.context.symmetry

    @property
    def attributes(self) -> Mapping[str, Scalar]:
        return self.context.attributes

    @property
    def actions(self) -> F32:
        """Empty, since no actions are known: (t, 0)."""
        return np.zeros((len(self), 0), np.float32)


# Consecutive frames, as retrieval reads them: a demonstration, or the current observation with its history.
Frames: TypeAlias = Episode | Moment


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """The result of one evaluation episode; an error does not count as a failure of the agent."""

    task: str  # the task's key, such as "lift_pot"
    seed: int
    outcome: Outcome
    steps: int
    metrics: Mapping[str, float]  # name -> the highest value in the episode
    first_step: Mapping[str, int | None]  # threshold -> first step that passes it, or None
    error: str | None = None  # the traceback, if the outcome is "error"
    held: int = 0  # steps in which a progress gate held the chunk


@dataclass(frozen=True, slots=True)
class FrameRef:
    """A frame of a demonstration in a pool."""

    episode_id: str
    t: int


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The descriptors of every frame of some episodes, by term, concatenated over episodes."""

    fingerprint: str  # of the describer
    episode_ids: tuple[str, ...]
    starts: NDArray[np.int64]  # (e + 1,): episode i has rows starts[i]:starts[i + 1]
    terms: Mapping[str, F32]  # term -> (n, d)


@dataclass(frozen=True, slots=True)
class Query:
    """A query: recent observations, the first one of the episode, and what to exclude or penalise."""

    window: tuple[Observation, ...]  # oldest first; the last one is now
    first: Observation  # stage 1 compares it, again when the pool changes
    context: TaskContext = NO_CONTEXT
    exclude: frozenset[str] = frozenset()  # ids of episodes, or of scenes
    avoid: tuple[tuple[FrameRef, float], ...] = ()  # used matches, and the penalty near each
    follow: FrameRef | None = None  # frame at which the last chunk ended


@dataclass(frozen=True, slots=True)
class Match:
    """A retrieved frame of the pool."""

    ref: FrameRef
    distance: float  # root of the summed costs, plus `avoid`, minus `follow`, at least 0
    costs: Mapping[str, float]  # term -> its share of the summed cost
    symmetry_index: int = 0  # symmetric pose of the query's object that matched


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The result of a query: matches, nearest first; empty if nothing is in range."""

    matches: tuple[Match, ...]
    pool_version: int
    candidates: tuple[str, ...]  # episodes that stage 1 selected, nearest first
    confidence: float  # p-value of the distance within the pool; 0: no match, nan: pool too small
    timings_ms: Mapping[str, float]
    path_costs: tuple[float, ...] = ()  # of the candidates, if the path has a weight
    off_course: float | None = None  # distance to the frame at which the last chunk should have ended
    kept: Any = field(default=None, compare=False, repr=False)  # internal state of the retriever


@dataclass(frozen=True, slots=True)
class Conditioning:
    """The policy's input: the current observation and the matches, each in its own canonical frame.

    If nothing was retrieved, `valid` is all false. If an object or goal is not known, its width d is 0.
    """

    frame: F64  # (3,) or (7,) the query's frame in the world; identity if not aligned
    now: F32  # (p,) the query's proprioception
    object_now: F64  # (d,) the query's object
    goal_now: F64  # (d,)
    actions: F32  # (k, H, a) of each match
    proprio: F32  # (k, H, p)
    objects: F64  # (k, H, d)
    goals: F64  # (k, d)
    frames: F64  # (k, 3) or (k, 7) frames of the matches in the world
    valid: NDArray[np.bool_]  # (k, H) false past the end of a demonstration; the last row is repeated
    refs: tuple[FrameRef, ...]  # (k) first frames of the chunks
    last_refs: tuple[FrameRef, ...]  # (k) last valid frames of the chunks
    latents: F32 | None = None  # (f, c, h, w) of the first match, if the policy uses images

    @property
    def is_empty(self) -> bool:
        return not self.refs


@dataclass(frozen=True, slots=True)
class ActionChunk:
    """A predicted action chunk, in the canonical frame."""

    actions: F32  # (H, a)
    residual: F32  # (H, a) difference to the retrieved chunk
    predicted_latents: F32 | None = None  # (cameras, c, h, w) of the frame at the chunk's end
    predicted_state: F32 | None = None  # (p [+ 4],) then: proprioception, object x, y, cos, sin


@dataclass(frozen=True)
class Requires:
    """The objects, goal and cameras that must be known."""

    objects: tuple[str, ...] = ()  # by name
    goal: bool = False
    cameras: tuple[str, ...] = ()

    def __or__(self, other: Requires) -> Requires:
        return Requires(
            tuple(dict.fromkeys((*self.objects, *other.objects))),
            self.goal or other.goal,
            tuple(dict.fromkeys((*self.cameras, *other.cameras))),
        )

    def missing(self, objects: Container[str], goal: object) -> str | None:
        """The first missing object or goal, for an error message; None if all are known."""
        lacking = [f"object '{name}'" for name in self.objects if name not in objects]
        lacking += ["goal"] if self.goal and goal is None else []
        return lacking[0] if lacking else None

"""What flows through the library; shapes are written here and nowhere else."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recap_client.messages import CORRECTION_FROM

QUARANTINE = "quarantine"  # attribute: true of a demonstration that is never retrieved

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
U8: TypeAlias = NDArray[np.uint8]

Scalar: TypeAlias = str | int | float | bool
Outcome: TypeAlias = Literal["success", "failure", "error"]


@dataclass(frozen=True, slots=True)
class Observation:
    """What an agent sees at one control step."""

    proprio: F32  # (p,)
    task: str  # the instruction, in words
    time_s: float  # since the start of the episode
    images: Mapping[str, U8] = field(default_factory=dict)  # camera -> (h, w, 3)
    objects: Mapping[str, F64] = field(default_factory=dict)  # name -> pose; absent when not seen
    goal: F64 | None = None  # pose the task asks for, where it has one

    def seen_by(self, cameras: Sequence[str]) -> Observation:
        """With the images of these cameras alone."""
        return replace(self, images={name: self.images[name] for name in cameras if name in self.images})


@dataclass(frozen=True, slots=True)
class Span:
    """Frames begin to end (left out) of a demonstration."""

    episode_id: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """One demonstration; images are any sequence of frames, so that they may be decoded lazily."""

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
    action_space: str = ""  # what an action means, with its unit
    success: bool = True
    source: str = ""  # what made it
    attributes: Mapping[str, Scalar] = field(default_factory=dict)  # whatever else should travel along
    cut_from: Span | None = None  # of a sub-trajectory: where it comes from

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def symmetry(self) -> int:
        """How many turns of the task's object look alike."""
        return int(self.attributes.get("symmetry", 1))

    @property
    def symmetry_index(self) -> int:
        """A demonstration is described by the first of its equal poses."""
        return 0

    @property
    def first_match(self) -> int:
        """The first frame that may be retrieved: 0, or of a correction where the person took over."""
        since = self.attributes.get(CORRECTION_FROM)
        if not isinstance(since, int | float):
            return 0
        return min(int(np.searchsorted(self.timestamps, since - 1e-6)), len(self) - 1)

    @property
    def context(self) -> TaskContext:
        """What its observations do not show."""
        return TaskContext(self.embodiment, self.symmetry, self.attributes)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What an observation does not show: which embodiment acts, and what is known of the task's object."""

    embodiment: str = ""
    symmetry: int = 1  # how many turns of the task's object look alike
    attributes: Mapping[str, Scalar] = field(default_factory=dict)  # as those of an `Episode`


NO_CONTEXT = TaskContext()


@dataclass(frozen=True, slots=True)
class Moment:
    """What is observed now, with the frames that led to it: the last one is now."""

    task: str
    timestamps: F64  # (t,)
    proprio: F32  # (t, p)
    objects: Mapping[str, F32] = field(default_factory=dict)  # name -> (t, d), those seen in every frame
    goal: F32 | None = None  # (g,)
    images: Mapping[str, Sequence[U8]] = field(default_factory=dict)
    context: TaskContext = NO_CONTEXT
    symmetry_index: int = 0

    @classmethod
    def of(
        cls, observations: Sequence[Observation], context: TaskContext = NO_CONTEXT, symmetry_index: int = 0
    ) -> Moment:
        """Observations in a row, oldest first."""
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
        """It is of no demonstration."""
        return "query"

    @property
    def embodiment(self) -> str:
        return self.context.embodiment

    @property
    def symmetry(self) -> int:
        """How many turns of the task's object look alike."""
        return self.context.symmetry

    @property
    def attributes(self) -> Mapping[str, Scalar]:
        return self.context.attributes

    @property
    def actions(self) -> F32:
        """None are known: (t, 0)."""
        return np.zeros((len(self), 0), np.float32)


# Frames in a row, as retrieval reads them: a demonstration, or what is observed now with what led to it.
Frames: TypeAlias = Episode | Moment


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """How one evaluation episode ended; an error is not a failure."""

    task: str  # the task's key, such as "lift_pot"
    seed: int
    outcome: Outcome
    steps: int
    metrics: Mapping[str, float]  # name -> the highest value in the episode
    first_step: Mapping[str, int | None]  # threshold -> first step past it
    error: str | None = None  # the traceback, when outcome is "error"
    held: int = 0  # steps in which a progress gate held the chunk


@dataclass(frozen=True, slots=True)
class FrameRef:
    """The only pointer into a pool."""

    episode_id: str
    t: int


@dataclass(frozen=True, slots=True)
class Descriptors:
    """How every frame of some episodes is described, term by term, laid end to end."""

    fingerprint: str  # of the describer that made them
    episode_ids: tuple[str, ...]
    starts: NDArray[np.int64]  # (e + 1,) episode i has rows starts[i]:starts[i + 1]
    terms: Mapping[str, F32]  # term -> (n, d)


@dataclass(frozen=True, slots=True)
class Query:
    """What retrieval is asked: the moment, how the episode began, and what must not be returned."""

    window: tuple[Observation, ...]  # oldest first; the last one is now
    first: Observation  # stage 1 is run against it, again when the pool changes
    context: TaskContext = NO_CONTEXT
    exclude: frozenset[str] = frozenset()  # ids of episodes, or of scenes
    avoid: tuple[tuple[FrameRef, float], ...] = ()  # matches that led nowhere, and what to add near them
    follow: FrameRef | None = None  # to where the last chunk led


@dataclass(frozen=True, slots=True)
class Match:
    """A moment of the pool that fits."""

    ref: FrameRef
    distance: float  # square root of the summed costs, more by `avoid`, less by `follow`, not below 0
    costs: Mapping[str, float]  # term -> its share of the summed cost
    symmetry_index: int = 0  # by which of its equal poses the query's object was matched


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The matches, nearest first; none when nothing is in range, which is an answer."""

    matches: tuple[Match, ...]
    pool_version: int
    candidates: tuple[str, ...]  # episodes that stage 1 kept, nearest first
    confidence: float  # in (0, 1]: how usual it is within the pool; 0 without a match, nan if it is too small
    timings_ms: Mapping[str, float]
    path_costs: tuple[float, ...] = ()  # of the candidates, where the path is weighed
    off_course: float | None = None  # how far from here the moment is to which the last chunk was to lead
    kept: Any = field(default=None, compare=False, repr=False)  # the candidates as the retriever knows them


@dataclass(frozen=True, slots=True)
class Conditioning:
    """What a policy is given: the moment and the matches, each in its own canonical frame.

    Nothing retrieved: `valid` is all false. Where an object or goal is not known its width d is 0.
    """

    frame: F64  # (3,) or (7,) the query's frame in the world: identity when not aligned
    now: F32  # (p,) the query's proprioception
    object_now: F64  # (d,) the query's object
    goal_now: F64  # (d,)
    actions: F32  # (k, H, a) of each match
    proprio: F32  # (k, H, p)
    objects: F64  # (k, H, d)
    goals: F64  # (k, d)
    frames: F64  # (k, 3) or (k, 7) their frames in the world
    valid: NDArray[np.bool_]  # (k, H) false past the end of a demonstration, where the last row is held
    refs: tuple[FrameRef, ...]  # (k) first frames
    last_refs: tuple[FrameRef, ...]  # (k) last valid frames
    latents: F32 | None = None  # (f, c, h, w) of the first match's shown frames, where a policy looks at them

    @property
    def is_empty(self) -> bool:
        return not self.refs


@dataclass(frozen=True, slots=True)
class ActionChunk:
    """What a policy predicts, in the canonical frame."""

    actions: F32  # (H, a)
    residual: F32  # (H, a) over the retrieved chunk; of absolute actions, the difference to it
    predicted_latents: F32 | None = None  # (cameras, c, h, w) of the frame at the chunk's end
    predicted_state: F32 | None = None  # (p [+ 4],) proprioception and object pose then: x, y, cos, sin


@dataclass(frozen=True)
class Requires:
    """What must be known of a scene."""

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
        """What is not there, in words."""
        lacking = [f"object '{name}'" for name in self.objects if name not in objects]
        lacking += ["goal"] if self.goal and goal is None else []
        return lacking[0] if lacking else None

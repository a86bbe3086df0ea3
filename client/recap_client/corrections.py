"""What a person shows while a policy drives, cut out of the run as demonstrations."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recap_client.limits import F64
from recap_client.messages import CORRECTION_FROM, GOAL, IMAGES, OBJECTS, PROMPT, STATE

N_CONTEXT = 7  # frames before a take-over that are kept, so that its first frame has a history of eight
MIN_FRAMES = 8  # fewer show nothing


@dataclass(frozen=True)
class _Frame:
    time_s: float
    message: Mapping[str, Any]
    action: F64

    @property
    def n_bytes(self) -> int:
        return sum(value.nbytes for value in self.message.values() if isinstance(value, np.ndarray))


@dataclass
class CorrectionRecorder:
    """Watches a run and keeps what the person does in it.

    A correction is the first frame of its run, by which stage 1 of retrieval finds it, a few frames before
    the take-over, which are its history, and every frame that the person drove. Only these are retrieved.

    Args:
        name: of the run; corrections are called NAME/1, NAME/2, …
        rate_hz: of the frames.
        embodiment: who acts.
        task: the instruction, where messages have none.
        attributes: that each correction gets.
        cameras: key of a message -> name of the camera, for keys that do not say it.
    """

    name: str
    rate_hz: float
    embodiment: str
    task: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    cameras: Mapping[str, str] = field(default_factory=dict)
    n_finished: int = 0
    _n_seen: int = 0
    _first: _Frame | None = None
    _before: deque[_Frame] = field(default_factory=lambda: deque(maxlen=N_CONTEXT))
    _shown: list[_Frame] = field(default_factory=list)

    @property
    def n_frames(self) -> int:
        """That the person drove since the last correction was finished."""
        return len(self._shown)

    @property
    def n_bytes(self) -> int:
        """That a correction of what is kept now would have, about."""
        return sum(frame.n_bytes for frame in self._shown[:1]) * (len(self._shown) + N_CONTEXT + 1)

    def add(self, message: Mapping[str, Any], action: F64, by_person: bool) -> None:
        """One period: what was seen, and what was then sent."""
        kept = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in message.items()}  # may be reused
        frame = _Frame(self._n_seen / self.rate_hz, kept, np.array(action, np.float64))
        self._n_seen += 1
        self._first = self._first or frame
        (self._shown if by_person else self._before).append(frame)

    def finish(self, success: bool = True) -> dict[str, Any] | None:
        """The correction, as an upload has it; None where too little was shown."""
        shown, self._shown = self._shown, []
        context = list(self._before)
        self._before.extend(shown)
        if len(shown) < MIN_FRAMES or self._first is None:
            return None
        if self._first.time_s < (context or shown)[0].time_s:
            context.insert(0, self._first)
        frames = [*context, *shown]
        messages, first = [frame.message for frame in frames], frames[0].message
        common = [key for key in first if all(key in message for message in messages)]
        images = {key: self.cameras.get(key, key.removeprefix(IMAGES)) for key in common}
        images = {key: name for key, name in images.items() if key in self.cameras or key.startswith(IMAGES)}
        self.n_finished += 1
        episode = {
            "id": f"{self.name}/{self.n_finished}",
            "scene_id": self.name,
            "task": first.get(PROMPT) or self.task,
            "embodiment": self.embodiment,
            "source": "a person's correction",
            "fps": self.rate_hz,
            "timestamps": np.array([frame.time_s for frame in frames]),
            "proprio": np.array([message[STATE] for message in messages], np.float32),
            "actions": np.array([frame.action for frame in frames], np.float32),
            "objects": {
                key.removeprefix(OBJECTS): np.array([message[key] for message in messages], np.float32)
                for key in common
                if key.startswith(OBJECTS)
            },
            "images": {name: np.array([m[key] for m in messages]) for key, name in images.items()},
            "success": success,
            "attributes": {**self.attributes, CORRECTION_FROM: shown[0].time_s},
        }
        return episode if GOAL not in first else {**episode, "goal": np.asarray(first[GOAL], np.float32)}

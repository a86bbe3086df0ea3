"""Records what a person demonstrates during a run, as corrections for the pool."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recap_client.errors import InputError
from recap_client.limits import F64
from recap_client.messages import CORRECTION_FROM, GOAL, IMAGES, OBJECTS, PROMPT, STATE, TIME_OFFSET, WRIST

N_CONTEXT = 7  # frames kept before a take-over, so that its first frame has a history of eight
MIN_FRAMES = 8  # minimum length of a correction
MAX_BYTES = 128 * 2**20  # of one correction: half of a server's upload limit


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
    """Records a run and cuts out the person's corrections.

    A correction holds the first frame of its run, which stage 1 of retrieval compares, a few frames before
    the take-over as history, and every frame that the person drove. Only the person's frames are retrieved.

    Args:
        name: name of the run; corrections are called NAME/1, NAME/2, …
        rate_hz: frame rate.
        embodiment: embodiment of the robot.
        task: the instruction, if messages contain none.
        attributes: attributes of each correction.
        cameras: message key -> camera, for keys without the name of the camera.
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
        """Frames that the person drove since the last correction was finished."""
        return len(self._shown)

    @property
    def n_bytes(self) -> int:
        """Approximate size of the current correction."""
        return sum(frame.n_bytes for frame in self._shown[:1]) * (len(self._shown) + N_CONTEXT + 1)

    def add(self, message: Mapping[str, Any], action: F64, by_person: bool) -> None:
        """Add one control period: the observation, and the action that was sent."""
        kept = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in message.items()}  # may be reused
        frame = _Frame(self._n_seen / self.rate_hz, kept, np.array(action, np.float64))
        self._n_seen += 1
        self._first = self._first or frame
        (self._shown if by_person else self._before).append(frame)

    def finish(self, success: bool = True, at_least: int = MIN_FRAMES) -> dict[str, Any] | None:
        """Finish the correction, in the form of an upload; None if it is shorter than `at_least`."""
        shown, self._shown = self._shown, []
        context = list(self._before)
        self._before.extend(shown)
        if len(shown) < at_least or self._first is None:
            return None
        if self._first.time_s < (context or shown)[0].time_s:
            context.insert(0, self._first)
        frames, begun_s = [*context, *shown], len(context) / self.rate_hz
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
            "timestamps": np.arange(len(frames)) / self.rate_hz,
            "proprio": np.array([message[STATE] for message in messages], np.float32),
            "actions": np.array([frame.action for frame in frames], np.float32),
            "objects": {
                key.removeprefix(OBJECTS): np.array([message[key] for message in messages], np.float32)
                for key in common
                if key.startswith(OBJECTS)
            },
            "images": {name: np.array([m[key] for m in messages]) for key, name in images.items()},
            "success": success,
            "attributes": {
                **self.attributes,
                CORRECTION_FROM: begun_s,
                TIME_OFFSET: shown[0].time_s - begun_s,
            },
        }
        return episode if GOAL not in first else {**episode, "goal": np.asarray(first[GOAL], np.float32)}


class Person:
    """The person in a control loop: their actions, and the upload of their corrections.

    Args:
        takeover: the robot's method; returns an action while the person drives, else None.
        recorder: records the corrections.
        keep: uploads a correction; called in a separate thread.
        patience_s: how long the policy waits for the upload of a correction before it continues.
    """

    def __init__(
        self,
        takeover: Callable[[], Any],
        recorder: CorrectionRecorder,
        keep: Callable[[Mapping[str, Any]], Any],
        patience_s: float = 10.0,
    ) -> None:
        self._takeover, self.recorder, self._keep, self._patience_s = takeover, recorder, keep, patience_s
        self._thread = ThreadPoolExecutor(1, "recap-corrections")
        self._keeping: list[Future[Any]] = []
        self._since = 0.0
        self._at_least = MIN_FRAMES
        self.is_driving = False
        self.n_kept = 0
        self.problem = ""  # why the last failed upload failed

    def action(self) -> F64 | None:
        """The person's action, checked to be finite; None while the policy drives."""
        wanted = self._takeover()
        self.is_driving = wanted is not None
        if wanted is None:
            return None
        action = np.array(wanted, np.float64)
        if action.ndim != 1 or not np.isfinite(action).all():
            raise InputError(f"takeover() gave {action.shape}, or not finite: give an action, or None")
        return action

    def record(self, message: Mapping[str, Any], action: F64, by_person: bool) -> None:
        """Record one control period; uploads a correction in parts if it becomes too large."""
        self.recorder.add(message, action, by_person)
        if self.recorder.n_bytes > MAX_BYTES and self.recorder.n_frames >= MIN_FRAMES:
            self.hand_back()
            self._at_least = 1  # the rest may be short

    def hand_back(self) -> None:
        """Finish the current correction and upload it."""
        correction = self.recorder.finish(at_least=self._at_least)
        self._at_least = MIN_FRAMES
        if correction is not None:
            self._since = time.monotonic()
            self._keeping.append(self._thread.submit(self._keep, correction))

    def settle(self) -> bool:
        """Update the results of uploads; True if one is still running within `patience_s`."""
        for done in [future for future in self._keeping if future.done()]:
            self._keeping.remove(done)
            error = done.exception()
            self.n_kept += error is None
            self.problem = self.problem if error is None else " ".join(str(error).split())
        return bool(self._keeping) and time.monotonic() - self._since < self._patience_s

    def close(self) -> None:
        """Upload the last correction, and wait for uploads up to `patience_s`."""
        self.hand_back()
        wait(self._keeping, self._patience_s)
        self.settle()
        if self._keeping:
            self.problem = "the server did not answer in time"
        self._thread.shutdown(wait=False, cancel_futures=True)


def person_of(
    robot: Any, said: Mapping[str, Any], rate_hz: float, keep: Callable[[Mapping[str, Any]], Any], **more: Any
) -> Person | None:
    """The person who may take over a robot, or None if it has no `takeover`."""
    takeover = getattr(robot, "takeover", None)
    if not callable(takeover):
        return None
    cameras = {str(key): str(camera) for camera, key in said.get("image_keys", {}).items()}
    wrists = [c for c in cameras.values() if "wrist" in c] or list(cameras.values())[1:2]
    embodiment = str(getattr(robot, "embodiment", "") or said.get("robot", {}).get("name", "robot"))
    recorder = CorrectionRecorder(
        f"corrections/{embodiment}/{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}",
        rate_hz,
        embodiment,
        str(said.get("default_prompt", "")),
        dict(getattr(robot, "attributes", {})),
        {**cameras, **({WRIST: wrists[0]} if wrists else {})},
    )
    return Person(takeover, recorder, keep, **more)

"""MediaPipe's hand landmarker: finds up to two hands in a film, on a CPU.

Its newer wheels contain no models, and this version requires numpy < 2 without need. So it is installed
without its dependencies. The graph is run directly: the package's Python API needs an old protobuf.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.types import F64, U8
from recap_hands.landmarks import SIDES, Hand, Landmarks
from recap_hands.tool import N_LANDMARKS

Model: TypeAlias = Literal["full", "lite"]
INSTALL = "pip install 'recap-robot[hands]' && pip install --no-deps mediapipe==0.10.21"
GRAPH = "modules/hand_landmark/hand_landmark_tracking_cpu.binarypb"
STREAMS = ("multi_hand_landmarks", "multi_hand_world_landmarks", "multi_handedness")
LOOK_EVERY_S = 0.5  # for a second hand, if only one is requested
_STEP_US = 33_333  # timestamps only have to increase


@dataclass(frozen=True)
class Found:
    """One hand in one frame."""

    side: str
    confidence: float
    pixels: F64  # (21, 2)
    shape: F64  # (21, 3) m


class Landmarker:
    """Finds hands in frames, near their position in the previous frame.

    Args:
        n_hands: how many to find; once they are found, frames are not searched completely.
        follow: whether frames are consecutive.
    """

    def __init__(self, n_hands: int, model: Model = "full", follow: bool = True) -> None:
        try:
            with _silence():
                import mediapipe
                from mediapipe.python import packet_creator, packet_getter
                from mediapipe.python._framework_bindings import calculator_graph, image_frame, resource_util
        except ImportError as error:
            raise InputError(
                f"MediaPipe, which finds hands, is not installed ({error.name} is missing): make hands, or "
                f"{INSTALL}; or give --landmarks FILE.npz",
                code="hands.mediapipe",
            ) from None
        root = Path(mediapipe.__file__).parent
        resource_util.set_resource_dir(str(root.parent))
        self._create, self._get, self._format = packet_creator, packet_getter, image_frame.ImageFormat.SRGB
        self._graph = calculator_graph.CalculatorGraph(binary_graph_path=str(root / GRAPH))
        self._out: dict[str, Any] = {}
        for name in STREAMS:
            self._graph.observe_output_stream(name, self._out.__setitem__, True)
        self._clock = 0
        options = {
            "model_complexity": packet_creator.create_int(int(model == "full")),
            "num_hands": packet_creator.create_int(n_hands),
            "use_prev_landmarks": packet_creator.create_bool(follow),
        }
        self._has_found = False
        with _silence():
            self._graph.start_run(options)
            self._graph.wait_until_idle()  # it prints messages when it starts

    def __call__(self, image: U8) -> list[Found]:
        """The hands of an RGB image."""
        self._clock += _STEP_US
        packet = self._create.create_image_frame(data=image, image_format=self._format)
        with nullcontext() if self._has_found else _silence():  # each stage prints when it first runs
            self._graph.add_packet_to_input_stream("image", packet.at(self._clock))
            self._graph.wait_until_idle()
        if self._out[STREAMS[0]].is_empty():
            return []
        self._has_found = True
        seen, shapes, names = (self._get.get_proto_list(self._out[name]) for name in STREAMS)
        height, width = image.shape[:2]
        found = []
        for marks, shape, named in zip(seen, shapes, names, strict=True):
            label = named.classification[0]
            xy = np.array([(mark.x * width, mark.y * height) for mark in marks.landmark]) - 0.5
            # MediaPipe assumes a mirrored image.
            side = "right" if label.label == "Left" else "left"
            found.append(Found(side, float(label.score), xy, _xyz(shape.landmark)))
        return found

    def close(self) -> None:
        self._graph.close_all_packet_sources()
        self._graph.wait_until_done()


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress stderr, which the libraries write to directly; exceptions are not affected."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _xyz(marks: Any) -> F64:
    return np.array([(mark.x, mark.y, mark.z) for mark in marks])


def find_hands(
    frames: Iterator[tuple[float, U8]],
    n_hands: int,
    model: Model = "full",
    progress: Callable[[int], None] = lambda n: None,
    name: str = "the film",
) -> Landmarks:
    """Find the hands in a film; if one is requested, check for a second one from time to time."""
    landmarker = Landmarker(n_hands, model)
    glance = Landmarker(2, "lite", follow=False) if n_hands == 1 else None
    begun, looked, n_second = time.perf_counter(), 0, 0
    times: list[float] = []
    found: list[list[Found]] = []
    size = (1, 1)
    for now, image in frames:
        if glance is not None and now >= looked * LOOK_EVERY_S:
            looked += 1
            n_second += len(glance(image)) > 1
        size = (image.shape[0], image.shape[1])
        times.append(now)
        found.append(landmarker(image))
        progress(len(times))
    seconds = time.perf_counter() - begun
    landmarker.close()
    if glance is not None:
        glance.close()
    if n_second > max(1, 0.2 * looked):
        raise InputError(
            f"{name}: two hands are seen, in {n_second} of {looked} frames looked at: give --hands left, "
            "right or both",
            code="hands.two",
        )
    if not any(found):
        raise InputError(
            f"{name}: no hand is seen: film it closer, whole and in better light", code="hands.none"
        )
    hands = {side: _hand(side, found) for side in SIDES}
    return Landmarks(np.array(times), size, hands, seconds=seconds)


def _hand(side: str, found: list[list[Found]]) -> Hand:
    """One side's hand in every frame; the most confident one if two have the same name."""
    n = len(found)
    pixels: NDArray[Any] = np.full((n, N_LANDMARKS, 2), np.nan)
    shape, confidence = np.full((n, N_LANDMARKS, 3), np.nan), np.full(n, np.nan)
    for number, hands in enumerate(found):
        for hand in sorted((h for h in hands if h.side == side), key=lambda h: h.confidence):
            pixels[number], shape[number], confidence[number] = hand.pixels, hand.shape, hand.confidence
    return Hand(pixels, shape, None, confidence)

"""Videos of a demonstration at a fixed rate: the film, and the film with landmarks, tool and gaps drawn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.pictures import resize_image
from recap.types import F64, U8
from recap.video import write_video
from recap_hands.camera import Camera
from recap_hands.film import film_frames
from recap_hands.lift import Lifted

KEPT_SIDE, SHOWN_SIDE = 640, 960  # px of the longer side
TRAIL_S = 2.0
AXIS_M = 0.05
_COLOURS = ((255, 160, 40), (60, 170, 255))
_AXES = ((230, 60, 60), (60, 200, 90), (70, 110, 255))


def film_at(film: Path, lifted: Lifted, out: Path) -> None:
    """Write the film at the demonstration's times and the robot's speed."""
    frames = (image for _, image in _on_clock(film, lifted.times, KEPT_SIDE))
    write_video(out, frames, lifted.fps / lifted.speed, crf=23)


def draw_preview(film: Path, lifted: Lifted, camera: Camera, out: Path) -> None:
    """Write the film with landmarks, the tool's path and axes, and gaps, at the hand's own speed."""
    camera = camera.for_size(*lifted.films[0].size, str(film))
    frames = (
        drawn(image, number, lifted, camera) for number, image in _on_clock(film, lifted.times, SHOWN_SIDE)
    )
    write_video(out, frames, lifted.fps, crf=23)


def _on_clock(film: Path, times: F64, long_side: int) -> Iterator[tuple[int, U8]]:
    """The nearest frame for each time."""
    number, before = 0, None
    for now, image in film_frames(film):
        share = min(1.0, long_side / max(image.shape[:2]))
        high, wide = (2 * max(1, round(n * share / 2)) for n in image.shape[:2])
        image = resize_image(image, (high, wide))
        while number < len(times) and before is not None and times[number] - before[0] <= now - times[number]:
            yield number, before[1]
            number += 1
        before = now, image
    while number < len(times) and before is not None:
        yield number, before[1]
        number += 1


def drawn(image: U8, number: int, lifted: Lifted, camera: Camera) -> U8:
    import cv2

    image = image.copy()
    scale = image.shape[1] / lifted.films[0].size[1]
    width = max(1, round(max(image.shape[:2]) / 480))
    first = max(0, number - round(TRAIL_S * lifted.fps))
    lost = []
    for (side, hand), colour in zip(lifted.hands.items(), _COLOURS, strict=False):
        marks = lifted.films[0].hands
        draw_hand(image, marks.get(side, next(iter(marks.values()))).pixels[number] * scale, colour, width)
        trail = camera.project(hand.path.position[first : number + 1]) * scale
        for a, b in pairwise(trail):
            if np.isfinite([a, b]).all():
                cv2.line(image, _pixel(a), _pixel(b), colour, width, cv2.LINE_AA)
        if hand.path.seen[number]:
            origin, axes = hand.path.position[number], hand.path.rotation[number]
            ends = camera.project(np.vstack([origin, origin + AXIS_M * axes.T])) * scale
            for end, tint in zip(ends[1:], _AXES, strict=True):
                if np.isfinite(ends[0]).all() and np.isfinite(end).all():
                    cv2.line(image, _pixel(ends[0]), _pixel(end), tint, 2 * width, cv2.LINE_AA)
            grip = f"{side}: {hand.gripper[number]:.1f} open"
        else:
            grip = f"{side}: not seen"
            lost.append(side)
        at = (10, image.shape[0] - 12 - 26 * len(lost) if lost else image.shape[0] - 12)
        cv2.putText(
            image, f"{lifted.times[number]:.2f} s  {grip}", at, cv2.FONT_HERSHEY_SIMPLEX, 0.6, colour, 2
        )
    if lost:
        cv2.rectangle(image, (0, 0), (image.shape[1] - 1, image.shape[0] - 1), (230, 40, 40), 6)
    return image


def draw_hand(image: U8, pixels: NDArray[Any], colour: tuple[int, int, int], width: int) -> None:
    """Draw the bones of a hand (21, 2)."""
    import cv2

    for finger in range(5):
        line = [
            pixels[i] for i in (0, *range(4 * finger + 1, 4 * finger + 5)) if np.isfinite(pixels[i]).all()
        ]
        for a, b in pairwise(line):
            cv2.line(image, _pixel(a), _pixel(b), colour, width, cv2.LINE_AA)
        for point in line:
            cv2.circle(image, _pixel(point), 2 * width, colour, -1, cv2.LINE_AA)


def _pixel(point: NDArray[Any]) -> tuple[int, int]:
    x, y = np.clip(point, -10_000, 10_000)
    return round(float(x)), round(float(y))

"""Shows a webcam's image during filming, with the detected hands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from recap.errors import InputError
from recap.types import U8
from recap_hands.mediapipe import Landmarker
from recap_hands.preview import draw_hand

TITLE = "recap lift"
PROBE = "import cv2; cv2.namedWindow('probe')"
ESCAPE = 27
COLOUR = (255, 160, 40)


@contextmanager
def live_view(n_hands: int) -> Iterator[Callable[[U8], bool]]:
    """A window: a function that shows an image (in BGR) and returns whether to continue."""
    import cv2

    # Qt ends the process if there is no display, so another process tests for it.
    if subprocess.run([sys.executable, "-c", PROBE], capture_output=True).returncode:
        raise InputError(
            "there is no display to show the webcam on: leave --preview out, or give it with the film later",
            code="hands.display",
        )
    landmarker = Landmarker(n_hands, "lite")
    cv2.namedWindow(TITLE)

    def show(image: U8) -> bool:
        picture = np.ascontiguousarray(image)
        for hand in landmarker(np.ascontiguousarray(image[..., ::-1])):
            draw_hand(picture, hand.pixels, COLOUR[::-1], max(1, max(image.shape[:2]) // 480))
        cv2.imshow(TITLE, picture)
        return bool(cv2.waitKey(1) & 0xFF != ESCAPE)

    try:
        yield show
    finally:
        landmarker.close()
        cv2.destroyWindow(TITLE)

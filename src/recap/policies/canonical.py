"""The camera image in the canonical frame: a warp of its pixels, never a new drawing."""

from __future__ import annotations

import math

import numpy as np

from recap.errors import InputError
from recap.policies.config import ImageConfig
from recap.types import F64, U8

BEYOND = 255  # outside the camera's view it is white, as the board is


def canonical_image(image: U8, frame: F64, config: ImageConfig, aligned: bool) -> U8:
    """(size, size, 3): the surroundings of `frame`, turned with it; the whole image when not aligned."""
    import cv2

    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise InputError(f"a camera image has shape {image.shape} of {image.dtype}: give (h, w, 3) of bytes")
    if image.shape[:2] != (config.camera_size, config.camera_size):
        raise InputError(
            f"a camera image is {image.shape[1]}×{image.shape[0]} px and the policy was trained on "
            f"{config.camera_size}×{config.camera_size}: set the camera to that size"
        )
    size = (config.size, config.size)
    if config.view == "camera" or not aligned:
        return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
    warped = cv2.warpAffine(
        image,
        _to_camera(frame, config, config.camera_size),
        size,
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=(BEYOND, BEYOND, BEYOND),
    )
    return np.asarray(warped, np.uint8)


def camera_image(image: U8, frame: F64, config: ImageConfig, aligned: bool, around: U8) -> U8:
    """The inverse of `canonical_image`: the picture laid over a camera image of any size."""
    import cv2

    size = (around.shape[1], around.shape[0])
    if config.view == "camera" or not aligned:
        return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_LINEAR), np.uint8)
    matrix = _to_camera(frame, config, around.shape[0])
    picture = cv2.warpAffine(image, matrix, size, flags=cv2.INTER_LINEAR)
    inside = cv2.warpAffine(np.full(image.shape[:2], 255, np.uint8), matrix, size, flags=cv2.INTER_NEAREST)
    return np.where(inside[..., None] > 0, picture, around).astype(np.uint8)


def _to_camera(frame: F64, config: ImageConfig, camera_size: int) -> F64:
    """(2, 3): from a pixel of the canonical image to one of the camera's, pixel centres at half integers."""
    per_unit = camera_size / config.world
    zoom = config.span / config.size * per_unit
    c, s = math.cos(float(frame[2])) * zoom, math.sin(float(frame[2])) * zoom
    turn = np.array([[c, -s], [s, c]])
    half = (config.size - 1) / 2
    center = np.asarray(frame[:2], np.float64) * per_unit - 0.5
    return np.concatenate([turn, (center - turn @ np.array([half, half]))[:, None]], axis=1)

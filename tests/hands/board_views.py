"""Rendered views of a calibration board by a known camera."""

from __future__ import annotations

from functools import cache
from typing import Any

import cv2
import numpy as np
from made_hands import about
from numpy.typing import NDArray

from recap.types import F64, U8
from recap_hands.board import Board
from recap_hands.camera import Camera

FINER = 2
SIZE = (480, 640)
LENS = Camera(SIZE, (610.0, 605.0, 322.0, 236.0), (0.06, -0.12, 0.0008, -0.0005, 0.03))


@cache
def rays_of(camera: Camera) -> F64:
    """The rays of all pixels, with FINER x FINER samples per pixel."""
    height, width = (FINER * n for n in camera.size)
    centres = (np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1) + 0.5) / FINER - 0.5
    rays = camera.rays(centres.reshape(-1, 2))
    return np.column_stack([rays, np.ones(len(rays))])


def view_of(board: Board, camera: Camera, pose: NDArray[Any], seed: int = 0) -> U8:
    """RGB image of the board at a pose (4, 4) in the camera's frame, with lens distortion, noise and blur."""
    px = 60
    flat = board.image(px).astype(np.float32)
    height, width = (FINER * n for n in camera.size)
    rays = rays_of(camera)
    normal, origin = pose[:3, 2], pose[:3, 3]
    there = rays * ((normal @ origin) / (rays @ normal))[:, None]
    on_board = (there - origin) @ pose[:3, :3]
    scale, border = px / board.square, px // 2
    x = on_board[:, 0] * scale + border - 0.5
    y = (board.height - on_board[:, 1]) * scale + border - 0.5
    maps = [v.reshape(height, width).astype(np.float32) for v in (x, y)]
    large = cv2.remap(flat, *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=150)
    image = cv2.resize(large, camera.size[::-1], interpolation=cv2.INTER_AREA)
    noise = np.random.default_rng(seed).normal(0, 3, image.shape)
    return np.repeat(np.clip(0.8 * image + 20 + noise, 0, 255).astype(np.uint8)[..., None], 3, axis=2)


def poses(n: int, seed: int = 0) -> F64:
    """Board poses in the camera's frame: near, tilted in all directions."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        pose = np.eye(4)
        pose[:3, :3] = about(rng.normal(size=3) * (1, 1, 0.6), rng.uniform(0.2, 0.6)) @ np.diag([1.0, -1, -1])
        middle = np.array([*rng.uniform((-0.05, -0.04), (0.05, 0.04)), rng.uniform(0.36, 0.5)])
        pose[:3, 3] = middle - pose[:3, :3] @ (0.1225, 0.0875, 0)
        out.append(pose)
    return np.array(out)


@cache
def view(number: int) -> U8:
    """The view of one pose, rendered once for all tests."""
    return view_of(Board(), LENS, poses(14)[number], number)

"""Resamples an episode to another frame rate or image size; the method depends on the kind of number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.geometry3 import (
    arm_starts,
    matrix_to_rotation6,
    quaternion_start,
    rotation6_to_matrix,
    without_jumps,
)
from recap.lazy import Made
from recap.pictures import resize_image
from recap.pool.importers.source import MAX_FRAMES, PickedFrames, check_fps
from recap.types import F32, F64, U8, Episode

_RELATIVE = ("delta", "relative", "velocity", "velocities")


def resample(episode: Episode, fps: float) -> Episode:
    """The same demonstration with frame i at exactly i / fps; the first and the last frame are kept.

    Positions are interpolated linearly, angles along the shorter arc. 6-D rotations are interpolated linearly
    and then orthonormalised. Quaternions are interpolated independent of their sign. Images and on-off
    channels take the nearest frame; on-off actions are held.
    """
    check_fps(fps)
    if len(episode) < 1:
        raise InputError(f"episode '{episode.id}' has no frames: there is nothing to resample")
    old = episode.timestamps - episode.timestamps[0]
    if fps == episode.fps and np.allclose(old, np.arange(len(old)) / fps, rtol=0, atol=1e-9):
        return episode
    if not (np.diff(old) > 0).all():
        raise InputError(f"episode '{episode.id}' has times that do not increase: correct them first")
    if any(word in episode.action_space.lower() for word in _RELATIVE):
        raise InputError(
            f"episode '{episode.id}' has actions '{episode.action_space}', true at one frame rate only: "
            "map absolute ones, such as action=next:KEY"
        )
    n_steps = float(old[-1]) * fps
    if n_steps > MAX_FRAMES:
        raise InputError(f"episode '{episode.id}' would have {n_steps:.0f} frames: give a lower rate")
    # The task is completed in the last frame, so it is kept: it may come up to one frame late.
    n = int(np.ceil(n_steps - 1e-6)) + 1
    times = np.minimum(np.arange(n) / fps, old[-1])
    nearest = _nearest(old, times)
    held = np.clip(np.searchsorted(old, times + 1e-9, side="right") - 1, 0, len(old) - 1)
    return replace(
        episode,
        fps=float(fps),
        timestamps=np.arange(n) / fps,
        proprio=_vectors(episode.proprio, old, times, nearest),
        actions=_vectors(episode.actions, old, times, held),
        objects={name: _object(values, old, times, nearest) for name, values in episode.objects.items()},
        images={camera: PickedFrames(frames, nearest) for camera, frames in episode.images.items()},
    )


def fitted(episode: Episode, fps: float | None, size: int | None) -> Episode:
    """Resample and resize, where a value is given."""
    episode = episode if fps is None else resample(episode, fps)
    return episode if size is None else resize(episode, size)


def resize(episode: Episode, size: int) -> Episode:
    """The same demonstration with square images."""
    if not 16 <= size <= 1024:
        raise InputError(f"image size {size} is out of range: give 16 to 1024 px")
    images = {c: Made(len(frames), partial(_resized, frames, size)) for c, frames in episode.images.items()}
    return replace(episode, images=images)


def _resized(frames: Sequence[U8], size: int, number: int) -> U8:
    return resize_image(frames[number], (size, size))


def _nearest(old: F64, times: F64) -> NDArray[np.int64]:
    """Index of the frame nearest in time; the earlier one if tied."""
    after = np.clip(np.searchsorted(old, times), 1, max(1, len(old) - 1))
    if len(old) == 1:
        return np.zeros(len(times), np.int64)
    before = after - 1
    return np.where(times - old[before] <= old[after] - times, before, after).astype(np.int64)


def _vectors(values: F32, old: F64, times: F64, picked: NDArray[np.int64]) -> F32:
    result = _linear(values, old, times)
    for column in range(values.shape[1]):
        if _is_switch(values[:, column]):
            result[:, column] = values[picked, column]
    for start in arm_starts(values):
        block = slice(start + 3, start + 9)
        mixed = _linear(values[:, block], old, times)  # no switches: a quarter turn has columns of 0 and 1
        result[:, block] = _rotations(mixed, values[picked][:, block])
    turning = None if arm_starts(values) else quaternion_start(values)
    if turning is not None:
        result[:, turning : turning + 4] = _quaternions(values[:, turning : turning + 4], old, times)
    return _exact(result.astype(np.float32), values, old, times)


def _object(values: F32, old: F64, times: F64, nearest: NDArray[np.int64]) -> F32:
    if values.shape[1] != 3:
        return _vectors(values, old, times, nearest)
    result = _linear(values, old, times)
    theta = values[:, 2].astype(np.float64)
    turned = np.interp(times, old, np.unwrap(theta))
    low = -np.pi if theta.min() < 0 else 0.0
    # Return to the original range.
    if low - 1e-6 <= theta.min() and theta.max() <= low + 2 * np.pi + 1e-6:
        outside = (turned < low) | (turned > low + 2 * np.pi)
        turned = np.where(outside, (turned - low) % (2 * np.pi) + low, turned)
    result[:, 2] = turned
    return _exact(result.astype(np.float32), values, old, times)


def _linear(values: NDArray[Any], old: F64, times: F64) -> F64:
    wide = values.astype(np.float64)
    columns = [np.interp(times, old, wide[:, i]) for i in range(wide.shape[1])]
    return np.stack(columns, axis=1) if columns else np.empty((len(times), 0))


def _exact(result: F32, values: F32, old: F64, times: F64) -> F32:
    """Copy the original values where a new frame coincides with an original one."""
    at = np.clip(np.searchsorted(old, times - 1e-9), 0, len(old) - 1)
    same = np.abs(old[at] - times) <= 1e-9
    result[same] = values[at[same]]
    return result


def _rotations(mixed: F64, fallback: F32) -> F64:
    """Orthonormalised 6-D rotations; where the mean of half-turns is undefined, the fallback is used."""
    lengths = np.linalg.norm(mixed[:, :3], axis=1)
    crossed = np.linalg.norm(np.cross(mixed[:, :3], mixed[:, 3:]), axis=1)
    broken = (lengths < 1e-3) | (crossed < 1e-3 * np.maximum(lengths, 1e-3))
    chosen = np.where(broken[:, None], fallback.astype(np.float64), mixed)
    return matrix_to_rotation6(rotation6_to_matrix(chosen))


def _quaternions(values: F32, old: F64, times: F64) -> F64:
    """Interpolate along the shorter arc: q and -q are the same rotation, so signs are aligned first."""
    mixed = _linear(without_jumps(values), old, times)
    return np.asarray(mixed / np.maximum(np.linalg.norm(mixed, axis=1, keepdims=True), 1e-9))


def _is_switch(values: F32) -> bool:
    """True for an on-off channel: two values, and either enough frames or the values -1, 0 or 1."""
    levels = np.unique(values)
    return len(levels) == 2 and (len(values) >= 8 or bool(np.isin(levels, (-1, 0, 1)).all()))

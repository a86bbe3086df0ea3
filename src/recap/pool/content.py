"""An episode as metadata and flat arrays, and back; its hash; and the check before it is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.types import F32, U8, Episode

TEXTS = ("id", "scene_id", "task", "embodiment", "action_space", "source")


def arrays_of(episode: Episode) -> dict[str, NDArray[Any]]:
    """The low-dimensional data as flat arrays of fixed types, object after object; no goal is no array."""
    objects = [np.asarray(value, "<f4").reshape(-1) for value in episode.objects.values()]
    arrays = {
        "timestamps": np.asarray(episode.timestamps, "<f8"),
        "proprio": np.asarray(episode.proprio, "<f4").reshape(-1),
        "actions": np.asarray(episode.actions, "<f4").reshape(-1),
        "objects": np.concatenate(objects) if objects else np.empty(0, "<f4"),
    }
    if episode.goal is not None:
        arrays["goal"] = np.asarray(episode.goal, "<f4")
    return arrays


def meta_of(episode: Episode, cameras: Mapping[str, str]) -> dict[str, Any]:
    """Everything that is not an array; cameras give the hash of each encoded film."""
    return {
        **{key: getattr(episode, key) for key in TEXTS},
        "fps": float(episode.fps),
        "success": bool(episode.success),
        "attributes": json.dumps(dict(episode.attributes), ensure_ascii=False, allow_nan=False),
        "n_frames": len(episode),
        "objects": [[name, int(np.shape(value)[1])] for name, value in episode.objects.items()],
        "cameras": [[name, digest] for name, digest in cameras.items()],
    }


def digest_of(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """One hash of an episode: metadata, every bit of every array, and the hashes of its films."""
    text = json.dumps(meta, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    shapes = [[name, len(array)] for name, array in sorted(arrays.items())]
    whole = sha256(json.dumps([text, shapes], ensure_ascii=False).encode("utf-8"))
    for _, array in sorted(arrays.items()):
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()


def episode_of(
    meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], images: Mapping[str, Sequence[U8]]
) -> Episode:
    """The inverse of `meta_of` and `arrays_of`."""
    n = meta["n_frames"]
    objects: dict[str, F32] = {}
    start = 0
    for name, width in meta["objects"]:
        objects[name] = arrays["objects"][start : start + n * width].reshape(n, width)
        start += n * width
    return Episode(
        **{key: meta[key] for key in TEXTS},
        fps=meta["fps"],
        timestamps=arrays["timestamps"],
        proprio=arrays["proprio"].reshape(n, -1),
        actions=arrays["actions"].reshape(n, -1),
        objects=objects,
        goal=arrays.get("goal"),
        images=images,
        success=meta["success"],
        attributes=json.loads(meta["attributes"]),
    )


def check_episode(episode: Episode, *, for_pool: bool = True) -> None:
    """Refuse, in one line, what cannot be used; for a pool also a missing id and numbers float32 rounds."""
    n = len(episode)
    if for_pool and not episode.id:
        raise InputError("an episode has no id: give each one a name of its own")
    for key in TEXTS:
        _check_text(episode, key, getattr(episode, key))
    if n == 0:
        _refuse(episode, "it is empty; leave it out")
    if not (np.isfinite(episode.fps) and episode.fps > 0):
        _refuse(episode, f"{episode.fps} is no frame rate; give a positive one")
    times = np.asarray(episode.timestamps)
    if times.ndim != 1 or not np.isfinite(times).all() or not (np.diff(times) > 0).all():
        _refuse(episode, "its timestamps do not increase; resample it first")
    vectors = {"proprio": episode.proprio, "actions": episode.actions}
    for name, value in episode.objects.items():
        _check_text(episode, "object name", name)
        vectors[f"object '{name}'"] = value
    for what, value in vectors.items():
        if np.ndim(value) != 2 or len(value) != n:
            _refuse(episode, f"{what} is {np.shape(value)}, not ({n}, d)")
        _check_numbers(episode, what, value, for_pool)
    if episode.goal is not None:
        if np.ndim(episode.goal) != 1:
            _refuse(episode, f"its goal is {np.shape(episode.goal)}, not (g,)")
        _check_numbers(episode, "its goal", episode.goal, for_pool)
    for camera, frames in episode.images.items():
        _check_text(episode, "camera name", camera)
        if len(frames) != n:
            _refuse(episode, f"{len(frames)} frames of '{camera}' for {n} steps")
    for key, given in episode.attributes.items():
        _check_text(episode, "attribute name", key)
        if isinstance(given, str):
            _check_text(episode, f"attribute '{key}'", given)
        elif not isinstance(given, int | float) or (isinstance(given, float) and not np.isfinite(given)):
            _refuse(episode, f"attribute '{key}' is not text, a finite number or a bool")


def _check_numbers(episode: Episode, what: str, value: Any, exact: bool) -> None:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        _refuse(episode, f"{what} holds NaN, infinity or no numbers; leave the episode out")
    with np.errstate(over="ignore"):
        single = array.astype("<f4")
    if not (np.array_equal(single, array) if exact else np.isfinite(single).all()):
        _refuse(episode, f"{what} is {array.dtype} and does not fit float32; convert it first")


def _check_text(episode: Episode, what: str, value: object) -> None:
    try:
        if not isinstance(value, str):
            raise ValueError
        value.encode("utf-8")
    except ValueError:
        _refuse(episode, f"its {what} is not text that can be written as UTF-8")


def _refuse(episode: Episode, why: str) -> None:
    raise InputError(f"episode {episode.id!a}: {why}")

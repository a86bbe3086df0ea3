"""Converts an episode to metadata and flat arrays and back; hashes it, and checks it before storage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.types import F32, U8, Episode

_ENCODING_ERROR = 10  # mean difference of pixels (0 to 255) above which two encoded images differ
MAX_NUMBER = 1e9  # largest measurement or action in any unit; more is an error and would overflow a distance
MAX_SYMMETRY = 360  # most symmetric poses of an object, also of a round one
TEXTS = ("id", "scene_id", "task", "embodiment", "action_space", "source")

_to_text = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def arrays_of(episode: Episode) -> dict[str, NDArray[Any]]:
    """The low-dimensional data as flat arrays of fixed types, object by object; `goal` only if present."""
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


def content_id(episode: Episode) -> str:
    """A short hash of actions and proprioception; the same under another name or in another pool."""
    parts = (np.ascontiguousarray(part, "<f4").tobytes() for part in (episode.proprio, episode.actions))
    return sha256(b"/".join(parts)).hexdigest()[:12]


def meta_of(episode: Episode, cameras: Mapping[str, str]) -> dict[str, Any]:
    """Everything except arrays; `cameras` maps each camera to the hash of its encoded video."""
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
    """The hash of an episode: metadata, all array bytes and the hashes of its videos."""
    text = _to_text(meta)
    shapes = [[name, len(array)] for name, array in sorted(arrays.items())]
    whole = sha256(json.dumps([text, shapes], ensure_ascii=False).encode("utf-8"))
    for _, array in sorted(arrays.items()):
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()


def same_content(a: Episode, b: Episode) -> bool:
    """True if two episodes are equal: metadata and arrays exactly, videos by their middle frame."""
    digests = {digest_of(meta_of(each, {}), arrays_of(each)) for each in (a, b)}
    if len(digests) > 1 or a.images.keys() != b.images.keys():
        return False
    for name in a.images:
        one, other = a.images[name][len(a) // 2], b.images[name][len(b) // 2]
        if one.shape != other.shape or np.abs(one.astype(np.float32) - other).mean() >= _ENCODING_ERROR:
            return False
    return True


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


def faults(episode: Episode) -> Iterator[tuple[str, str, str]]:
    """Reasons why an episode is unusable: code, field, message. Values are checked only if shapes agree."""
    n, arrays = len(episode), fields_of(episode)
    sound = True
    for name, values in arrays.items():
        shape, flat = np.shape(values), name in ("timestamps", "goal")
        if len(shape) != (1 if flat else 2) or not (flat or shape[0] == n):
            sound, expected = False, "(d,)" if flat else f"({n}, d)"
            yield "shape", name, f"it is of shape {shape}, not {expected}; give arrays of equal length"
    if sound:
        bad = {name: _n_not_finite(values) for name, values in arrays.items()}
        for name in (name for name in arrays if bad[name]):
            message = f"{bad[name]} values are NaN or infinite, or no numbers; fix or leave it out"
            yield "not-finite", name, message
        for name in (name for name in arrays if not bad[name] and name != "timestamps"):
            most = float(np.abs(np.asarray(arrays[name])).max(initial=0))
            if most > MAX_NUMBER:
                message = f"it has numbers up to {most:.3g}, more than any unit needs; fix or leave it out"
                yield "too-large", name, message
        if not (np.isfinite(episode.fps) and episode.fps > 0):
            yield "fps", "fps", f"{episode.fps} is no frame rate; give a positive one, as with --fps"
        elif not bad["timestamps"] and not (np.diff(episode.timestamps) > 0).all():
            yield "time-order", "timestamps", "they do not strictly increase; sort or resample them"
    for camera, frames in episode.images.items():
        if len(frames) != n:
            message = f"{len(frames)} frames for {n} steps; give the camera of this recording"
            yield "image-count", f"image:{camera}", message


def check_episode(episode: Episode, *, for_pool: bool = True) -> None:
    """Raise an InputError if it cannot be used; `for_pool` also requires an id and float32-exact values."""
    if for_pool and not episode.id:
        raise InputError("an episode has no id: give each one a name of its own")
    texts = {key: getattr(episode, key) for key in TEXTS}
    named = {"object": episode.objects, "camera": episode.images, "attribute": episode.attributes}
    for what, names in named.items():
        texts |= {f"{what} name {name!a}": name for name in names}
    texts |= {f"attribute '{key}'": v for key, v in episode.attributes.items() if isinstance(v, str)}
    for what, text in texts.items():
        if not isinstance(text, str) or text.encode("utf-8", "replace").decode() != text:
            _refuse(episode, f"its {what} is not text that can be written as UTF-8")
        if for_pool and not text.isprintable() and not what.startswith("attribute '"):
            _refuse(episode, f"its {what} has control characters, {text[:80]!a}; give plain words")
    if not len(episode):
        _refuse(episode, "it is empty; leave it out")
    for _, where, message in faults(episode):
        field = "actions" if where == "action" else where  # an importer's mapping calls it action
        _refuse(episode, f"{field}: {message}")
    for name, values in fields_of(episode).items():
        array = np.asarray(values)
        with np.errstate(over="ignore"):
            single = array.astype("<f4")
        fits = np.array_equal(single, array) if for_pool else np.isfinite(single).all()
        if not fits and name != "timestamps":
            _refuse(episode, f"{name} is {array.dtype} and does not fit float32; convert it first")
    for key, given in episode.attributes.items():
        if not isinstance(given, str | int | float) or (isinstance(given, float) and not np.isfinite(given)):
            _refuse(episode, f"attribute '{key}' is not text, a finite number or a bool")
    turns = episode.attributes.get("symmetry", 1)
    if for_pool and (not isinstance(turns, int) or not 1 <= turns <= MAX_SYMMETRY):
        _refuse(episode, f"its symmetry is {turns!a}, no whole number from 1 to {MAX_SYMMETRY}; correct it")


def fields_of(episode: Episode) -> dict[str, Any]:
    """The arrays of an episode, by the names used in messages."""
    return {
        "timestamps": episode.timestamps,
        "proprio": episode.proprio,
        "action": episode.actions,
        **{f"object:{name}": values for name, values in episode.objects.items()},
        **({} if episode.goal is None else {"goal": episode.goal}),
    }


def _n_not_finite(values: Any) -> int:
    array = np.asarray(values)
    return int((~np.isfinite(array)).sum()) if array.dtype.kind in "fiu" else array.size


def _refuse(episode: Episode, why: str) -> None:
    raise InputError(f"episode {episode.id!a}: {why}")

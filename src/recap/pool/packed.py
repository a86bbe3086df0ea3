"""One version of a pool as a safetensors file, read without Lance or Arrow: for robots and checkpoints.

The header holds everything that is not an array, with its own hash. Every episode, video and descriptor
array is checked against its hash on first use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError, cause
from recap.lazy import Made
from recap.pool.content import arrays_of, digest_of, episode_of, meta_of
from recap.pool.files import cached, sha256, sync_file
from recap.pool.memory import EpisodeView
from recap.run_directory import whole_file
from recap.types import U8, Descriptors, Episode

if TYPE_CHECKING:
    from recap.pool.view import Describer, PoolView

_FORMAT = "recap-packed-pool-1"
_FRAMES = "frames/"
_KINDS = {"timestamps": "<f8", "proprio": "<f4", "actions": "<f4", "objects": "<f4", "goal": "<f4"}


def write_packed(
    view: PoolView,
    path: Path,
    describers: Sequence[Describer] = (),
    *,
    images: bool = True,
    films: bool = True,
) -> None:
    """Write a view, and its descriptors for some describers, to `path`; equal views give equal bytes.

    Args:
        images: False leaves images out.
        films: False stores raw frames instead of videos: larger, exact, readable without a video decoder.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors: dict[str, NDArray[Any]] = {}
    parts: dict[str, list[NDArray[Any]]] = {key: [] for key in _KINDS}
    records = []
    for name in view.episode_ids:
        episode = view.episode(name)
        cameras = {}
        for camera, frames in episode.images.items() if images else ():
            if not films:
                stored = np.stack(list(frames))
                cameras[camera] = _digest_of_frames(stored)
                tensors[f"{_FRAMES}{cameras[camera]}"] = stored
                continue
            from recap.pool.blobs import encode  # only videos need an encoder

            data = encode(frames, episode.fps)
            cameras[camera] = sha256(data)
            tensors[f"blob/{cameras[camera]}"] = np.frombuffer(data, np.uint8)
        meta, arrays = meta_of(episode, cameras), arrays_of(episode)
        sizes = {key: len(value) for key, value in arrays.items()}
        records.append({"meta": meta, "sha256": digest_of(meta, arrays), "sizes": sizes})
        for key, value in arrays.items():
            parts[key].append(value)
    for key, kind in _KINDS.items():
        tensors[key] = np.concatenate([np.empty(0, kind), *parts[key]]).astype(kind)
    tables = []
    for number, describer in enumerate(describers):
        described = view.descriptors(describer)
        hashes = {}
        for term, values in described.terms.items():
            tensors[f"descriptors/{number}/{term}"] = np.ascontiguousarray(values)
            hashes[term] = sha256(np.ascontiguousarray(values).tobytes())
        tables.append({"fingerprint": describer.fingerprint, "dims": dict(describer.dims), "sha256": hashes})
    body = {"format": _FORMAT, "version": view.version, "episodes": records, "descriptors": tables}
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    try:
        with whole_file(path) as partial:
            save_file(tensors, partial, metadata={"recap": sha256(text.encode("utf-8")) + text})
            partial.chmod(0o644)  # safetensors makes the file private, but a snapshot is meant to be shared
            sync_file(partial)
    except SafetensorError as error:  # also raised for a full disk
        raise DatasetError(f"cannot write {path} ({error}): what was there is kept") from error


class PackedPool(EpisodeView):
    """A packed version of a pool; both a view and a source that never changes."""

    def __init__(self, path: Path, file: Any, body: Mapping[str, Any]) -> None:
        self.path, self._file = path, file
        self._tables = {table["fingerprint"]: (i, table) for i, table in enumerate(body["descriptors"])}
        self._records: dict[str, tuple[Mapping[str, Any], Mapping[str, int]]] = {}
        at = dict.fromkeys(_KINDS, 0)
        for record in body["episodes"]:
            self._records[record["meta"]["id"]] = record, dict(at)
            for key, size in record["sizes"].items():
                at[key] += size
        super().__init__(int(body["version"]), tuple(self._records))
        self._stored = {key for key in file.keys() if key.startswith(_FRAMES)}  # noqa: SIM118 - not a dict
        self.digests = {name: record["sha256"] for name, (record, _) in self._records.items()}
        self._arrays: dict[str, NDArray[Any]] = {key: file.get_tensor(key) for key in _KINDS}
        if {key: len(array) for key, array in self._arrays.items()} != at:
            raise DatasetError(_damaged(path, "its arrays are not as long as its episodes"))
        for array in self._arrays.values():
            array.flags.writeable = False
        self._episodes: dict[str, Episode] = {}

    @classmethod
    def open(cls, path: Path) -> PackedPool:
        """Open a file that `Pool.pack` wrote."""
        from safetensors import SafetensorError, safe_open

        if not path.is_file():
            raise DatasetError(f"no packed pool at {path}: recap pool pack POOL --out {path} makes one")
        try:
            file: Any = safe_open(path, framework="numpy")
            text = (file.metadata() or {}).get("recap", "")
            digest, text = text[:64], text[64:]
            if sha256(text.encode("utf-8")) != digest:
                raise DatasetError(_damaged(path, "its header has changed, or it is something else"))
            body = json.loads(text)
            if body["format"] != _FORMAT:
                raise DatasetError(f"{path} is {body['format']}, not {_FORMAT}: pack the pool again")
            return cls(path, file, body)
        except (SafetensorError, OSError) as error:
            raise DatasetError(_damaged(path, cause(error))) from error

    def episode(self, episode_id: str) -> Episode:
        """One episode; its images are decoded on demand."""
        if episode_id not in self._episodes:
            if episode_id not in self._records:
                raise InputError(f"{self.path} has no episode {episode_id!a}")
            record, starts = self._records[episode_id]
            meta = record["meta"]
            arrays = {
                key: self._arrays[key][starts[key] : starts[key] + n] for key, n in record["sizes"].items()
            }
            if digest_of(meta, arrays) != record["sha256"]:
                raise DatasetError(_damaged(self.path, f"episode {episode_id!a} has changed"))
            images = {name: self._frames(d, meta) for name, d in meta["cameras"]}
            self._episodes[episode_id] = episode_of(meta, arrays, images)
        return self._episodes[episode_id]

    def _frames(self, digest: str, meta: Mapping[str, Any]) -> Sequence[U8]:
        if _FRAMES + digest in self._stored:
            return Made(meta["n_frames"], partial(_stored_frame, self.path, digest))
        from recap.pool.blobs import BlobFrames  # only videos need a decoder

        return BlobFrames(self, digest, meta["n_frames"], meta["fps"])

    def descriptors(self, describer: Describer, ids: Sequence[str] | None = None) -> Descriptors:
        """Descriptors of every frame; those that the file lacks are computed and kept in memory."""
        fingerprint = describer.fingerprint
        if fingerprint in self._tables and fingerprint not in self._descriptors:
            self._descriptors[fingerprint] = self._read_descriptors(describer)
        return super().descriptors(describer, ids)

    def local(self, name: str, digest: str) -> Path:
        """A video as a local file."""
        return cached(digest, name, lambda: self._file.get_tensor(f"blob/{digest}").tobytes())

    def _read_descriptors(self, describer: Describer) -> Descriptors:
        number, table = self._tables[describer.fingerprint]
        if table["dims"] != dict(describer.dims):
            raise DatasetError(
                f"{self.path} has descriptors {table['dims']} for {describer.fingerprint}, not "
                f"{dict(describer.dims)}: pack the pool again"
            )
        terms = {term: self._file.get_tensor(f"descriptors/{number}/{term}") for term in describer.dims}
        for term, values in terms.items():
            if sha256(values.tobytes()) != table["sha256"][term]:
                raise DatasetError(_damaged(self.path, f"descriptors '{term}' have changed"))
            values.flags.writeable = False
        lengths = [record["meta"]["n_frames"] for record, _ in self._records.values()]
        starts = np.cumsum([0, *lengths], dtype=np.int64)
        return Descriptors(describer.fingerprint, self.episode_ids, starts, terms)


def _stored_frame(path: Path, digest: str, number: int) -> U8:
    """A raw frame, read without a video decoder."""
    status = path.stat()  # the file may have been packed again
    found: U8 = _checked_frames(path, digest, (status.st_ino, status.st_mtime_ns))[number : number + 1][0]
    return found


@lru_cache(maxsize=8)
def _opened(path: Path, version: tuple[int, int]) -> Any:
    from safetensors import safe_open

    return safe_open(path, framework="numpy")


@lru_cache(maxsize=65536)
def _checked_frames(path: Path, digest: str, version: tuple[int, int]) -> Any:
    """A camera's frames as a slice; their hash is checked once per process."""
    file = _opened(path, version)
    if _digest_of_frames(file.get_tensor(_FRAMES + digest)) != digest:
        raise DatasetError(_damaged(path, "frames have changed"))
    return file.get_slice(_FRAMES + digest)


def _digest_of_frames(frames: U8) -> str:
    """The hash of frames (t, h, w, 3)."""
    return sha256(repr(frames.shape).encode() + np.ascontiguousarray(frames).tobytes())


def _damaged(path: Path, why: str) -> str:
    return f"packed pool {path} is damaged: {why}; pack it again"

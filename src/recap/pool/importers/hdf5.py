"""Reads HDF5 files that may be damaged or malicious: links are not followed, and sizes are checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np

from recap.errors import DatasetError
from recap.lazy import LazySequence
from recap.pool.importers.encoded import JPEG, decode_image
from recap.pool.importers.mapping import Kind, SourceKey, shorten
from recap.pool.importers.source import (
    MAX_ARRAY_BYTES,
    MAX_FRAME_BYTES,
    MAX_FRAMES,
    as_dataset_error,
    as_matrix,
    check_size,
)
from recap.pool.importers.strings import MAX_TEXT_BYTES, TextPlace, read_strings
from recap.types import F64, U8

SUFFIXES = (".hdf5", ".h5")
_MAX_KEYS = 10_000
_MAX_DEPTH = 8
_PLAIN_RGB = b"\xff\xfe\x00\x0aXPL-RGB1"  # JPEG comment of RoboTwin: colours are not swapped


@contextmanager
def opened(path: Path, what: str = "") -> Iterator[Any]:
    """Open a file; any error of the library becomes a DatasetError."""
    with as_dataset_error(path, what), h5py.File(path, "r") as file:
        yield file


def first_readable(files: Sequence[Path]) -> Path:
    """The first file that opens, or the first file if none does."""
    for path in files:
        with suppress(DatasetError), opened(path):
            return path
    return files[0]


def length(path: Path, key: str) -> int:
    """Rows of a dataset; 0 if the file is unreadable, which is reported when the episode is read."""
    with suppress(DatasetError), opened(path) as file:
        return int(member(file, key).shape[0])
    return 0


def member(group: Any, key: str) -> Any:
    """`group[key]`, resolved step by step so that links are refused."""
    for name in key.split("/"):
        link = group.get(name, getlink=True)
        if link is None:
            raise KeyError(key)
        if not isinstance(link, h5py.HardLink):
            raise DatasetError(f"'{shorten(key)}' is a link, which is not followed; copy the data")
        group = group[name]
    if isinstance(group, h5py.Dataset) and (group.external or group.is_virtual):
        raise DatasetError(f"'{shorten(key)}' has its data in another file, which is not read; copy them")
    return group


def has(group: Any, key: str) -> bool:
    """True if `member` would find the key."""
    for name in key.split("/"):
        if not isinstance(group, h5py.Group) or not isinstance(group.get(name, getlink=True), h5py.HardLink):
            return False
        group = group[name]
    return True


def walk(group: Any, prefix: str = "", depth: int = 0) -> dict[str, SourceKey]:
    """Every dataset below `group` by path, with its declared shape; no values are read."""
    if depth > _MAX_DEPTH:
        raise DatasetError(f"'{shorten(prefix)}' is nested too deeply; this is no file of demonstrations")
    keys: dict[str, SourceKey] = {}
    for name in group:
        if not name.isprintable() or name in (".", ".."):
            raise DatasetError(f"{shorten(repr(name))} is an odd name for a key; check the file")
        path = f"{prefix}{name}"
        if not has(group, name):
            keys[path] = SourceKey(path, (), "link, not followed", "other")
            continue
        node = group[name]
        if isinstance(node, h5py.Group):
            keys |= walk(node, f"{path}/", depth + 1)
        elif isinstance(node, h5py.Dataset):
            keys[path] = SourceKey(path, tuple(node.shape or ()), str(node.dtype), _kind(node))
        if len(keys) > _MAX_KEYS:
            raise DatasetError(f"more than {_MAX_KEYS} keys; this is no file of demonstrations")
    return keys


def read_numbers(group: Any, key: str) -> F64:
    """Values (t, d) of a dataset, after a check of its declared size."""
    dataset = member(group, key)
    if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "fiub" or not dataset.shape:
        raise DatasetError(f"'{shorten(key)}' holds no numbers; map another key")
    check_size(f"'{key}'", dataset.shape, max(8, dataset.dtype.itemsize))
    _check_chunks(dataset, key)
    return as_matrix(dataset[()])


def read_number(group: Any, key: str) -> float | None:
    """A scalar dataset; None if missing."""
    if not has(group, key):
        return None
    dataset = member(group, key)
    if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "fiu" or dataset.size != 1:
        raise DatasetError(f"'{shorten(key)}' is no number; check the file")
    return float(np.asarray(dataset[()]).reshape(-1)[0])


def read_texts(path: Path, places: Sequence[tuple[str, str | None]]) -> list[str | None]:
    """Text of scalar datasets (`key, None`) or attributes (`key, name`); None for each that is missing."""
    found = find_texts(path, places)
    variable = [text for text in found if isinstance(text, TextPlace)]
    late = iter(read_strings(variable))
    return [next(late) if isinstance(text, TextPlace) else text for text in found]


def find_texts(path: Path, places: Sequence[tuple[str, str | None]]) -> list[str | TextPlace | None]:
    """Like `read_texts`, but texts of variable length are only located, for `read_strings`."""
    with opened(path) as file:
        return [_find_text(file, path, key, attribute) for key, attribute in places]


def _find_text(file: Any, path: Path, key: str, attribute: str | None) -> str | TextPlace | None:
    node = file if key == "/" else member(file, key) if has(file, key) else None
    if attribute is None and isinstance(node, h5py.Dataset):
        stored = node
    elif attribute is not None and node is not None and attribute in node.attrs:
        stored = node.attrs.get_id(attribute)
    else:
        return None
    kind = h5py.check_string_dtype(stored.dtype)
    if kind is None or stored.shape != ():
        return None
    if kind.length is None:
        return TextPlace(path, key, attribute)
    check_size(f"'{key}'", (), stored.dtype.itemsize, MAX_TEXT_BYTES)
    value = node[()] if attribute is None else node.attrs[attribute]
    return bytes(value).rstrip(b"\0").decode("utf-8")


def read_flag(node: Any, name: str) -> bool | None:
    """A small numeric attribute, true if all values are; None if missing."""
    if name not in node.attrs:
        return None
    stored = node.attrs.get_id(name)
    if stored.dtype.kind not in "fiub" or stored.shape not in ((), (1,)):
        return None
    return bool(np.all(node.attrs[name]))


class Hdf5Frames(LazySequence[U8]):
    """Frames of a dataset, stored as arrays or JPEG strings and read on demand.

    RoboTwin passes RGB to OpenCV's encoder, which expects BGR. Decoding with OpenCV undoes the swap; any
    other decoder shows red as blue. Newer files are marked and contain ordinary JPEGs.
    """

    def __init__(self, path: Path, key: str, length: int) -> None:
        self.path, self.key, self.length = path, key, length

    def _item(self, number: int) -> U8:
        return next(self._read(number))

    def __iter__(self) -> Iterator[U8]:
        return self._read(0)

    def _read(self, first: int) -> Iterator[U8]:
        # The file is closed between single reads, so that thousands of episodes do not stay open.
        with opened(self.path, self.key) as file:
            dataset = member(file, self.key)
            _check_frames(dataset, self.key)
            for i in range(first, self.length):
                yield _frame(dataset[i], f"{self.key}, frame {i}")


def frames(path: Path, group: Any, key: str) -> Hdf5Frames:
    """The frames of `group[key]`, after a check of its declared shape."""
    dataset = member(group, key)
    _check_frames(dataset, key)
    return Hdf5Frames(path, dataset.name.strip("/"), dataset.shape[0])


def _kind(dataset: Any) -> Kind:
    shape, dtype = dataset.shape, dataset.dtype
    if not shape:
        return "other"
    if dtype == np.uint8 and len(shape) == 4 and 3 in (shape[1], shape[3]):
        return "images"
    encoded = (len(shape) == 1 and dtype.kind == "S") or (len(shape) == 2 and dtype == np.uint8)
    if encoded and _looks_like_jpeg(dataset):
        return "images"
    return "numbers" if dtype.kind in "fiub" else "other"


def _looks_like_jpeg(dataset: Any) -> bool:
    n_bytes = dataset.dtype.itemsize * int(np.prod(dataset.shape[1:], dtype=np.int64))
    if not 0 < dataset.shape[0] <= MAX_FRAMES or not 4 <= n_bytes <= MAX_FRAME_BYTES:
        return False
    if dataset.external or dataset.is_virtual:
        return False
    _check_chunks(dataset, dataset.name)
    return bytes(dataset[0])[:2] == JPEG


def _check_frames(dataset: Any, key: str) -> None:
    if not isinstance(dataset, h5py.Dataset) or _kind(dataset) != "images":
        raise DatasetError(f"'{shorten(key)}' holds no images; map another key")
    n_bytes = int(np.prod([1, *dataset.shape[1:]], dtype=np.float64)) * dataset.dtype.itemsize
    if n_bytes > MAX_FRAME_BYTES or dataset.shape[0] > MAX_FRAMES:
        raise DatasetError(f"'{shorten(key)}' claims {n_bytes} bytes a frame of {dataset.shape}; check it")
    _check_chunks(dataset, key)


def _check_chunks(dataset: Any, key: str) -> None:
    """Check the chunk size too, because a chunk is read completely even for one value."""
    if dataset.chunks:
        check_size(f"a chunk of '{key}'", (1, *dataset.chunks), dataset.dtype.itemsize, MAX_ARRAY_BYTES)


def _frame(value: Any, what: str) -> U8:
    if isinstance(value, np.ndarray) and value.ndim == 3:
        image = value if value.shape[2] == 3 else value.transpose(1, 2, 0)
        return np.ascontiguousarray(image, dtype=np.uint8)
    data = bytes(value)
    image = decode_image(data, what)
    # OpenCV took RGB for BGR when writing: red and blue are swapped in the file.
    return image if _PLAIN_RGB in data[:4096] else np.ascontiguousarray(image[:, :, ::-1])

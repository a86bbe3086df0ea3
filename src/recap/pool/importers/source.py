"""Shared by all importers: a reader of one format, a mapping of its keys, and a sequence of episodes."""

from __future__ import annotations

import csv
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError, RecapError, cause
from recap.lazy import LazySequence
from recap.pool.importers.mapping import IMAGE, OBJECT, Plan, SourceKey, make_plan, one_line, shorten
from recap.pool.importers.strings import MAX_TEXT_BYTES
from recap.types import F64, U8, Episode, Scalar

Transform: TypeAlias = Callable[[Episode], Episode]  # such as joints to tool poses

MAX_ARRAY_BYTES = 256 * 1024**2  # numbers of one key of one episode; larger arrays are not read
MAX_FRAME_BYTES = 64 * 1024**2  # one decoded image
MAX_FRAMES = 1_000_000  # of one episode


@dataclass(frozen=True, slots=True)
class RawEpisode:
    """One episode as read, with the keys of the source."""

    id: str
    scene_id: str
    fps: float
    timestamps: F64
    numbers: Mapping[str, F64]  # key -> (t, d)
    images: Mapping[str, Sequence[U8]]  # key -> frames
    task: str = ""
    embodiment: str = "unknown"
    action_space: str = ""
    success: bool = True
    source: str = ""
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    absent: Collection[str] = ()  # fields that other episodes have but this one lacks


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of a source that cannot be used."""

    path: Path
    episode: int | None  # index in the source; None if it belongs to no episode
    why: str

    @classmethod
    def of(cls, path: Path, episode: int, error: DatasetError) -> Damage:
        """From an error, without the location and remedy, which are added when it is printed."""
        text = str(error).removeprefix(f"{path}, ").removeprefix(f"episode {episode}").lstrip(": ")
        return cls(path, episode, text.rpartition("; ")[0] or text)

    def __str__(self) -> str:
        where = "" if self.episode is None else f", episode {self.episode}"
        remedy = "restore the file, or leave it out with recap pool add --skip-damaged"
        return f"{self.path}{where}: {self.why}; {remedy}"


class Reader(Protocol):
    """Reads one format; mapping and everything after it is shared.

    A package adds a format by an entry point of the group `recap.formats`. The reader is created with the
    path and the given frame rate, and `recognises` detects the format.
    """

    keys: dict[str, SourceKey]  # keys of the first episode

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """True if a file or folder has this format; only called for plugins."""
        return False

    def __len__(self) -> int: ...

    def lengths(self) -> Sequence[int]:
        """Frames of each episode, without reading them."""

    def damage(self) -> Sequence[Damage]:
        """Missing or broken files, as far as headers show; other damage is found when an episode is read."""
        return ()

    def default_mapping(self) -> Mapping[str, str]:
        """Our field -> key of the source, unless the caller maps it."""

    def read(self, index: int, numbers: Collection[str], images: Collection[str]) -> RawEpisode:
        """One episode with these keys."""


@dataclass(frozen=True, slots=True)
class FieldReport:
    """One of our fields, as in the first episode."""

    name: str
    origin: str  # the entry of the mapping
    keys: tuple[str, ...]  # of the source
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Both sides of an import: keys of the source, and our fields."""

    keys: tuple[SourceKey, ...]
    fields: tuple[FieldReport, ...]
    lengths: tuple[int, ...]  # frames of each episode
    first: Episode  # the first readable episode


class Source(LazySequence[Episode]):
    """Demonstrations of another format as a sequence of episodes, read one at a time."""

    def __init__(
        self,
        path: Path,
        format: str,
        reader: Reader,
        mapping: Mapping[str, str],
        transform: Transform | None = None,
        skip_damaged: bool = False,
        column: str | None = None,
    ) -> None:
        self.path = path
        self.format = format
        self._reader = reader
        self._transform = transform
        self._skip_damaged = skip_damaged
        self._column = column if column is not None and self.has_column(column) else None
        with as_dataset_error(path):
            self.plan: Plan = make_plan(mapping, reader.default_mapping(), reader.keys)
            found = list(reader.damage())
        self._no_episode = [damage for damage in found if damage.episode is None]
        self._damaged = {damage.episode: damage for damage in found if damage.episode is not None}

    def __len__(self) -> int:
        return len(self._reader)

    def lengths(self) -> Sequence[int]:
        """Frames of each episode, without reading them."""
        with as_dataset_error(self.path):
            return self._reader.lengths()

    @property
    def damage(self) -> list[Damage]:
        """Damage known from headers, and damage found while iterating with `skip_damaged`."""
        return [*self._no_episode, *self._damaged.values()]

    def _item(self, number: int) -> Episode:
        if number in self._damaged:
            raise DatasetError(str(self._damaged[number]), code="dataset.damaged")
        with as_dataset_error(self.path, f"episode {number}"):
            keys = self.plan.keys() | ({self._column} if self._column else set())
            raw = self._reader.read(number, keys, set(self.plan.images.values()))
            episode = _episode(raw, self.plan)
            if self._column is not None:
                episode = replace(episode, attributes=_with_column(raw, self._column))
        return episode if self._transform is None else self._transform(episode)  # its errors are not damage

    def has_column(self, key: str) -> bool:
        """True if the source has a numeric column of that name."""
        return key in self._reader.keys and self._reader.keys[key].kind == "numbers"

    def column(self, number: int, key: str) -> F64 | None:
        """Unmapped numbers (t, d) of an episode; None if the source has no such column."""
        if not self.has_column(key):
            return None
        with as_dataset_error(self.path, f"episode {number}"):
            return self._reader.read(number, [key], ()).numbers[key]

    def __iter__(self) -> Iterator[Episode]:
        """All episodes; with `skip_damaged` only the readable ones, and `damage` lists the others."""
        if self.damage and not self._skip_damaged:
            more = f" (and {len(self.damage) - 1} more)" if len(self.damage) > 1 else ""
            raise DatasetError(f"{self.damage[0]}{more}", code="dataset.damaged")
        for number in range(len(self)):
            episode = self._sound(number) if self._skip_damaged else self[number]
            if episode is not None:
                yield episode

    def _sound(self, number: int) -> Episode | None:
        """An episode; None if it is unreadable, which is added to `damage`."""
        if number in self._damaged:
            return None
        try:
            return self[number]
        except DatasetError as error:
            self._damaged[number] = Damage.of(self.path, number, error)
            return None

    def describe(self) -> SourceReport:
        """Both sides, from the headers of all episodes and the values of the first readable one."""
        sound = (episode for i in range(len(self)) if (episode := self._sound(i)) is not None)
        first = next(sound, None)
        if first is None:
            raise DatasetError(f"no episode can be read, the first because of: {self.damage[0]}")
        lengths = tuple(self.lengths())
        with as_dataset_error(self.path):
            keys = tuple(self._reader.keys.values())
        return SourceReport(keys, tuple(_reports(first, self.plan)), lengths, first)


class PickedFrames(LazySequence[U8]):
    """Selected frames of another sequence, decoded on demand."""

    def __init__(self, frames: Sequence[U8], indices: NDArray[np.int64]) -> None:
        self._frames, self._indices, self.length = frames, indices, len(indices)

    def _item(self, number: int) -> U8:
        return self._frames[int(self._indices[number])]

    def __iter__(self) -> Iterator[U8]:
        last, frame = -1, None
        for index in self._indices.tolist():
            if frame is None or index != last:  # decode a repeated frame once
                last, frame = index, self._frames[index]
            yield frame


# Errors that Python and libraries raise on damaged or foreign files. h5py and deep JSON raise RuntimeError.
_DAMAGE = (ArithmeticError, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError)
_FORMAT_DAMAGE = (ValueError, csv.Error, struct.error, zipfile.BadZipFile, zlib.error)


@contextmanager
def as_dataset_error(path: Path, what: str = "") -> Iterator[None]:
    """Turn any error of a damaged or foreign file into one line that names the file."""
    import pyarrow as pa

    where = f"{path}, {what}" if what else str(path)
    try:
        yield
    except RecapError as error:
        if not what if isinstance(error, InputError) else str(path) in str(error):
            raise  # the message already names the file
        raise DatasetError(f"{where}: {cause(error, 300)}") from error
    except KeyError as error:
        raise DatasetError(f"{where} cannot be read: {cause(error)} is missing; check the file") from error
    except MemoryError as error:
        raise DatasetError(f"{where} does not fit into memory; split it into smaller episodes") from error
    except (*_DAMAGE, *_FORMAT_DAMAGE, pa.ArrowException) as error:
        why = cause(error, 300)
        raise DatasetError(f"{where} cannot be read: {why}; repair the file or leave it out") from error


def check_size(what: str, shape: Sequence[int], itemsize: int, limit: int = MAX_ARRAY_BYTES) -> None:
    """Refuse an array by its declared shape, before it is read."""
    n_bytes = itemsize
    for n in shape:
        n_bytes *= int(n)  # Python integers do not overflow
    if n_bytes > limit or (shape and shape[0] > MAX_FRAMES):
        raise DatasetError(
            f"{shorten(what)} claims to be {n_bytes / 1024**2:.0f} MiB of shape {tuple(shape)}, more than an "
            "episode should hold; check the file or split the episode"
        )


def as_matrix(values: NDArray[Any]) -> F64:
    """Numbers as (t, d) in float64."""
    if values.dtype.kind not in "fiub" or values.ndim < 1:
        raise ValueError(f"{values.dtype} {values.shape} is no table of numbers")
    width = int(np.prod(values.shape[1:], dtype=np.int64))
    return values.reshape(len(values), width).astype(np.float64)


def check_fps(fps: float, what: str = "frame rate") -> float:
    """The rate, if it is positive and finite; otherwise raises an InputError."""
    if not (np.isfinite(fps) and fps > 0):
        raise InputError(f"{fps} is no {what}: give frames per second, such as 20")
    return float(fps)


def read_text(path: Path) -> str:
    """The content of a small text file."""
    if path.stat().st_size > MAX_TEXT_BYTES:
        raise DatasetError(f"{path} is too long for a description: check the file")
    return path.read_text(encoding="utf-8")


def _episode(raw: RawEpisode, plan: Plan) -> Episode:
    with np.errstate(over="ignore", invalid="ignore"):  # overflow becomes infinite, which checks report
        wanted = {name: part for name, part in plan.numbers.items() if name not in raw.absent}
        values = {name: part.read(raw.numbers).astype(np.float32) for name, part in wanted.items()}
    goal = values.get("goal")
    if goal is not None and not len(goal):
        raise ValueError("the goal is empty")
    return Episode(
        id=one_line("name", raw.id),
        scene_id=one_line("scene", raw.scene_id),
        task=plan.words.get("task", one_line("task", raw.task)),
        embodiment=plan.words.get("embodiment", one_line("embodiment", raw.embodiment)),
        fps=raw.fps,
        timestamps=raw.timestamps,
        proprio=values["proprio"],
        actions=values["action"],
        objects={
            name.removeprefix(OBJECT): value for name, value in values.items() if name.startswith(OBJECT)
        },
        goal=None if goal is None else goal[0].copy(),
        images={camera: raw.images[key] for camera, key in plan.images.items()},
        action_space=plan.words.get("action_space", one_line("action space", raw.action_space)),
        success=raw.success,
        source=one_line("source", raw.source),
        attributes=raw.attributes,
    )


def _with_column(raw: RawEpisode, name: str) -> dict[str, Scalar]:
    """The attributes, plus a column that is constant within the episode."""
    values = raw.numbers[name]
    if values.shape[1:] != (1,) or not len(values) or (values != values[0]).any():
        raise ValueError(f"column '{name}' is not one number that is the same in every frame")
    value = float(values[0, 0])
    return {**raw.attributes, name: int(value) if value.is_integer() else value}


def _reports(episode: Episode, plan: Plan) -> Iterator[FieldReport]:
    arrays = {"proprio": episode.proprio, "action": episode.actions}
    if episode.goal is not None:
        arrays["goal"] = episode.goal
    arrays |= {f"{OBJECT}{name}": values for name, values in episode.objects.items()}
    for name, selection in ((name, part) for name, part in plan.numbers.items() if name in arrays):
        keys = tuple(dict.fromkeys(part.key for part in selection.parts))
        yield FieldReport(name, selection.text, keys, arrays[name].shape, str(arrays[name].dtype))
    for camera, key in plan.images.items():
        frames = episode.images[camera]
        shape = frames[0].shape if len(frames) else ()
        yield FieldReport(f"{IMAGE}{camera}", key, (key,), (len(frames), *shape), "uint8")

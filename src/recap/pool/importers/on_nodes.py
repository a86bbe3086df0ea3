"""Encodes the videos of a dataset on the nodes of a Ray cluster, for a pool that all nodes can access."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path

import av

import recap
from recap.errors import DatasetError, InputError, RecapError
from recap.on_ray import run_on_ray
from recap.pool.blobs import blob_name, encode, put_blob
from recap.pool.files import Files
from recap.pool.importers import Source, open_source
from recap.pool.importers.resample import fitted
from recap.pool.schema import Films
from recap.pool.store import on_this_node
from recap.types import Episode

N_PART = 8  # episodes per part, which is lost if a node dies
_VERSIONS = f"recap {recap.__version__}, av {av.__version__}"


@dataclass(frozen=True)
class Reading:
    """How a dataset is read, and for which pool; small enough to send to every node."""

    uri: str
    path: Path
    format: str
    mapping: Mapping[str, str]
    fps: float | None  # of the recording
    rate: float | None  # of the resampled episodes
    image_size: int | None
    versions: str = _VERSIONS  # they determine the bytes of a video


def films_by_nodes(
    files: Files, reading: Reading, numbers: Mapping[str, int], address: str, episodes: Sequence[Episode]
) -> Iterator[Films]:
    """The videos of each finished part, as episode -> camera -> hash.

    Args:
        numbers: index of each episode in its dataset.
    """
    items = [(numbers[episode.id], _first_look(episode)) for episode in episodes if episode.images]
    for films in run_on_ray(partial(_encode_part, reading), items, N_PART, address) if items else ():
        for name, cameras in films.items():
            if not all(files.exists(blob_name(digest)) for digest in cameras.values()):
                raise DatasetError(
                    f"the films of episode {name!a} were encoded but are not in {reading.uri}: "
                    "are all nodes at work on the same one?"
                )
        yield films


def _encode_part(reading: Reading, items: Sequence[tuple[int, str]]) -> Films:
    """Encode and store the videos of some episodes; files are named by hash, so this can be repeated."""
    node = f"node {socket.gethostname()}"
    pool = on_this_node(reading.uri)
    if reading.versions != _VERSIONS:
        raise InputError(f"{node} has {_VERSIONS}, not {reading.versions}: install the same there")
    try:
        source = _opened(reading.path, reading.format, tuple(reading.mapping.items()), reading.fps)
        found: dict[str, dict[str, str]] = {}
        for number, look in items:
            episode = fitted(source[number], reading.rate, reading.image_size)
            if _first_look(episode) != look:
                raise InputError(f"its episode {number} is another")
            films = ((name, encode(frames, episode.fps)) for name, frames in episode.images.items())
            found[episode.id] = {name: put_blob(pool.files, film) for name, film in films}
    except (RecapError, OSError) as error:
        why = f"{node} cannot read {reading.path} as it is here ({error}): "
        raise InputError(why + "put the dataset where every node sees it by the same path") from None
    return found


def _first_look(episode: Episode) -> str:
    """A hash of the id, the timestamps and the first frame of each camera."""
    whole = sha256(f"{episode.id}/{episode.fps}/".encode("utf-8", "replace") + episode.timestamps.tobytes())
    for name, frames in episode.images.items():
        whole.update(name.encode("utf-8", "replace") + frames[0].tobytes())
    return whole.hexdigest()


@lru_cache(maxsize=1)
def _opened(path: Path, format: str, mapping: tuple[tuple[str, str], ...], fps: float | None) -> Source:
    """The source, opened once per process."""
    return open_source(path, format=format, mapping=dict(mapping), fps=fps, skip_damaged=True)

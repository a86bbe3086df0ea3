"""Demonstrations that come over HTTP: streamed to a file, unpacked with care, checked, added."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import fields
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
from aiohttp import web

from recap.errors import InputError, RecapError, WireError
from recap.kinematics import tool_space
from recap.pool.content import TEXTS, check_episode
from recap.pool.importers import open_source
from recap.pool.importers.checks import check_dataset
from recap.pool.importers.resample import resample
from recap.pool.layout import refuse_other_layout
from recap.pool.store import Pool
from recap.serving.service import Service
from recap.serving.spec import Limits
from recap.types import Episode
from recap.video import video_size
from recap_client.wire import decode_map

ZIP_TYPES = ("application/zip", "application/x-zip-compressed")
WIRE_TYPES = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
CHUNK = 2**16
MAX_SIDE = 4096  # px of a film
MAX_NAME = 500  # characters of an id
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
KEYS = {field.name for field in fields(Episode)} - {"cut_from"}


async def add_upload(request: web.Request, service: Service, threads: Executor) -> tuple[int, list[str]]:
    """Take in an upload; the version that has it, and the ids that are new in it."""
    pool, limits, look = service.store, service.spec.limits, service.look
    kind = request.content_type
    if kind not in (*ZIP_TYPES, *WIRE_TYPES):
        raise InputError(f"an upload of {kind} is not known: send application/zip, or application/msgpack")
    skip = request.query.get("skip_existing", "").lower() in ("1", "true", "yes")
    name = request.query.get("name")
    if name is not None and not _NAME.fullmatch(name):
        raise InputError(f"'{name[:40]}' is no name for a dataset: give letters, digits, dots and dashes")
    loop = asyncio.get_running_loop()
    folder = Path(tempfile.mkdtemp(prefix="recap-upload-"))
    file = folder / "upload"

    def work() -> tuple[int, list[str]]:
        try:
            if kind in ZIP_TYPES:
                episodes = _zipped(file, folder / "unpacked", name, limits)
            else:
                message = decode_map(file.read_bytes(), limits.max_upload_bytes)
                episodes = [episode_of(message, limits.max_frames)]
            for episode in episodes:
                check_episode(episode)
            if look.estimates:
                episodes = [service.scene.complete(episode, look.requires) for episode in episodes]
            return _add(episodes, pool, skip)
        except RecapError as error:
            # The folder is ours and means nothing to whoever sent the upload.
            raise InputError(str(error).replace(f"{folder}/", "")) from error

    try:
        with file.open("wb") as out:
            async with asyncio.timeout(limits.upload_timeout_s):
                await _receive(request, out, limits)
        return await loop.run_in_executor(threads, work)
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the upload has stalled: send it again") from None
    finally:
        # In a thread too: ten thousand files take their time.
        await loop.run_in_executor(threads, partial(shutil.rmtree, folder, ignore_errors=True))


async def _receive(request: web.Request, out: BinaryIO, limits: Limits) -> None:
    most = limits.max_upload_bytes
    too_large = web.HTTPRequestEntityTooLarge(
        most, text=f"an upload may have {most} bytes: send fewer demonstrations at once"
    )
    if (request.content_length or 0) > most:
        raise too_large
    n = 0
    while True:
        async with asyncio.timeout(limits.upload_stall_s):
            data = await request.content.read(CHUNK)
        if not data:
            return
        n += len(data)
        if n > most:
            raise too_large
        out.write(data)


def episode_of(message: Mapping[str, Any], max_frames: int = Limits.max_frames) -> Episode:
    """One episode of a message, checked by its keys; missing times follow from `fps`."""
    for key in sorted(set(message) - KEYS):
        raise WireError(f"the episode has an unknown key '{key[:40]}': send {', '.join(sorted(KEYS))}")
    for key in ("id", "task", "embodiment", "fps", "proprio", "actions"):
        if key not in message:
            raise WireError(f"the episode lacks '{key}': send it")
    texts = {key: message.get(key, "") for key in TEXTS}
    texts["scene_id"] = texts["scene_id"] or texts["id"]
    if any(not isinstance(text, str) or len(text) > MAX_NAME for text in texts.values()):
        raise WireError(f"one of {', '.join(TEXTS)} is no text of up to {MAX_NAME} characters")
    fps = message["fps"]
    if not isinstance(fps, int | float) or isinstance(fps, bool) or not 0 < fps <= 1000:
        raise WireError("'fps' is no rate from 0 to 1000: send frames a second")
    proprio = _array(message, "proprio", 2)
    if not 0 < len(proprio) <= max_frames:
        raise WireError(f"the episode has {len(proprio)} steps: send 1 to {max_frames}")
    times = np.arange(len(proprio)) / float(fps)
    if message.get("timestamps") is not None:
        times = _array(message, "timestamps", 1, np.float64)
    objects, films = _map(message, "objects"), _map(message, "images")
    success = message.get("success", True)
    if not isinstance(success, bool | np.bool_):
        raise WireError("'success' is neither true nor false: send one")
    return Episode(
        **texts,
        fps=float(fps),
        timestamps=times,
        proprio=proprio,
        actions=_array(message, "actions", 2),
        objects={name: _array(objects, name, 2) for name in objects},
        goal=None if message.get("goal") is None else _array(message, "goal", 1),
        images={name: _film(films, name) for name in films},
        success=bool(success),
        attributes=_map(message, "attributes"),
    )


def _map(message: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = message.get(key, {})
    if not isinstance(value, dict):
        raise WireError(f"'{key}' is a {type(value).__name__}: send a map")
    return value


def _array(message: Mapping[str, Any], key: str, n_dims: int, dtype: Any = np.float32) -> Any:
    value = message[key]
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf" or value.ndim != n_dims:
        raise WireError(f"'{key[:40]}' is no array of {n_dims} dimensions: send numbers")
    with np.errstate(all="ignore"):
        return value.astype(dtype)


def _film(message: Mapping[str, Any], key: str) -> Any:
    value = message[key]
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 4 or value.shape[3] != 3:
        raise WireError(f"film '{key[:40]}' is no uint8 (steps, height, width, 3): send that")
    if max(value.shape[1:3]) > MAX_SIDE or min(value.shape[1:3]) < 16:
        raise WireError(
            f"film '{key[:40]}' is {value.shape[2]}x{value.shape[1]} px: send 16 to {MAX_SIDE} a side"
        )
    return value


def _zipped(file: Path, folder: Path, name: str | None, limits: Limits) -> list[Episode]:
    """The episodes of a LeRobot v3 dataset; those without an id of ours are called by the dataset's name."""
    unpack(file, folder, limits)
    found = _root(folder)
    if name is None:
        # One that lies at the top of its zip has no name: what it holds gives it one.
        with file.open("rb") as packed:
            digest = hashlib.file_digest(packed, "sha256").hexdigest()
        name = f"upload-{digest[:12]}" if found == folder else found.name
    root = found.rename(folder.parent / name)
    _check_tables(root, limits)
    _check_films(root)
    return list(open_source(root, format="lerobot"))


def _add(episodes: list[Episode], pool: Pool, skip: bool) -> tuple[int, list[str]]:
    errors = [finding for finding in check_dataset(episodes) if finding.severity == "error"]
    if errors:
        raise InputError(f"the upload was not added: {errors[0]}")
    view = pool.view()
    convert = tool_space(view.robot)
    episodes = episodes if convert is None else [convert(episode) for episode in episodes]
    there = [episode.id for episode in episodes if episode.id in view.digests]
    if there and not skip:
        raise web.HTTPConflict(text=f"episode {there[0]!a} is in the pool already: give it another id")
    refuse_other_layout(view, episodes)
    fps = next((episode.fps for episode in view), None)
    if fps is not None:
        episodes = [resample(episode, fps) for episode in episodes]
    version = pool.add(episodes, skip_existing=skip)
    return version, [episode.id for episode in episodes if episode.id not in there]


def unpack(file: Path, folder: Path, limits: Limits) -> None:
    """A zip into a new folder: plain files only, within it, and no larger than they say and may be."""
    try:
        with zipfile.ZipFile(file) as archive:
            left = limits.max_unpacked_bytes
            for member, path in _members(archive.infolist(), limits):
                left -= _unpack_member(archive, member, folder / path, left)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise InputError(f"the zip cannot be read ({type(error).__name__}): pack it again") from error


def _members(
    members: list[zipfile.ZipInfo], limits: Limits
) -> Iterator[tuple[zipfile.ZipInfo, PurePosixPath]]:
    """The files, each with a place that is safe; anything odd refuses the whole zip."""
    if len(members) > limits.max_members:
        raise InputError(f"the zip has {len(members)} members: send at most {limits.max_members}")
    if sum(member.file_size for member in members) > limits.max_unpacked_bytes:
        raise InputError(f"the zip unpacks to more than {limits.max_unpacked_bytes} bytes: send it in parts")
    seen: set[str] = set()
    for member in members:
        name, path = member.filename, PurePosixPath(member.filename)
        odd = path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name
        mode = member.external_attr >> 16
        if odd or len(name) > MAX_NAME or not path.parts or str(path).lower() in seen:
            raise InputError(f"the zip has a member with an unsafe name, {name[:80]!a}: pack it again")
        if member.flag_bits & 1 or (mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR)):
            raise InputError(
                f"the zip has a member {name[:80]!a} that is encrypted or no plain file: leave it out"
            )
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError("the zip is packed by another method than deflate: pack it again")
        seen.add(str(path).lower())
        if not member.is_dir():
            yield member, path


def _unpack_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, left: int) -> int:
    """Write one file and return its size, which must be what the zip says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    n = 0
    with archive.open(member) as source, path.open("xb") as out:
        while data := source.read(CHUNK):
            n += len(data)
            if n > min(left, member.file_size):
                raise InputError("the zip unpacks to more than it says: pack it again")
            out.write(data)
    return n


def _root(folder: Path) -> Path:
    """Where the dataset begins: at the top, or in the one folder that is there."""
    inner = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    for root in (folder, *(inner if len(inner) == 1 else [])):
        if (root / "meta" / "info.json").is_file():
            return root
    raise InputError("the zip holds no LeRobot v3 dataset: pack its folder with meta/info.json")


def _check_tables(root: Path, limits: Limits) -> None:
    """A small Parquet file may hold a huge table; its footer says how large."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n_rows = n_bytes = 0
    for file in sorted(root.rglob("*.parquet")):
        try:
            meta = pq.read_metadata(file)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(
                f"{file.relative_to(root)} is no Parquet file: pack the dataset again"
            ) from error
        n_rows += meta.num_rows
        n_bytes += sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
    if n_rows > 2 * limits.max_frames or n_bytes > limits.max_unpacked_bytes:
        raise InputError(f"the dataset has {n_rows} rows of {n_bytes} bytes: send it in parts")


def _check_films(root: Path) -> None:
    """A small film may unpack to huge pictures; its head says how large."""
    for file in sorted(root.rglob("*.mp4")):
        width, height = video_size(file)
        if max(width, height) > MAX_SIDE:
            raise InputError(f"{file.relative_to(root)} is {width}x{height} px: send up to {MAX_SIDE} a side")

"""Reads an upload in a separate process with limits on memory and time, to protect the server."""

from __future__ import annotations

import errno
import json
import multiprocessing
import resource
import signal
import stat
import sys
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from multiprocessing.connection import Connection
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from recap.errors import InputError, RecapError, WireError
from recap.pool.content import TEXTS, check_episode
from recap.pool.files import Files
from recap.pool.importers import open_source
from recap.pool.importers.checks import check_dataset
from recap.pool.schema import ArrowRows, table_of, take_apart
from recap.serving.spec import Limits
from recap.sums import file_sha256
from recap.types import Episode
from recap.video import video_size
from recap_client.wire import decode_map

CHUNK = 2**16
MAX_SIDE = 4096  # px of a video
MAX_NAME = 500  # characters of an id
MAX_JSON = 16 * 2**20  # bytes of a JSON file in a zip, since it is read into memory
KEYS = {field.name for field in fields(Episode)} - {"cut_from"}
FILE, READ = "upload", "read.arrow"  # files of the upload, and of its parsed rows
NAMES, FRAMES = "cameras.json", "frames-{}.npy"
TOO_MUCH_MEMORY = "the upload takes more memory to read than it may: send it in parts"
START_S = 60.0  # for the process to start, on a busy machine
CONTEXT = multiprocessing.get_context("forkserver")
_STARTING = threading.Lock()


def start_reading() -> None:
    """Start the fork server, so that the first upload need not wait for it."""
    from multiprocessing import forkserver

    CONTEXT.set_forkserver_preload([__name__])
    forkserver.ensure_running()


def read_upload(folder: Path, zip_name: str | None, is_zip: bool, limits: Limits) -> list[Episode]:
    """Read and check the episodes of `folder/upload`; their videos are in that folder.

    Args:
        zip_name: name of the dataset; None: that of its folder in the zip, or a hash.
    """
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_work, args=(theirs, folder, zip_name, is_zip, limits), daemon=True)
    with ours:
        with _without_main():
            process.start()
        theirs.close()
        try:
            why = _outcome(ours, limits)
        finally:
            process.kill()
            process.join()
    if why is not None:
        raise InputError(why)
    with pa.OSFile(str(folder / READ)) as file:
        table = pa.ipc.open_file(file).read_all()
    episodes = [row.episode(Files(folder)) for row in ArrowRows(table)]
    if is_zip:
        return episodes
    names = json.loads((folder / NAMES).read_text("utf-8"))
    frames = {
        name: np.load(folder / FRAMES.format(number), mmap_mode="r", allow_pickle=False)
        for number, name in enumerate(names)
    }
    return [replace(episodes[0], images=frames)]


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep a new process from importing the main script, which may lack an `if __name__` guard."""
    with _STARTING:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _outcome(pipe: Connection, limits: Limits) -> str | None:
    """The reason why an upload is refused, or None if it was read."""
    try:
        if not pipe.poll(START_S):
            return "the upload could not be read now: send it again"
        pipe.recv_bytes()  # the process has started
        if not pipe.poll(limits.upload_work_s):
            return f"the upload takes more than {limits.upload_work_s:g} s to read: send it in parts"
        return json.loads(pipe.recv_bytes(2**16))["why"]  # type: ignore[no-any-return]
    except EOFError:
        return TOO_MUCH_MEMORY


def _work(pipe: Connection, folder: Path, zip_name: str | None, is_zip: bool, limits: Limits) -> None:
    """The main function of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):  # the server has ended
        pipe.send_bytes(b"begun")
        _limit(limits)
        why = _why_refused(folder, zip_name, is_zip, limits)
        pipe.send_bytes(json.dumps({"why": None if why is None else why[:2000]}).encode())


def _why_refused(folder: Path, zip_name: str | None, is_zip: bool, limits: Limits) -> str | None:
    try:
        _read(folder, zip_name, is_zip, limits)
    except Exception as error:
        if _lacks_memory(error):
            return TOO_MUCH_MEMORY
        if isinstance(error, RecapError):
            return str(error).replace(f"{folder}/", "")  # the path means nothing to the client
        return f"the upload cannot be read ({type(error).__name__}): check and send it again"
    return None


def _lacks_memory(error: BaseException | None) -> bool:
    """True if lack of memory is in the chain of causes of an error."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        error = error.__cause__ or error.__context__
    return False


def _limit(limits: Limits) -> None:
    """Limit the memory, CPU time and file size of this process, beyond the memory it already uses."""
    used = 0
    with suppress(OSError, ValueError, IndexError):  # no /proc: the limit is then stricter
        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    seconds = int(limits.upload_work_s) + 1
    for what, most in (
        (resource.RLIMIT_DATA, used + limits.max_upload_memory_bytes),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, limits.max_unpacked_bytes + 2**20),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _read(folder: Path, zip_name: str | None, is_zip: bool, limits: Limits) -> None:
    """Write the episodes of an upload as rows of a pool and videos."""
    if is_zip:
        episodes = _zipped(folder / FILE, folder / "unpacked", zip_name, limits)
    else:
        message = decode_map((folder / FILE).read_bytes(), limits.max_upload_bytes)
        episodes = [episode_of(message, limits.max_frames)]
    for episode in episodes:
        check_episode(episode)
    refuse_errors(episodes)
    if not is_zip:  # raw frames: poses may be estimated from them, and a video would blur them
        frames = episodes[0].images
        for number, name in enumerate(frames):
            np.save(folder / FRAMES.format(number), frames[name])
        (folder / NAMES).write_text(json.dumps(list(frames)), "utf-8")
        episodes = [replace(episodes[0], images={})]
    table = table_of(take_apart(Files(folder), episodes, lambda done, total: None), range(len(episodes)))
    with pa.OSFile(str(folder / READ), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


def refuse_errors(episodes: list[Episode]) -> None:
    """Refuse episodes with errors."""
    errors = [finding for finding in check_dataset(episodes) if finding.severity == "error"]
    if errors:
        raise InputError(f"the upload was not added: {errors[0]}")


def episode_of(message: Mapping[str, Any], max_frames: int = Limits.max_frames) -> Episode:
    """Convert a message to an episode and check its fields; default timestamps follow from `fps`."""
    for key in sorted(set(message) - KEYS):
        raise WireError(f"the episode has an unknown key '{key[:40]}': send {', '.join(sorted(KEYS))}")
    for key in ("id", "task", "embodiment", "fps", "proprio", "actions"):
        if key not in message:
            raise WireError(f"the episode lacks '{key}': send it")
    texts = {key: message.get(key, "") for key in TEXTS}
    texts["scene_id"] = texts["scene_id"] or texts["id"]
    if any(not isinstance(text, str) or len(text) > MAX_NAME for text in texts.values()):
        raise WireError(f"one of {', '.join(TEXTS)} is not text of up to {MAX_NAME} characters")
    fps = message["fps"]
    if not isinstance(fps, int | float) or isinstance(fps, bool) or not 0 < fps <= 1000:
        raise WireError("'fps' is not a rate from 0 to 1000: send frames per second")
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
        raise WireError(f"'{key[:40]}' is not an array of {n_dims} dimensions: send numbers")
    with np.errstate(all="ignore"):
        return value.astype(dtype)


def _film(message: Mapping[str, Any], key: str) -> Any:
    value = message[key]
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 4 or value.shape[3] != 3:
        raise WireError(f"film '{key[:40]}' is not uint8 of shape (steps, height, width, 3)")
    if max(value.shape[1:3]) > MAX_SIDE or min(value.shape[1:3]) < 16:
        raise WireError(f"film '{key[:40]}' is {value.shape[1:3]} px: send 16 to {MAX_SIDE} per side")
    return value


def _zipped(file: Path, folder: Path, name: str | None, limits: Limits) -> list[Episode]:
    """The episodes of a zipped LeRobot v3 dataset; ids that it lacks are made from its name."""
    unpack(file, folder, limits)
    found = _root(folder)
    if name is None:
        # A dataset at the top level of a zip has no folder name, so it is named by its hash.
        name = f"upload-{file_sha256(file)[:12]}" if found == folder else found.name
    root = found.rename(folder.parent / name)
    _check_tables(root, limits)
    for film in sorted(root.rglob("*.mp4")):  # a small file may decode to huge images; check its header
        width, height = video_size(film)
        if max(width, height) > MAX_SIDE:
            raise InputError(f"{film.relative_to(root)} is {width}x{height} px: send at most {MAX_SIDE}")
    return list(open_source(root, format="lerobot"))


def unpack(file: Path, folder: Path, limits: Limits) -> None:
    """Unpack a zip into a new folder: only plain files, only inside it, with their declared size at most."""
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
    """The files with safe relative paths; refuses the whole zip if one is unsafe."""
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
            raise InputError(f"the zip's {name[:80]!a} is encrypted or not a plain file: leave it out")
        if path.suffix == ".json" and member.file_size > MAX_JSON:
            raise InputError(f"the zip's {name[:80]!a} has {member.file_size} bytes: send up to {MAX_JSON}")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError("the zip does not use deflate compression: pack it again")
        seen.add(str(path).lower())
        if not member.is_dir():
            yield member, path


def _unpack_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, left: int) -> int:
    """Write one file and return its size, which may not exceed the declared size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    n = 0
    with archive.open(member) as source, path.open("xb") as out:
        while data := source.read(CHUNK):
            n += len(data)
            if n > min(left, member.file_size):
                raise InputError("the zip unpacks to more than its header says: pack it again")
            out.write(data)
    return n


def _root(folder: Path) -> Path:
    """The root of the dataset: the top level, or the only folder there."""
    inner = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    for root in (folder, *(inner if len(inner) == 1 else [])):
        if (root / "meta" / "info.json").is_file():
            return root
    raise InputError("the zip contains no LeRobot v3 dataset: pack its folder with meta/info.json")


def _check_tables(root: Path, limits: Limits) -> None:
    """Check the table sizes in the Parquet footers, because a small file may hold a huge table."""
    import pyarrow.parquet as pq

    n_rows = n_bytes = 0
    for file in sorted(root.rglob("*.parquet")):
        try:
            meta = pq.read_metadata(file)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{file.relative_to(root)} is not a Parquet file: pack it again") from error
        n_rows += meta.num_rows
        n_bytes += sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
    if n_rows > 2 * limits.max_frames or n_bytes > limits.max_unpacked_bytes:
        raise InputError(f"the dataset has {n_rows} rows of {n_bytes} bytes: send it in parts")

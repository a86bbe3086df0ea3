"""Uploads of demonstrations over HTTP: streamed to a file, read by a separate process, added to the pool."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import BinaryIO

from aiohttp import web

from recap.errors import InputError
from recap.kinematics import tool_space
from recap.pool.importers.resample import resample
from recap.pool.layout import refuse_other_layout
from recap.pool.store import Pool
from recap.serving.service import Service
from recap.serving.spec import Limits
from recap.serving.upload_reading import CHUNK, FILE, read_upload, refuse_errors
from recap.types import Episode

ZIP_TYPES = ("application/zip", "application/x-zip-compressed")
WIRE_TYPES = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


async def add_upload(request: web.Request, service: Service, threads: Executor) -> tuple[int, list[str]]:
    """Receive and add an upload; returns the new version and the ids that were added."""
    pool, limits, spec = service.store, service.spec.limits, service.obs_spec
    kind = request.content_type
    if kind not in (*ZIP_TYPES, *WIRE_TYPES):
        raise InputError(f"unknown upload type {kind}: send application/zip, or application/msgpack")
    skip = request.query.get("skip_existing", "").lower() in ("1", "true", "yes")
    name = request.query.get("name")
    if name is not None and not _NAME.fullmatch(name):
        raise InputError(f"'{name[:40]}' is not a valid dataset name: give letters, digits, dots and dashes")
    loop = asyncio.get_running_loop()
    folder = Path(tempfile.mkdtemp(prefix="recap-upload-"))
    file = folder / FILE

    def work() -> tuple[int, list[str]]:
        episodes = read_upload(folder, name, kind in ZIP_TYPES, limits)
        if spec.estimates:
            episodes = [service.scene.complete(episode, spec.requires) for episode in episodes]
            refuse_errors(episodes)
        return _add(episodes, pool, skip)

    try:
        with file.open("wb") as out:
            async with asyncio.timeout(limits.upload_timeout_s):
                await _receive(request, out, limits)
        return await loop.run_in_executor(threads, work)
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the upload has stalled: send it again") from None
    finally:
        # Also in a thread, because deleting ten thousand files is slow.
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


def _add(episodes: list[Episode], pool: Pool, skip: bool) -> tuple[int, list[str]]:
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

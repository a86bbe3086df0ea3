"""Can any message break the server? Malformed frames, episodes and zips, in large numbers.

python research/benchmarks/serve_fuzz.py --json docs/results/serve_fuzz.json

Every case is a valid message that is cut, flipped, spliced or filled with odd values, or is noise.
The decoder and the parser of observations are called directly; episodes and zips go through the real upload
route of a running server, which must answer each and keep serving.
"""

from __future__ import annotations

import asyncio
import gc
import io
import os
import struct
import tempfile
import threading
import time
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgpack
import numpy as np
from report import arguments, finish
from serve_load import agent_named, rss_mib
from yarl import URL

from recap.cli.one_line import run_script
from recap.errors import RecapError
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.store import Pool
from recap.serving.app import build_app, start
from recap.serving.observations import ObservationSpec, read_executed, read_observation, read_reset
from recap.serving.service import ServeSpec, Service
from recap.serving.spec import Limits
from recap.types import Episode, Requires
from recap_client.wire import decode, decode_map, encode
from recap_worlds.pusht.collecting import CollectSpec, demonstrate
from recap_worlds.pusht.robot import PUSHT

LOOK = ObservationSpec(PUSHT, Requires(("block",), True, ("top",)), True, "push")
LIMITS = Limits(max_upload_bytes=2**20, max_unpacked_bytes=2**22, max_members=100)
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 2**64 - 1, 1e308, float("nan"), float("-inf"), "", "x" * 2000, b"", b"\xff" * 9,
    [], {}, [[]], {"a": {}}, np.zeros(0), np.zeros((0, 3), np.uint8), np.full(2, np.nan), np.full(3, 1e30),
    np.zeros((2, 2)), np.arange(3, dtype=">i4"), np.zeros((40, 96, 3), np.uint8), 
    "<img onerror=x>", "../../x",
)  # fmt: skip
HEADS = b"\xc1\xc4\xc5\xc6\xc7\xc8\xc9\xca\xcb\xd4\xd8\xd9\xda\xdb\xdc\xdd\xde\xdf\x80\x8f\x90\x9f\xa0\xbf"


def mutations(good: list[bytes], rng: np.random.Generator) -> Iterator[bytes]:
    """Endless mutations of valid bytes."""
    while True:
        data = bytearray(good[rng.integers(len(good))])
        kind = rng.integers(7)
        if kind == 0:
            yield rng.bytes(int(rng.integers(0, 300)))
            continue
        if kind == 1:
            del data[rng.integers(len(data)) :]
        elif kind == 2:
            for at in rng.integers(len(data), size=rng.integers(1, 8)):
                data[at] = rng.integers(256)
        elif kind == 3:  # the structure is in the first bytes
            for at in rng.integers(min(len(data), 150), size=rng.integers(1, 4)):
                data[at] = HEADS[rng.integers(len(HEADS))]
        elif kind == 4:
            at, n = int(rng.integers(len(data))), int(rng.integers(1, 40))
            data[at:at] = data[at : at + n] * int(rng.integers(1, 20))
        elif kind == 5:
            other = good[rng.integers(len(good))]
            data[int(rng.integers(len(data))) :] = other[int(rng.integers(len(other))) :]
        else:
            data[0:0] = bytes([HEADS[rng.integers(len(HEADS))]]) * int(rng.integers(1, 3000))
        yield bytes(data)


def observation() -> dict[str, Any]:
    """A valid observation."""
    return {
        "observation/image": np.zeros((96, 96, 3), np.uint8),
        "observation/state": np.zeros(2, np.float32),
        "observation/goal": np.zeros(3),
        "observation/objects/block": np.zeros(3),
        "observation/images/top": np.zeros((48, 64, 3), np.uint8),
        "prompt": "push",
        "executed": 4,
        "reset": True,
        "seed": 3,
        "options": {"block": "tee"},
    }


def odd_messages(good: dict[str, Any], rng: np.random.Generator) -> Iterator[bytes]:
    """Endless well-formed messages with invalid values."""
    keys = list(good)
    while True:
        message = dict(good)
        for _ in range(rng.integers(1, 4)):
            key = keys[rng.integers(len(keys))]
            if rng.random() < 0.2:
                message.pop(key, None)
            else:
                message[key] = ODD[rng.integers(len(ODD))]
        if rng.random() < 0.1:
            message[str(rng.integers(1000))] = ODD[rng.integers(len(ODD))]
        yield encode(message)


def read(data: bytes) -> str:
    """Decode a message as the socket does."""
    try:
        message = decode_map(data, LIMITS.max_message_bytes)
        read_reset(message)
        read_observation(message, LOOK, 0.0)
        read_executed(message, 8)
    except RecapError as error:
        return "refused" if "\n" not in str(error) and len(str(error)) < 1000 else "refused at length"
    return "taken"


def fuzz_frames(n: int, seed: int) -> dict[str, Any]:
    """Decode n malformed frames."""
    rng = np.random.default_rng(seed)
    small = {**observation(), "observation/image": np.zeros((32, 32, 3), np.uint8)}
    nested = [1, "a", {"b": np.zeros((2, 3))}]
    good = [encode(value) for value in (small, {"reset": True}, np.float32(1), nested)]
    good += [msgpack.packb([i, -i, 1.5 * i, "x" * i, b"y" * i, {"k": [i]}]) for i in (0, 40, 300)]
    sources = [mutations(good, rng), odd_messages(observation(), rng)]
    told: Counter[str] = Counter()
    slowest, marks = 0.0, []
    tracemalloc.start()
    started = time.perf_counter()
    for i in range(n):
        data = next(sources[rng.random() < 0.3])
        before = time.perf_counter()
        told[read(data)] += 1
        slowest = max(slowest, time.perf_counter() - before)
        if i % max(n // 10, 1) == 0:
            gc.collect()  # until then, errors reference the frames they passed through
            marks.append(tracemalloc.get_traced_memory()[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "frames": n,
        **told,
        "frames_per_s": n / (time.perf_counter() - started),
        "slowest_ms": 1000 * slowest,
        # In the second half: Python's table of names grows once by 4 MiB in the first half.
        "memory_growth_kib": (marks[-1] - marks[len(marks) // 2]) / 1024,
        "memory_peak_mib": peak / 2**20,
    }


def fuzz_bombs() -> dict[str, Any]:
    """Small messages that decode to much data: the time and memory of refusing them."""
    big = LIMITS.max_message_bytes
    cases = {
        "a list of small maps": b"\xdd" + struct.pack(">I", big - 5) + b"\x80" * (big - 5),
        "lists in lists": b"\x91" * big,
        "maps in maps": b"\x81\xa0" * (big // 2),
        "a list of four billion": b"\xdd\xff\xff\xff\xff" + b"\xc0" * 100,
        "four billion bytes": b"\xc6\xff\xff\xff\xff",
        "an array of 10^18": msgpack.packb(
            {b"__ndarray__": True, b"data": b"", b"dtype": "<f8", b"shape": [10**6] * 3}
        ),
    }
    worst_ms = worst_mib = 0.0
    for name, data in cases.items():
        tracemalloc.start()
        before = time.perf_counter()
        try:
            decode(data, big)
        except RecapError:
            pass
        else:
            raise AssertionError(f"{name} was taken")
        worst_ms = max(worst_ms, 1000 * (time.perf_counter() - before))
        worst_mib = max(worst_mib, tracemalloc.get_traced_memory()[1] / 2**20)
        tracemalloc.stop()
    return {"bombs": len(cases), "slowest_ms": worst_ms, "memory_peak_mib": worst_mib}


def as_message(episode: Episode) -> dict[str, Any]:
    """The message that uploads an episode."""
    return {
        "id": episode.id,
        "task": episode.task,
        "embodiment": episode.embodiment,
        "fps": episode.fps,
        "proprio": episode.proprio[:12],
        "actions": episode.actions[:12],
        "objects": {name: poses[:12] for name, poses in episode.objects.items()},
        "goal": episode.goal,
        "images": {
            name: np.stack([frames[t] for t in range(12)])[:, ::3, ::3]
            for name, frames in episode.images.items()
        },
        "attributes": dict(episode.attributes),
    }


def zips(folder: Path, rng: np.random.Generator) -> Iterator[bytes]:
    """A valid dataset with members cut, flipped, renamed, dropped or duplicated, or with a damaged zip."""
    files = {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}
    names = list(files)
    odd_names = (
        "../out",
        "/abs",
        "a/../../out",
        "C:/x",
        "a\\b",
        "",
        ".",
        "meta/info.json/x",
        "x" * 700,
        "\u202e",
    )
    while True:
        members = dict(files)
        out = io.BytesIO()
        if rng.random() < 0.6:
            name = names[rng.integers(len(names))]
            members[name] = next(mutations([members[name]], rng))
        if rng.random() < 0.15:
            members.pop(names[rng.integers(len(names))], None)
        if rng.random() < 0.15:
            members[odd_names[rng.integers(len(odd_names))]] = b"x"
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name or "meta/", data)
        data = out.getvalue()
        yield next(mutations([data], rng)) if rng.random() < 0.4 else data


async def _upload(port: int, cases: list[tuple[str, bytes]], told: Counter[str]) -> float:
    slowest = 0.0
    async with aiohttp.ClientSession() as session:
        for kind, data in cases:
            before = time.perf_counter()
            url = f"http://127.0.0.1:{port}/api/pool?skip_existing=1"
            async with session.post(url, data=data, headers={"Content-Type": kind}) as answer:
                body = await answer.json()
                told[str(answer.status)] += 1
            if answer.status >= 300:
                assert answer.status < 500, body
                assert "\n" not in body["error"]
                assert "/tmp" not in body["error"], body
            else:  # make room for the next upload of the same kind
                for name in body["added"]:
                    where = f"http://127.0.0.1:{port}/api/pool/{quote(name, safe='')}"
                    async with session.delete(URL(where, encoded=True)) as gone:
                        assert gone.status in (200, 404, 405), await gone.text()
            slowest = max(slowest, time.perf_counter() - before)
    return slowest


def fuzz_uploads(n: int, seed: int) -> dict[str, Any]:
    """n uploads through the route of a running server."""
    rng = np.random.default_rng(seed)
    spec = CollectSpec("disc", (-30.0,), 2)
    demos = [demonstrate(spec, demo) for demo in spec.demos()]
    told: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        stage_episode(Path(scratch) / "staging", 0, demos[0])
        assemble(Path(scratch) / "staging", 1, Path(scratch) / "data")
        Pool.create(Path(scratch) / "pool").add(demos[1:])
        place = str(Path(scratch) / "pool")
        service = Service.open(ServeSpec(agent_named("replay"), pool=place, port=0, limits=LIMITS))
        good = as_message(demos[0])
        sources: list[tuple[str, Iterator[bytes]]] = [
            ("application/msgpack", mutations([encode(good)], rng)),
            ("application/msgpack", odd_messages(good, rng)),
            ("application/zip", zips(Path(scratch) / "data", rng)),
        ]
        with _running(service) as (port, health):
            slowest, marks = 0.0, []
            started = time.perf_counter()
            for first in range(0, n, 50):
                picks = rng.integers(len(sources), size=min(50, n - first))
                cases = [(sources[i][0], next(sources[i][1])) for i in picks]
                slowest = max(slowest, asyncio.run(_upload(port, cases, told)))
                assert health() == "ok\n"
                marks.append(rss_mib(os.getpid()))
            spent = time.perf_counter() - started
        verified = service.store.verify()
        assert verified.ok, verified
    late = marks[len(marks) // 3 :]
    return {
        "uploads": n,
        "statuses": dict(sorted(told.items())),
        "uploads_per_s": n / spent,
        "slowest_ms": 1000 * slowest,
        "rss_mib": [round(late[0], 1), round(late[-1], 1)],
    }


class _running:  # noqa: N801
    """Runs the server in a thread."""

    def __init__(self, service: Service) -> None:
        self.service, self.loop, self.stop = service, asyncio.new_event_loop(), asyncio.Event()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: self.loop.run_until_complete(self._main()))

    async def _main(self) -> None:
        runner, self.port = await start(build_app(self.service), self.service.spec)
        self.ready.set()
        await self.stop.wait()
        await runner.cleanup()

    def __enter__(self) -> tuple[int, Callable[[], str]]:
        from serve_load import _get

        self.thread.start()
        assert self.ready.wait(20)
        return self.port, lambda: _get(self.port, "/healthz")

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join(20)


def main() -> None:
    """Run the benchmark."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--frames", type=int, default=150_000)
    parser.add_argument("--uploads", type=int, default=1_500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    n_frames, n_uploads = (2_000, 100) if options.quick else (options.frames, options.uploads)
    result = {
        "frames": fuzz_frames(n_frames, options.seed),
        "bombs": fuzz_bombs(),
        "uploads": fuzz_uploads(n_uploads, options.seed),
    }
    for name, row in result.items():
        print(name, row)
    finish(result, options.json)


if __name__ == "__main__":
    run_script(main)

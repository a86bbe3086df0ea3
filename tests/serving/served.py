"""A real server on a real port for tests, and the messages that a robot sends."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from aiohttp import web

from episodes import random_episode
from recap.assembly import AgentConfig
from recap.pool.memory import MemoryPool
from recap.serving.app import build_app, start, stop
from recap.serving.service import ServeSpec, Service
from recap.types import Episode, Observation
from recap_worlds.pusht.env import PushTEnv

EPISODES = [random_episode(f"demo/{i}", i) for i in range(24)]


class Served:
    """A server in a thread, and requests to it."""

    def __init__(self, service: Service, app: web.Application) -> None:
        self.service, self.app = service, app
        self.loop = asyncio.new_event_loop()
        self.port = 0
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(20)

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def http(
        self,
        path: str,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        method: str | None = None,
    ) -> tuple[int, bytes]:
        """Sends a request; returns status and body."""
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data, dict(headers or {}), method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def json(self, path: str, body: object = None, method: str | None = None) -> tuple[int, Any]:
        """Sends and receives JSON; returns status and decoded body."""
        data = None if body is None else json.dumps(body).encode()
        status, answer = self.http(path, data, {"Content-Type": "application/json"}, method)
        return status, json.loads(answer)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        async def main() -> None:
            runner, self.port = await start(self.app, self.service.spec)
            self._ready.set()
            await self._stop.wait()
            await stop(runner, self.app)

        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(main())
        self.loop.close()


@contextmanager
def served(service: Service) -> Iterator[Served]:
    """A running server that is stopped at the end."""
    server = Served(service, build_app(service))
    try:
        yield server
    finally:
        server.stop()


def replay_spec(agent: Mapping[str, Any] | None = None, **changes: Any) -> ServeSpec:
    """A replay policy with retrieval in the block's frame, on any free port.

    Args:
        agent: fields of the agent's config to change.
        changes: fields of the spec to change.
    """
    config = AgentConfig(**{"retrieval": "pusht-object", **(agent or {})})
    return ServeSpec(**{"agent": config, "port": 0, **changes})


def replay_service(episodes: Sequence[Episode] = EPISODES, **changes: Any) -> Service:
    """A replay service over episodes in memory; `changes` as for `replay_spec`."""
    return Service(replay_spec(**changes), MemoryPool(episodes))


def message_of(seen: Observation, *, poses: bool = True, image: bool = False) -> dict[str, Any]:
    """The message that a robot sends for one observation."""
    message: dict[str, Any] = {"observation/state": seen.proprio, "prompt": seen.task}
    if poses:
        message |= {f"observation/objects/{name}": pose for name, pose in seen.objects.items()}
        message["observation/goal"] = np.asarray(seen.goal)
    if image:
        message["observation/image"] = seen.images["top"]
    return message


def board(pusher: str = "triangle", angle: float = -30.0, seed: int = 510, block: str = "tee") -> PushTEnv:
    """A Push-T environment, reset with a development seed."""
    env = PushTEnv(pusher, angle, block=block)
    env.reset(seed=seed)
    return env

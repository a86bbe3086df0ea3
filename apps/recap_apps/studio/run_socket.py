"""Runs over a socket: the page starts, pauses and steps them; every step is sent at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any

from aiohttp import web

from recap.errors import InputError
from recap.pool.store import Pool
from recap_apps.studio.conversation import Conversation, number
from recap_apps.studio.running import NewAgent, Run
from recap_apps.studio.task import Task
from recap_worlds.pusht.tasks import FPS

MAX_LANES = 2
MAX_RATE = 200.0  # steps a second


class RunSocket:
    """Lets any number of pages watch their own runs."""

    def __init__(self, pool: Pool, new_agent: NewAgent, worker: Executor) -> None:
        self.pool, self.new_agent, self.worker = pool, new_agent, worker

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        """Handle one page."""
        return await _Show(self).hold(request)


class _Show(Conversation):
    """A page that watches a run and may take over: begin, play, pause, step, point, release."""

    def __init__(self, home: RunSocket) -> None:
        super().__init__()
        self.home = home
        self.run: Run | None = None
        self.rate = 10.0
        self._playing: asyncio.Task[None] | None = None
        self._wanted = False

    async def hear(self, kind: str, message: dict[str, Any]) -> None:
        """Execute the page's command."""
        if "rate" in message:
            self.rate = min(MAX_RATE, max(0.5, number(message["rate"], "rate")))
        if kind == "begin":
            await self._begin(Task.from_json(message), message.get("versions"))
            return
        if self.run is None:
            raise InputError("nothing runs: choose a task first")
        if kind == "play":
            if self._playing is None:
                self._wanted = True
                self._playing = asyncio.create_task(self._play())
        elif kind == "pause":
            await self.end()
        elif kind == "step":
            await self.end()
            await self._step()
        elif kind == "point":
            x, y = number(message.get("x"), "x"), number(message.get("y"), "y")
            self.run.point(int(number(message.get("lane"), "lane")), x, y)
        elif kind == "release":
            await self._hand_back(int(number(message.get("lane"), "lane")))
        else:
            raise InputError(f"unknown message {kind!a}: reload the page")

    async def _begin(self, task: Task, versions: Any) -> None:
        await self.end()
        known = isinstance(versions, list) and 1 <= len(versions) <= MAX_LANES
        if not known or not all(v is None or (type(v) is int and v > 0) for v in versions):
            raise InputError("a run needs one or two pool versions: reload the page")
        home = self.home
        self.run = await self._compute(lambda: Run(task, home.pool, home.new_agent, versions))
        lanes = [
            {"version": view.version, "n_episodes": len(view.episode_ids), "pinned": version is not None}
            for version, view in zip(versions, self.run.views(), strict=True)
        ]
        await self.say("scene", goal=self.run.goal.round(4).tolist(), lanes=lanes)
        await self._step()

    async def _play(self) -> None:
        loop = asyncio.get_running_loop()
        assert self.run is not None
        try:
            while self._wanted and not self.run.is_over:
                dragged = any(lane.pointer is not None for lane in self.run.lanes)
                due = loop.time() + 1 / (min(self.rate, FPS) if dragged else self.rate)
                await self._step()
                await asyncio.sleep(max(0.0, due - loop.time()))
        except Exception as error:
            await self.complain(error)
        self._playing = None
        await self.say("paused", over=self.run.is_over)

    async def _step(self) -> None:
        assert self.run is not None
        run = self.run
        for moment in await self._compute(run.advance):
            await self.say("moment", **moment)
            if "end" in moment:
                await self._hand_back(moment["lane"])

    async def _hand_back(self, lane: int) -> None:
        """Save a person's correction before the next step."""
        assert self.run is not None
        run = self.run
        if not 0 <= lane < len(run.lanes) or run.lanes[lane].pointer is None:
            return
        kept = await self._compute(lambda: run.hand_back(lane))
        if kept is None:
            await self.say(
                "corrected", id=None, text="That was too short to show anything: nothing is added."
            )
        else:
            await self.say("corrected", id=kept[0].id, version=kept[1])

    async def _compute(self, work: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.home.worker, work)

    async def end(self) -> None:
        """Pause after the current step."""
        self._wanted = False
        if self._playing is not None:
            await self._playing

"""The frozen policy from many starts in parallel: success rate with its interval."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from aiohttp import web

from recap.errors import InputError
from recap.evaluation.statistics import wilson
from recap.pool.store import Pool
from recap.pool.view import PoolView
from recap_apps.studio.conversation import Conversation, number
from recap_apps.studio.run_socket import RunSocket
from recap_apps.studio.running import PUSHER, NewAgent, Pinned
from recap_apps.studio.task import DONE, SOLVED, Task
from recap_worlds.pusht.robot import IMAGE_SIZE
from recap_worlds.pusht.tasks import FPS, MAX_STEPS

MAX_STARTS = 50
AT_ONCE = 2  # steps between two checks whether the page still wants results


class Trials:
    """A task and the starts after it, with one version of the pool."""

    def __init__(self, task: Task, n: int, view: PoolView, new_agent: NewAgent) -> None:
        self.tasks = [replace(task, start=task.start + i) for i in range(n)]
        self.agent = new_agent(Pinned(view), {"block": task.block})
        self.envs = [one.open(PUSHER) for one in self.tasks]
        for slot, one in enumerate(self.tasks):
            self.agent.reset(slot, one)
        self.t = 0
        self._coverage: list[list[float]] = [[] for _ in self.tasks]
        self._open = list(range(n))

    @property
    def is_over(self) -> bool:
        """True if every start has ended."""
        return not self._open

    def advance(self, n: int = AT_ONCE) -> list[dict[str, Any]]:
        """Some steps of all running starts; returns those that ended."""
        ended = []
        for _ in range(n):
            for slot in list(self._open):
                self._coverage[slot].append(self.envs[slot].coverage())
                if self._coverage[slot][-1] > DONE or self.t >= MAX_STEPS:
                    self._open.remove(slot)
                    ended.append(self._told(slot))
            if not self._open:
                break
            size = self.agent.image_size or IMAGE_SIZE
            seen = [self.envs[slot].observe(size) for slot in self._open]
            for slot, action in zip(self._open, self.agent.act(self._open, seen), strict=True):
                self.envs[slot].step(action)
            self.t += 1
        return ended

    def summary(self) -> dict[str, Any]:
        """How many of the ended starts reached the goal, and how many were still there at the end."""
        done = [rows for slot, rows in enumerate(self._coverage) if slot not in self._open]
        reached = sum(max(rows) > SOLVED for rows in done)
        low, high = wilson(reached, len(done))
        stayed = sum(rows[-1] > SOLVED for rows in done)
        return {
            "n": len(self.tasks),
            "ended": len(done),
            "reached": reached,
            "stayed": stayed,
            "low": round(low, 3),
            "high": round(high, 3),
            "seconds": round(self.t / FPS, 1),
        }

    def _told(self, slot: int) -> dict[str, Any]:
        rows = self._coverage[slot]
        best = max(rows)
        return {
            "start": self.tasks[slot].start,
            "best": round(best, 4),
            "at": round(rows.index(best) / FPS, 1),
            "last": round(rows[-1], 4),
            "reached": best > SOLVED,
        }


class TrialsSocket:
    """Lets any number of pages run trials."""

    def __init__(self, pool: Pool, runs: RunSocket) -> None:
        self.pool, self.runs = pool, runs

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        """Handle one page."""
        return await _TrialConversation(self).hold(request)


class _TrialConversation(Conversation):
    """A page that runs trials: begin, stop."""

    def __init__(self, home: TrialsSocket) -> None:
        super().__init__()
        self.home = home
        self._running: asyncio.Task[None] | None = None
        self._wanted = False

    async def hear(self, kind: str, message: dict[str, Any]) -> None:
        """Execute the page's command."""
        if kind == "begin":
            task, n = Task.from_json(message), int(number(message.get("n"), "n"))
            if not 1 <= n <= MAX_STARTS:
                raise InputError(f"{n} starts: give 1 to {MAX_STARTS}")
            replace(task, start=task.start + n - 1)  # raises an error for numbers past the last start
            await self.end()
            self._wanted = True
            self._running = asyncio.create_task(self._run(task, n))
        elif kind == "stop":
            await self.end()
        else:
            raise InputError(f"unknown message {kind!a}: reload the page")

    async def _run(self, task: Task, n: int) -> None:
        loop, home = asyncio.get_running_loop(), self.home
        worker = home.runs.worker
        try:
            view = await loop.run_in_executor(worker, home.pool.view)
            trials = await loop.run_in_executor(worker, lambda: Trials(task, n, view, home.runs.new_agent))
            while self._wanted and not trials.is_over:
                ended = await loop.run_in_executor(worker, trials.advance)
                await self.say("trials", results=ended, version=view.version, over=False, **trials.summary())
            await self.say("trials", results=[], version=view.version, over=True, **trials.summary())
        except Exception as error:
            await self.complain(error)

    async def end(self) -> None:
        """Stop after the current steps."""
        self._wanted = False
        if self._running is not None:
            await self._running
            self._running = None

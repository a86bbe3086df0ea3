"""Teaching over a socket: the page sends pointer positions, the server steps the board at 10 Hz."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from aiohttp import web

from recap.errors import InputError
from recap.pool.store import Pool
from recap_apps.studio.conversation import Conversation, number
from recap_apps.studio.task import Task
from recap_apps.studio.teaching import PREFIX, Teaching, checked_name, free_name
from recap_worlds.pusht.tasks import FPS


class TeachSocket:
    """Lets any number of pages teach."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        """Handle one page."""
        return await _Lesson(self.pool).hold(request)


class _Lesson(Conversation):
    """A page that teaches: begin, point, release, stop, add."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self.pool = pool
        self.teaching: Teaching | None = None
        self._clock: asyncio.Task[None] | None = None

    async def hear(self, kind: str, message: dict[str, Any]) -> None:
        """Execute the page's command."""
        if kind == "begin":
            await self._begin(Task.from_json(message))
        elif self.teaching is None:
            raise InputError("nothing is being taught: choose a task first")
        elif kind == "point":
            x, y = number(message.get("x"), "x"), number(message.get("y"), "y")
            if self._clock is not None:  # otherwise it is stopped, and the message came too late
                self.teaching.point(x, y)
        elif kind == "release":
            self.teaching.release()
        elif kind == "stop":
            await self._stop()
        elif kind == "add":
            await self._add(message)
        else:
            raise InputError(f"unknown message {kind!a}: reload the page")

    async def _begin(self, task: Task) -> None:
        await self.end()
        self.teaching = await asyncio.to_thread(Teaching, task)
        goal = self.teaching.goal.round(4).tolist()
        await self.say("scene", goal=goal, **self.teaching.moment())
        self._clock = asyncio.create_task(self._tick(self.teaching))

    async def _tick(self, teaching: Teaching) -> None:
        """Step the board at a fixed rate; missed steps are not made up, as a person would not either."""
        loop = asyncio.get_running_loop()
        try:
            while not teaching.is_over:
                due = loop.time() + 1 / FPS
                moved = teaching.tick()
                if moved is not None:
                    await self.say("moment", **moved)
                await asyncio.sleep(max(0.0, due - loop.time()))
        except Exception as error:
            await self.complain(error)
        self._clock = None
        await self._tell_stopped(teaching)

    async def _stop(self) -> None:
        await self.end()
        assert self.teaching is not None
        await self._tell_stopped(self.teaching)

    async def _tell_stopped(self, teaching: Teaching) -> None:
        taken = frozenset((await asyncio.to_thread(self.pool.view)).episode_ids)
        name = free_name(teaching.task, taken)
        await self.say("stopped", n=len(teaching), end=teaching.best_end(), name=name)

    async def _add(self, message: dict[str, Any]) -> None:
        """Save the chosen steps as a demonstration."""
        teaching, name = self.teaching, message.get("name")
        assert teaching is not None
        if self._clock is not None or not isinstance(name, str):
            raise InputError("stop first, and give it a name")
        first, last = int(number(message.get("first"), "first")), int(number(message.get("last"), "last"))
        episode = teaching.episode(name, first, last)

        def add() -> tuple[int, int]:
            view = self.pool.view()
            if episode.id in view.episode_ids:
                raise InputError(
                    f"there is a demonstration '{checked_name(name)}' already: choose another name"
                )
            return view.version, self.pool.add([episode])

        before, version = await asyncio.to_thread(add)
        await self.say(
            "added", id=episode.id, name=episode.id[len(PREFIX) :], before=before, version=version,
            success=episode.success,
        )  # fmt: skip

    async def end(self) -> None:
        """Stop stepping."""
        if self._clock is not None:
            clock, self._clock = self._clock, None
            clock.cancel()
            with suppress(asyncio.CancelledError):
                await clock

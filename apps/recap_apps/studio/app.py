"""The PushT studio's page and routes, added to the server's application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from recap.errors import RecapError
from recap.retrieval.retriever import Retriever
from recap.serving.app import PAGE, SERVICE
from recap.serving.pool_routes import body_of
from recap.serving.service import Service
from recap_apps.studio.conversation import SOCKETS, close_sockets
from recap_apps.studio.coverage import Survey, survey
from recap_apps.studio.examples import add_examples
from recap_apps.studio.results import Results
from recap_apps.studio.run_socket import RunSocket
from recap_apps.studio.site import HEADERS, Site
from recap_apps.studio.task import Task, shapes
from recap_apps.studio.teach_socket import TeachSocket
from recap_apps.studio.trials import TrialsSocket
from recap_worlds.pusht.blocks import block_named
from recap_worlds.pusht.tasks import FPS

# Reports may contain their own styles and scripts; they run isolated from this page, without its rights.
REPORT_HEADERS = {**HEADERS, "Content-Security-Policy": "sandbox allow-scripts", "X-Frame-Options": "DENY"}
LOOK_S = 0.5  # between two checks whether the pool has changed
T = TypeVar("T")


def add_studio(app: web.Application, runs: Path = Path("runs")) -> None:
    """Add the page, its sockets and routes to an application that serves a live pool."""
    studio = Studio(app[SERVICE], Results(runs))
    site = Site("index.html")
    app[PAGE], app[SOCKETS] = site.page, set()
    router = app.router
    router.add_get("/studio/{file}", site.asset)
    router.add_get("/api/studio/about", studio.about)
    router.add_get("/api/studio/coverage", studio.coverage)
    router.add_get("/api/studio/results", studio.results)
    router.add_get("/api/studio/reports/{path:.+}", studio.report)
    router.add_get("/api/studio/events", studio.events)
    router.add_get("/api/studio/teach", TeachSocket(studio.service.store).handle)
    run = RunSocket(studio.service.store, studio.service.new_agent, studio.worker)
    router.add_get("/api/studio/run", run.handle)
    router.add_get("/api/studio/trials", TrialsSocket(studio.service.store, run).handle)
    router.add_post("/api/studio/examples", studio.examples)
    app.on_shutdown.append(close_sockets)
    app.on_cleanup.append(studio.close)


class Studio:
    """Handlers of all routes except the sockets for teaching and running."""

    def __init__(self, service: Service, results: Results) -> None:
        self.service, self._results = service, results
        # A single thread for all computation, so that a page never uses both cores.
        self.worker = ThreadPoolExecutor(1, "studio")
        self._surveys: dict[str, Survey] = {}
        self._retriever: Retriever | None = None

    async def about(self, request: web.Request) -> web.Response:
        """The policy, the pool, and the shapes to draw."""
        service = self.service
        fingerprint = await self._compute(lambda: service.fingerprint)
        policy = {
            "name": service.spec.agent.policy,
            "fingerprint": fingerprint,
            "reaction": service.spec.agent.reaction,
            "ahead_s": service.chunk_size / FPS,  # time between now and the predicted picture
        }
        pool = {"pool": service.store.uri, **await _thread(self._pool)}
        return web.json_response({"policy": policy, **pool, "shapes": shapes()})

    def _pool(self) -> dict[str, int]:
        view = self.service.pool.view()
        return {"version": view.version, "n_episodes": len(view.episode_ids)}

    async def events(self, request: web.Request) -> web.WebSocketResponse:
        """Sends the pool's state when it changes; an open socket also shows that the server runs."""
        socket = web.WebSocketResponse(heartbeat=15, max_msg_size=1024)
        await socket.prepare(request)
        request.app[SOCKETS].add(socket)

        async def tell() -> None:
            sent: dict[str, int] = {}
            while not socket.closed:
                with suppress(RecapError, OSError):  # a pool error, or the page has just closed: try again
                    now = await _thread(self._pool)
                    if now != sent:
                        await socket.send_json(now)
                        sent = now
                await asyncio.sleep(LOOK_S)

        telling = asyncio.create_task(tell())
        try:
            async for _ in socket:  # no message is expected; the loop ends when the socket closes
                pass
        finally:
            telling.cancel()
            request.app[SOCKETS].discard(socket)
        return socket

    async def coverage(self, request: web.Request) -> web.Response:
        """The pool's coverage of a block's tasks."""
        block = block_named(request.query.get("block", "tee")).name
        return web.json_response((await self._compute(lambda: self._survey(block))).to_json())

    def _survey(self, block: str) -> Survey:
        version = self.service.pool.view().version
        known = self._surveys.get(block)
        if known is None or known.version != version:
            if self._retriever is None:
                self._retriever = self.service.new_agent().retriever
            known = self._surveys[block] = survey(self._retriever, block)
        return known

    async def results(self, request: web.Request) -> web.Response:
        """Past evaluations."""
        runs = await _thread(self._results.list)
        return web.json_response({"folder": str(self._results.root), "runs": runs})

    async def examples(self, request: web.Request) -> web.Response:
        """Add shipped demonstrations near a task's goal to the pool."""
        task = Task.from_json(await body_of(request, {"block": str, "angle": (int, float), "start": int}))
        version = await _thread(lambda: add_examples(self.service.store, task))
        return web.json_response({"version": version})

    async def report(self, request: web.Request) -> web.StreamResponse:
        """A report page from the folder of an evaluation."""
        file = await _thread(lambda: self._results.report(request.match_info["path"]))
        return web.FileResponse(file, headers={**REPORT_HEADERS, "Content-Type": "text/html; charset=utf-8"})

    async def _compute(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.worker, work)

    async def close(self, app: web.Application) -> None:
        """Stop the thread."""
        self.worker.shutdown(wait=False, cancel_futures=True)


async def _thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, work)

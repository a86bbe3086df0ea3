"""The studio for any pool or dataset: a small server that is read-only unless changes are allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from recap.assembly import REPLAY, AgentConfig
from recap.errors import InputError, RecapError, one_of
from recap.serving.films import LONG_SIDE, Films, still
from recap.serving.guard import make_error_handler, make_guard
from recap.serving.pool_routes import body_of
from recap.serving.spec import ServeSpec
from recap.types import FrameRef
from recap_apps.studio.blaming import suspects
from recap_apps.studio.explaining import Explainer
from recap_apps.studio.hand_films import HandFilms
from recap_apps.studio.library import SHOWN, Library
from recap_apps.studio.pool_library import PoolLibrary
from recap_apps.studio.series import series
from recap_apps.studio.site import HEADERS, Site
from recap_apps.studio.starts import survey

MAX_LIMIT = 200  # entries of one answer
MAX_BODY = 64 * 1024
MAX_MATCHES = 12
N_THREADS = 3  # for frames and films
T = TypeVar("T")


def explorer_spec(place: str, port: int) -> ServeSpec:
    """The server's address: only this machine can connect."""
    return ServeSpec(AgentConfig(REPLAY), place, port=port)


@dataclass(frozen=True)
class Extras:
    """Options of the pages.

    Args:
        retrieval: by name or file; by default one that fits the data.
        writable: whether demonstrations of the pool may be put into quarantine.
        into: the pool that accepted films of hands are added to.
        logs: logs of a server, to find harmful demonstrations.
    """

    retrieval: str | None = None
    writable: bool = False
    into: str | None = None
    logs: tuple[Path, ...] = ()


def build_explorer(library: Library, spec: ServeSpec, extras: Extras = Extras()) -> web.Application:  # noqa: B008
    """The server as an application."""
    app = web.Application(middlewares=[make_guard(spec), make_error_handler()], client_max_size=MAX_BODY)
    site, explorer = Site("explore.html"), Explorer(library, extras)
    router = app.router
    router.add_get("/", site.page)
    router.add_get("/studio/{file}", site.asset)
    for name, work in explorer.answers().items():
        router.add_get(f"/api/explore/{name}", work)
    for name, change in explorer.changes().items():
        router.add_post(f"/api/explore/{name}", change)
    app.on_startup.append(explorer.start)
    app.on_cleanup.append(explorer.close)
    return app


class Explorer:
    """Handlers; each works in a thread."""

    def __init__(self, library: Library, extras: Extras) -> None:
        if extras.writable and not isinstance(library, PoolLibrary):
            raise InputError(f"--write changes a pool, and {library.place} is a {library.kind}: leave it out")
        self.library, self.extras = library, extras
        self.explainer = Explainer(library, extras.retrieval)
        self.hands = HandFilms(library, extras.into)
        self._asking = ThreadPoolExecutor(1, "studio-retrieval")  # one query at a time
        self._films = Films()
        self._changing = asyncio.Lock()  # one change at a time
        self._threads = ThreadPoolExecutor(N_THREADS, "studio-look")

    def answers(self) -> dict[str, Handler]:
        """Handlers by route name."""
        library = self.library
        return {
            "about": self._json(self.about),
            "list": self._json(self.list),
            "one": self._json(self.one),
            "retrieve": self._json(self.retrieve, self._asking),
            "starts": self._json(self.starts, self._asking),
            "blame": self._json(lambda request: suspects(library, self.extras.logs), self._asking),
            "hands": self._json(lambda request: self.hands.list()),
            "hand": self._json(lambda request: self.hands.show(request.query.get("name", ""))),
            "hand-film": self.hand_film,
            "progress": self._json(lambda request: self.explainer.progress()),
            "frame": self.frame,
            "film": self.film,
        }

    def changes(self) -> dict[str, Handler]:
        """Handlers that change something; each takes a JSON object."""
        return {
            "quarantine": self._change(self.quarantine, {"id": str, "undo": bool}),
            "accept": self._change(lambda given: self.hands.accept(given["name"]), {"name": str}),
            "reject": self._change(lambda given: self.hands.reject(given["name"]), {"name": str}),
        }

    def quarantine(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Exclude a demonstration from retrieval, or include it again."""
        library = self.library
        if not self.extras.writable or not isinstance(library, PoolLibrary):
            raise InputError("the pool is opened read-only: start with --write", code="studio.read_only")
        library.find(given["id"])
        return {"version": library.quarantine(given["id"], given["undo"])}

    async def start(self, app: web.Application) -> None:
        """Start examining the demonstrations."""
        self.library.start()

    async def close(self, app: web.Application) -> None:
        """Stop threads, and remove temporary videos."""
        self.library.stop()
        for threads in (self._threads, self._asking):
            threads.shutdown(wait=False, cancel_futures=True)
        self._films.close()

    def about(self, request: web.Request) -> dict[str, Any]:
        """The open pool or dataset, and its robot."""
        library = self.library
        library.refresh()
        try:
            robot = library.robot()
        except RecapError as error:
            return {
                **self._place(),
                "robot": None,
                "notice": " ".join(str(error).split()) if library.entries else library.notice,
            }
        features = [{"name": f.name, "kind": f.kind, "size": f.size, "unit": f.unit} for f in robot.proprio]
        described = {"name": robot.name, "hz": robot.control_hz, "features": features}
        return {
            **self._place(),
            "robot": {**described, "cameras": [*robot.cameras]},
            "notice": library.notice,
        }

    def _place(self) -> dict[str, Any]:
        library = self.library
        return {
            "place": library.place,
            "kind": library.kind,
            "version": library.version,
            "n": len(library.entries),
            "writable": self.extras.writable,
            "views": self._views(),
        }

    def _views(self) -> tuple[str, ...]:
        hands = ("hands",) if self.hands.folders else ()
        return (*hands, "demonstrations", "retrieval", "coverage", *(("blame",) if self.extras.logs else ()))

    def list(self, request: web.Request) -> dict[str, Any]:
        """A page of demonstrations."""
        query = request.query
        show = one_of("filter", query.get("show", "all"), SHOWN)
        offset = whole(query.get("offset", "0"), "offset", 2**31)
        limit = max(1, whole(query.get("limit", "50"), "limit", MAX_LIMIT))
        return self.library.list(query.get("q", ""), query.get("task", ""), show, offset, limit)

    def one(self, request: web.Request) -> dict[str, Any]:
        """A demonstration: its properties, and its numbers as lines."""
        name = _id(request)
        entry = self.library.entries[self.library.find(name)]
        self.library.examine(entry)
        episode = self.library.episode(name)
        more = {
            "scene": episode.scene_id,
            "fps": episode.fps,
            "source": episode.source,
            "action_space": episode.action_space,
            "attributes": {key: str(value) for key, value in episode.attributes.items()},
            "series": series(episode, self.library.robot()),
        }
        return {**entry.to_json(), **more}

    def retrieve(self, request: web.Request) -> dict[str, Any]:
        """The retrieval for a frame of one of the pool's demonstrations, with reasons."""
        at = FrameRef(_id(request), whole(request.query.get("t", "0"), "t", 2**31))
        n = max(1, whole(request.query.get("n", "5"), "n", MAX_MATCHES))
        return self.explainer.explain(request.query.get("retrieval", ""), at, n)

    def starts(self, request: web.Request) -> dict[str, Any]:
        """Where demonstrations start, and what to record next."""
        by, task = request.query.get("by", ""), request.query.get("task", "")
        return survey(self.library.view(), self.library.robot(), self.explainer.retriever, by, task)

    async def frame(self, request: web.Request) -> web.Response:
        """One frame as JPEG."""
        name, camera = _id(request), request.query.get("camera")
        t = whole(request.query.get("t", "0"), "t", 2**31)
        side = max(16, whole(request.query.get("side", str(LONG_SIDE)), "side", 2048))
        data = await self.thread(lambda: still(self.library.episode(name), camera, t, side))
        headers = {**HEADERS, "Cache-Control": "max-age=300"}
        return web.Response(body=data, content_type="image/jpeg", headers=headers)

    async def film(self, request: web.Request) -> web.StreamResponse:
        """A camera's video as MP4, with range requests."""
        name, camera = _id(request), request.query.get("camera")
        path = await self.thread(lambda: self._films.path(self.library.episode(name), camera))
        return web.FileResponse(path, headers={**HEADERS, "Content-Type": "video/mp4"})

    async def hand_film(self, request: web.Request) -> web.StreamResponse:
        """The video of a hand."""
        path = await self.thread(lambda: self.hands.film(request.query.get("name", "")))
        return web.FileResponse(path, headers={**HEADERS, "Content-Type": "video/mp4"})

    async def thread(self, work: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        """Run the work in a thread."""
        return await asyncio.get_running_loop().run_in_executor(threads or self._threads, work)

    def _json(
        self, work: Callable[[web.Request], dict[str, Any]], threads: ThreadPoolExecutor | None = None
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            return web.json_response(await self.thread(lambda: work(request), threads))

        return handle

    def _change(self, work: Callable[[Mapping[str, Any]], dict[str, Any]], kinds: dict[str, Any]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            given = await body_of(request, kinds)
            if set(given) != set(kinds):
                raise InputError(f"send a map with {' and '.join(kinds)}")
            async with self._changing:
                return web.json_response(await self.thread(lambda: work(given)))

        return handle


def _id(request: web.Request) -> str:
    name = request.query.get("id", "")
    if not name:
        raise InputError("which demonstration? give ?id=", code="studio.demonstration")
    return name


def whole(text: str, what: str, most: int) -> int:
    """A whole number from 0 to `most`."""
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > most:
        raise InputError(f"{what} '{text[:40]}' is no whole number from 0 to {most}")
    return int(text)

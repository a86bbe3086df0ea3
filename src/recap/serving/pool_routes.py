"""The live pool over HTTP: list, add, remove, tag, roll back. The next retrieval uses the change.

Ids in paths are percent-encoded, including slashes as %2F. Pool work runs in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from recap.errors import InputError
from recap.pictures import encode_png
from recap.pool.store import Pool
from recap.pool.view import PoolView
from recap.serving.films import Films, frames_of
from recap.serving.guard import refusal
from recap.serving.service import Service
from recap.serving.uploads import add_upload
from recap.types import Episode, Scalar

MAX_LIMIT = 1000  # rows per response
MAX_NAMES, MAX_VALUES = 32, 64  # attributes, and values of each, per response
MAX_UNUSABLE = 100  # unusable demonstrations per response
N_THREADS = 4  # for pool work; more than max_uploads
TEXT_FILTERS = ("task", "embodiment", "source")
ATTRIBUTE = "attribute."  # prefix of a filter by attribute
T = TypeVar("T")


def add_pool_routes(app: web.Application, service: Service, refresh: Callable[[], Awaitable[None]]) -> None:
    """Add the routes of the pool to an application.

    Args:
        refresh: updates `service.unusable` to the newest version.
    """
    routes = PoolRoutes(service, refresh)
    router, one = app.router, "/api/pool/{id:[^/]+}"  # aiohttp's default pattern excludes braces
    router.add_get("/api/pool", routes.list)
    router.add_post("/api/pool", routes.add)
    router.add_get("/api/pool/versions", routes.as_json(routes.versions))
    router.add_get("/api/pool/diff", routes.as_json(routes.diff))
    router.add_post("/api/pool/tags", routes.tag)
    router.add_post("/api/pool/rollback", routes.roll_back)
    router.add_get(one, routes.as_json(routes.show))
    router.add_delete(one, routes.remove)
    router.add_get(f"{one}/video", routes.video)
    router.add_get(f"{one}/thumbnail", routes.thumbnail)
    router.add_get(f"{one}/trajectory", routes.as_json(routes.trajectory))
    app.on_cleanup.append(routes.close)


class PoolRoutes:
    """The request handlers; each does its work in a thread."""

    def __init__(self, service: Service, refresh: Callable[[], Awaitable[None]]) -> None:
        self.service, self._refresh = service, refresh
        self._reasons: dict[str, tuple[Episode, str]] = {}  # why each unusable demonstration cannot be used
        self._films = Films()
        self._uploads = asyncio.Semaphore(service.spec.limits.max_uploads)
        self._ids_of: dict[int, frozenset[str]] = {}  # of tagged versions, which never change
        self._threads = ThreadPoolExecutor(N_THREADS, thread_name_prefix="recap-pool")

    async def close(self, app: web.Application) -> None:
        """Stop the threads and remove preview videos."""
        self._threads.shutdown(cancel_futures=True)
        self._films.close()

    def as_json(self, work: Callable[[web.Request], dict[str, Any]]) -> Handler:
        """A handler that runs the work in a thread and sends its result as JSON."""

        async def handle(request: web.Request) -> web.Response:
            return web.json_response(await self._thread(lambda: work(request)))

        return handle

    async def list(self, request: web.Request) -> web.Response:
        """List episodes, newest first, with filters and paging."""
        query = request.query
        offset = _number(query.get("offset", "0"), "offset", 0, 2**31)
        limit = _number(query.get("limit", "100"), "limit", 1, MAX_LIMIT)
        await self._refresh()

        def work() -> dict[str, Any]:
            view = self._view(query.get("version") or query.get("tag"))
            every = [view.episode(name) for name in reversed(view.episode_ids)]
            kept = [episode for episode in every if _passes(episode, query)]
            tags = self._tags()
            return {
                "version": view.version,
                "writable": self.service.is_writable,
                "total": len(kept),
                "offset": offset,
                "episodes": [_row(e, tags) for e in kept[offset : offset + limit]],
                "tasks": sorted({e.task for e in every}),
                "embodiments": sorted({e.embodiment for e in every}),
                "attributes": _attributes(every),
                "unusable": self._unusable(view),
                "tags": sorted(tags),
            }

        return web.json_response(await self._thread(work))

    def show(self, request: web.Request) -> dict[str, Any]:
        episode = self._episode(request)
        return {
            **_row(episode, self._tags()),
            "fps": episode.fps,
            "action_space": episode.action_space,
            "cameras": [*episode.images],
            "objects": {name: int(poses.shape[1]) for name, poses in episode.objects.items()},
        }

    def trajectory(self, request: web.Request) -> dict[str, Any]:
        """The numbers of an episode at each step."""
        episode = self._episode(request)
        return {
            "fps": episode.fps,
            "timestamps": episode.timestamps.tolist(),
            "proprio": episode.proprio.tolist(),
            "actions": episode.actions.tolist(),
            "objects": {name: poses.tolist() for name, poses in episode.objects.items()},
            "goal": None if episode.goal is None else episode.goal.tolist(),
        }

    async def video(self, request: web.Request) -> web.StreamResponse:
        """A camera's video as MP4; supports range requests."""
        camera = request.query.get("camera")
        path = await self._thread(lambda: self._films.path(self._episode(request), camera))
        return web.FileResponse(path, headers={"Content-Type": "video/mp4"})

    async def thumbnail(self, request: web.Request) -> web.Response:
        """Frame `t` as PNG, by default the first."""
        camera, t = request.query.get("camera"), _number(request.query.get("t", "0"), "t", 0, 2**31)
        drawn = await self._thread(lambda: _thumbnail(self._episode(request), camera, t))
        return web.Response(body=drawn, content_type="image/png")

    def versions(self, request: web.Request) -> dict[str, Any]:
        """Every version, oldest first, and what it changed."""
        view = self.service.pool.view()
        known = self.service.store.versions() if self.service.is_writable else []
        rows = [{**asdict(v), "time": None if v.time is None else v.time.isoformat()} for v in known]
        return {"head": view.version, "versions": rows}

    def diff(self, request: web.Request) -> dict[str, Any]:
        """The difference between two versions."""
        if "from" not in request.query or "to" not in request.query:
            raise InputError("a difference needs two versions: give ?from=A&to=B")
        return asdict(self.service.store.diff(request.query["from"], request.query["to"]))

    async def add(self, request: web.Request) -> web.Response:
        """Add a LeRobot v3 zip, or one episode in the wire format."""
        if self._uploads.locked():
            return refusal(503, "busy: other uploads are running; try again soon")
        async with self._uploads:
            version, ids = await add_upload(request, self.service, self._threads)
        self.service.metrics.changes.add(bool(ids))
        return web.json_response({"version": version, "added": ids}, status=201 if ids else 200)

    async def remove(self, request: web.Request) -> web.Response:
        """Remove an episode, which makes a new version."""
        name = request.match_info["id"]

        def work(store: Pool, expect: int | None) -> int:
            _check_there(store.view(), name)
            return store.remove([name], expect=expect)

        return await self._change(request.query.get("expect"), work)

    async def tag(self, request: web.Request) -> web.Response:
        """Name a version: {"name", "version"?, "move"?}."""
        body = await body_of(request, {"name": str, "version": (int, str), "move": bool})
        if not body.get("name"):
            raise InputError('a tag needs a name: send {"name": "before-friday"}')
        store, move = self.service.store, body.get("move", False)
        version = await self._thread(lambda: store.tag(body["name"], body.get("version"), move=move))
        return web.json_response({"version": version})

    async def roll_back(self, request: web.Request) -> web.Response:
        """Make a new version equal to an old one: {"version", "expect"?}."""
        body = await body_of(request, {"version": (int, str), "expect": int})
        if "version" not in body:
            raise InputError('a rollback needs a version: send {"version": 3}')
        version = body["version"]
        return await self._change(
            body.get("expect"), lambda store, head: store.rollback(version, expect=head)
        )

    async def _change(
        self, expect: int | str | None, change: Callable[[Pool, int | None], int]
    ) -> web.Response:
        """Make a change; with `expect`, only if that is still the newest version."""
        wanted = None if expect is None else _number(str(expect), "expect", 0, 2**62)
        version = await self._thread(lambda: change(self.service.store, wanted))
        self.service.metrics.changes.add()
        return web.json_response({"version": version, "was": version - 1})

    async def _thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _view(self, version: str | None) -> PoolView:
        return self.service.store.view_at(version) if version else self.service.pool.view()

    def _episode(self, request: web.Request) -> Episode:
        """The episode that the path names, in the requested version or the newest."""
        view, name = self._view(request.query.get("version")), request.match_info["id"]
        _check_there(view, name)
        return view.episode(name)

    def _unusable(self, view: PoolView) -> dict[str, str]:
        """Demonstrations that retrieval cannot use, and what each lacks."""
        found: dict[str, tuple[Episode, str]] = {}
        there, why_unusable = set(view.episode_ids), self.service.agent.retriever.why_unusable
        for name in [name for name in self.service.unusable if name in there][:MAX_UNUSABLE]:
            episode, known = view.episode(name), self._reasons.get(name)
            if known is None or known[0] is not episode:
                known = episode, why_unusable(episode) or "it can be used by now"
            found[name] = known
        self._reasons = found
        return {name: reason for name, (_, reason) in found.items()}

    def _tags(self) -> dict[str, frozenset[str]]:
        """Tag -> episode ids of that version."""
        if not self.service.is_writable:
            return {}
        store = self.service.store
        tags = store.tags()
        for number in set(tags.values()) - set(self._ids_of):
            self._ids_of[number] = frozenset(store.ids(number))
        return {name: self._ids_of[number] for name, number in tags.items()}


def _row(episode: Episode, tags: dict[str, frozenset[str]]) -> dict[str, Any]:
    return {
        "id": episode.id,
        "scene_id": episode.scene_id,
        "task": episode.task,
        "embodiment": episode.embodiment,
        "goal": None if episode.goal is None else episode.goal.tolist(),
        "length": len(episode),
        "success": episode.success,
        "source": episode.source,
        "tags": sorted(tag for tag, ids in tags.items() if episode.id in ids),
        "attributes": dict(episode.attributes),
    }


def _attributes(episodes: Iterable[Episode]) -> dict[str, list[str]]:
    """The attributes of the episodes, with the values of each."""
    found: dict[str, set[str]] = {}
    for episode in episodes:
        for name, value in episode.attributes.items():
            found.setdefault(name, set()).add(_text(value))
    return {name: sorted(found[name])[:MAX_VALUES] for name in sorted(found)[:MAX_NAMES]}


def _text(value: Scalar) -> str:
    """The value of an attribute, in the form of a filter."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _passes(episode: Episode, query: Mapping[str, str]) -> bool:
    if any(key in query and getattr(episode, key) != query[key] for key in TEXT_FILTERS):
        return False
    for key in query:
        name = key.removeprefix(ATTRIBUTE)
        if name != key and (name not in episode.attributes or _text(episode.attributes[name]) != query[key]):
            return False
    if "success" in query and str(episode.success).lower() != query["success"].lower():
        return False
    return query.get("q", "").lower() in episode.id.lower()


def _number(text: str, what: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or not least <= int(text[:20]) <= most:
        raise InputError(f"{what} '{text[:40]}' is not a whole number from {least} to {most}")
    return int(text)


async def body_of(request: web.Request, kinds: dict[str, Any]) -> dict[str, Any]:
    """The request's JSON body: a map with only these keys."""
    if request.content_type != "application/json":
        raise InputError("the body is not declared as JSON: send Content-Type: application/json")
    try:
        body = await request.json()
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON: send a map") from None
    if not isinstance(body, dict) or not set(body) <= set(kinds):
        raise InputError(f"the body is not a map of {', '.join(kinds)}: send one")
    for key, value in body.items():
        if not isinstance(value, kinds[key]) or (isinstance(value, bool) and kinds[key] is not bool):
            raise InputError(f"'{key}' in the body has the wrong type")
    return body


def _check_there(view: PoolView, name: str) -> None:
    if name not in view.episode_ids:
        shown = ascii(name[:200])
        raise web.HTTPNotFound(text=f"version {view.version} has no episode {shown}: see GET /api/pool")


def _thumbnail(episode: Episode, camera: str | None, t: int) -> bytes:
    """One frame as PNG; the last frame if t is past the end."""
    frames = frames_of(episode, camera)
    return encode_png(frames[min(t, len(frames) - 1)])

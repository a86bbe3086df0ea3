"""The application: the openpi socket, health, metrics and the pool, on one port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from recap.serving.batching import Batcher
from recap.serving.guard import as_json, make_guard
from recap.serving.policy_socket import PolicySocket
from recap.serving.pool_routes import add_pool_routes
from recap.serving.service import Reply, Request, ServeSpec, Service

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
BATCHER: web.AppKey[Batcher[Request, Reply]] = web.AppKey("batcher", Batcher)
PAGE: web.AppKey[Handler] = web.AppKey("page")  # what `GET /` shows, where someone set it
MAX_BODY = 64 * 1024  # of everything but an upload


def build_app(service: Service) -> web.Application:
    """The server as an application that others may add routes to."""
    app = web.Application(middlewares=[make_guard(service), as_json], client_max_size=MAX_BODY)
    limits = service.spec.limits
    batcher: Batcher[Request, Reply] = Batcher(
        service.serve, service.metrics, limits.max_waiting, limits.max_batch
    )
    socket = PolicySocket(service, batcher)
    app[SERVICE], app[BATCHER] = service, batcher

    async def root(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await socket.handle(request)
        if PAGE in request.app:
            return await request.app[PAGE](request)
        return web.Response(text=_plain_page(service))

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=service.metrics.render(), content_type="text/plain", charset="utf-8")

    async def computing(_: web.Application) -> AsyncIterator[None]:
        batcher.start()
        yield
        await batcher.stop()

    async def goodbye(_: web.Application) -> None:
        await socket.close()

    app.router.add_get("/", root)
    app.router.add_get("/healthz", health)
    app.router.add_get("/metrics", metrics)
    add_pool_routes(app, service)
    app.cleanup_ctx.append(computing)
    app.on_shutdown.append(goodbye)
    return app


async def start(app: web.Application, spec: ServeSpec) -> tuple[web.AppRunner, int]:
    """Listen; returns the port, which may have been left to the system."""
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=30.0, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, spec.host, spec.port).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner, int(runner.addresses[0][1])


def run(app: web.Application, spec: ServeSpec, ready: Callable[[int], None]) -> None:
    """Serve until interrupted; `ready` is called with the port."""

    async def main() -> None:
        runner, port = await start(app, spec)
        try:
            ready(port)
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    asyncio.run(main())


def _plain_page(service: Service) -> str:
    spec = service.spec
    return (
        f"recap serves {spec.agent} ({service.fingerprint}). Robots connect to this address by websocket, "
        "on the openpi protocol.\n/healthz  /metrics  /api/pool\n"
    )

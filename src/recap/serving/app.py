"""The application: the openpi socket, health, metrics and the pool, on one port."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from aiohttp import web
from aiohttp.typedefs import Handler

from recap.errors import InputError
from recap.serving.batching import Batcher
from recap.serving.guard import is_upgrade, make_guard, make_teller
from recap.serving.policy_socket import PolicySocket
from recap.serving.pool_routes import add_pool_routes
from recap.serving.service import Reply, Request, Service
from recap.serving.spec import ServeSpec
from recap.serving.upload_reading import start_reading

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
BATCHER: web.AppKey[Batcher[Request, Reply]] = web.AppKey("batcher", Batcher)
PAGE: web.AppKey[Handler] = web.AppKey("page")  # what `GET /` shows, where someone set it
SWITCH_S = 0.001  # how long the policy may keep the interpreter from the event loop; Python's own is 5 ms
PATIENCE_S = 0.5  # that someone who looks waits for what the policy's thread knows
MAX_BODY = 64 * 1024  # of everything but an upload


def build_app(service: Service) -> web.Application:
    """The server as an application that others may add routes to."""
    app = web.Application(middlewares=[make_guard(service), make_teller(service)], client_max_size=MAX_BODY)
    limits = service.spec.limits
    batcher: Batcher[Request, Reply] = Batcher(
        service.serve,
        service.metrics,
        limits.max_waiting,
        limits.max_batch,
        lambda request: request.session.served_at,
    )
    socket = PolicySocket(service, batcher)
    app[SERVICE], app[BATCHER] = service, batcher
    page = (
        f"recap serves {service.spec.agent.policy} ({service.fingerprint}). Robots connect to this address "
        "by websocket, on the openpi protocol.\n/healthz  /metrics  /api/pool\n"
    )

    async def root(request: web.Request) -> web.StreamResponse:
        if is_upgrade(request):
            return await socket.handle(request)
        if PAGE in request.app:
            return await request.app[PAGE](request)
        return web.Response(text=page)

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def refresh() -> None:
        with suppress(TimeoutError):  # a policy that is busy does not hold up who looks: as it was last known
            async with asyncio.timeout(PATIENCE_S):
                await batcher.run(service.refresh)

    async def metrics(request: web.Request) -> web.Response:
        await refresh()
        return web.Response(text=service.metrics.render(), content_type="text/plain", charset="utf-8")

    async def computing(_: web.Application) -> AsyncIterator[None]:
        if service.is_writable:
            start_reading()
        batcher.start()
        yield
        await batcher.stop()

    async def harden(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.setdefault("X-Content-Type-Options", "nosniff")

    app.on_response_prepare.append(harden)
    app.router.add_get("/", root)
    app.router.add_get("/healthz", health)
    app.router.add_get("/metrics", metrics)
    add_pool_routes(app, service, refresh)
    app.cleanup_ctx.append(computing)
    app.on_shutdown.append(socket.close)
    return app


async def start(app: web.Application, spec: ServeSpec) -> tuple[web.AppRunner, int]:
    """Listen; returns the port, which may have been left to the system."""
    gc.collect()
    gc.freeze()  # what is loaded stays: to look through it again would stop everyone for 0.3 s
    # The first of these also bounds how long a peer may take to send the head of a request.
    patience_s = spec.limits.header_timeout_s
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=patience_s, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, spec.host, spec.port).start()
    except OSError as error:
        await runner.cleanup()
        why = error.strerror or str(error)
        raise InputError(
            f"cannot listen on {spec.host} port {spec.port} ({why}): give another --port"
        ) from error
    return runner, int(runner.addresses[0][1])


def run(app: web.Application, spec: ServeSpec, ready: Callable[[int], None]) -> None:
    """Serve until interrupted; `ready` is called with the port."""

    async def main() -> None:
        runner, port = await start(app, spec)
        stopped = asyncio.Event()
        with suppress(NotImplementedError, RuntimeError, ValueError):  # only the main thread may
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        try:
            ready(port)
            await stopped.wait()
        finally:
            await runner.cleanup()

    sys.setswitchinterval(SWITCH_S)
    asyncio.run(main())

"""The web application: the openpi socket, health, metrics and the pool, on one port."""

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
from recap.serving.guard import is_upgrade, make_error_handler, make_guard
from recap.serving.policy_socket import PolicySocket
from recap.serving.pool_routes import add_pool_routes
from recap.serving.service import Reply, Request, Service
from recap.serving.spec import ServeSpec
from recap.serving.upload_reading import start_reading

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
BATCHER: web.AppKey[Batcher[Request, Reply]] = web.AppKey("batcher", Batcher)
SOCKET: web.AppKey[PolicySocket] = web.AppKey("socket", PolicySocket)
RUNNING: web.AppKey[Running] = web.AppKey("running")
PAGE: web.AppKey[Handler] = web.AppKey("page")  # replaces the page of `GET /`, if set
SWITCH_S = 0.001  # thread switch interval, so that the policy blocks the event loop less; default 5 ms
PATIENCE_S = 0.5  # timeout of a refresh on the policy's thread, for readiness, metrics and pool requests
FINISH_S = 10.0  # time for running replies and uploads when the server stops
MAX_BODY = 64 * 1024  # bytes, except for uploads


def build_app(service: Service) -> web.Application:
    """The server as an aiohttp application, to which callers may add routes."""
    running = Running()
    guard = make_guard(service.spec, service.metrics.refused.add)
    error_handler = make_error_handler(getattr(service.pool, "uri", None))
    app = web.Application(middlewares=[running.middleware, guard, error_handler], client_max_size=MAX_BODY)
    limits = service.spec.limits
    batcher: Batcher[Request, Reply] = Batcher(
        service.serve,
        service.metrics,
        limits.max_waiting,
        limits.max_batch,
        lambda request: request.session.served_at,
    )
    socket = PolicySocket(service, batcher)
    app[SERVICE], app[BATCHER], app[SOCKET], app[RUNNING] = service, batcher, socket, running
    page = (
        f"recap serves {service.spec.agent.policy} ({service.fingerprint}). Robots connect to this address "
        "by websocket, on the openpi protocol.\n/healthz  /readyz  /metrics  /api/pool\n"
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
        with suppress(TimeoutError):  # while the policy is busy, answer with the last known state
            async with asyncio.timeout(PATIENCE_S):
                await batcher.run(service.refresh)

    async def ready(request: web.Request) -> web.Response:
        """Readiness for load balancers; `health` says only that the process is alive."""
        await refresh()
        why = "stopping" if socket.leaving else service.unreadable
        return web.Response(text=f"{why or 'ready'}\n", status=503 if why else 200)

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
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", metrics)
    add_pool_routes(app, service, refresh)
    app.cleanup_ctx.append(computing)
    app.on_shutdown.append(lambda _: socket.close())
    return app


async def start(app: web.Application, spec: ServeSpec) -> tuple[web.AppRunner, int]:
    """Start to listen; returns the port, which the system chooses for port 0."""
    gc.collect()
    gc.freeze()  # loaded objects stay: scanning them again would pause the server for 0.3 s
    # keepalive_timeout also bounds how long a client may take to send the head of a request.
    patience_s = spec.limits.header_timeout_s
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=patience_s, shutdown_timeout=FINISH_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, spec.host, spec.port).start()
    except OSError as error:
        await runner.cleanup()
        why = error.strerror or str(error)
        raise InputError(f"cannot listen on {spec.host}:{spec.port} ({why}): give another --port") from error
    return runner, int(runner.addresses[0][1])


class Running:
    """Counts the running requests, including connected robots."""

    def __init__(self) -> None:
        self._n = 0
        self._left = asyncio.Event()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._n += 1
        try:
            return await handler(request)
        finally:
            self._n -= 1
            self._left.set()

    async def none(self, seconds: float) -> None:
        """Wait until no request is running, at most for some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._n:
                    self._left.clear()
                    await self._left.wait()


async def stop(runner: web.AppRunner, app: web.Application, hurry: asyncio.Event | None = None) -> None:
    """Stop listening, so that a load balancer uses other servers, finish running requests, and close.

    Args:
        hurry: until it is set, robots may finish their episodes; None: only their pending requests.
    """
    for site in runner.sites:
        await site.stop()
    if SOCKET not in app:  # an application without the policy socket
        await runner.cleanup()
        return
    if hurry is not None:
        app[SOCKET].leaving = True
        done = asyncio.ensure_future(app[RUNNING].none(app[SERVICE].spec.limits.drain_s))
        hurried = asyncio.ensure_future(hurry.wait())
        await asyncio.wait((done, hurried), return_when=asyncio.FIRST_COMPLETED)
        done.cancel(), hurried.cancel()
    await app[SOCKET].close()
    await app[RUNNING].none(FINISH_S)
    await runner.cleanup()


def run(app: web.Application, spec: ServeSpec, ready: Callable[[int], None]) -> None:
    """Serve until Ctrl-C or SIGTERM, which lets episodes finish; `ready` is called with the port."""

    async def main() -> None:
        runner, port = await start(app, spec)
        stopped = asyncio.Event()
        with suppress(NotImplementedError, RuntimeError, ValueError):  # only the main thread can set handlers
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        try:
            ready(port)
            await stopped.wait()
            stopped.clear()
            await stop(runner, app, hurry=stopped)  # a second SIGTERM ends it at once
        except asyncio.CancelledError:  # Ctrl-C
            await stop(runner, app)
            raise
        except BaseException:
            await runner.cleanup()
            raise

    sys.setswitchinterval(SWITCH_S)
    asyncio.run(main())

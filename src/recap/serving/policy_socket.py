"""The openpi socket: it sends metadata, then answers each observation with an action chunk."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import suppress

from aiohttp import WSCloseCode, WSMsgType, web

from recap.errors import BusyError, RecapError
from recap.serving.batching import Batcher
from recap.serving.observations import read_executed, read_missed, read_observation, read_reset
from recap.serving.service import Reply, Request, Service, Session, one_line
from recap_client.messages import STATE
from recap_client.wire import decode_map, encode

HEARTBEAT_S = 30.0  # a client that does not answer a ping within half of this is disconnected
GONE = WSCloseCode.GOING_AWAY
CLOSE_S = 2.0  # time for a client to answer the closing handshake
MAX_ERRORS = 20  # consecutive errors after which a client is disconnected
log = logging.getLogger("recap.serving")


class PolicySocket:
    """Handles every websocket connection on the root path."""

    def __init__(self, service: Service, batcher: Batcher[Request, Reply]) -> None:
        self.service, self.batcher = service, batcher
        self.leaving = False  # True: no new episodes, so that robots reconnect to another server
        self._closing = False
        self._open: set[web.WebSocketResponse] = set()
        self._busy: set[web.WebSocketResponse] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection until it closes."""
        limits, metrics = self.service.spec.limits, self.service.metrics
        if self.leaving or len(self._open) >= limits.max_connections:
            metrics.busy.add()
            raise web.HTTPServiceUnavailable(text="busy: too many connections; try again soon\n")
        socket = web.WebSocketResponse(
            timeout=CLOSE_S, heartbeat=HEARTBEAT_S, compress=False, max_msg_size=limits.max_message_bytes
        )
        await socket.prepare(request)
        session = self.service.new_session(str(request.remote))
        self._open.add(socket)
        metrics.connections.set(len(self._open))
        try:
            await self._send(socket, encode(await self.batcher.run(self.service.metadata)))
            await self._converse(socket, session)
        except (ConnectionError, TimeoutError):
            pass  # the client is gone, or does not read its replies
        finally:
            self._open.discard(socket)
            metrics.connections.set(len(self._open))
            with suppress(RuntimeError):  # the policy's thread has ended, and its state with it
                await self.batcher.run(lambda: self.service.release(session))
            if not socket.closed:
                await socket.close()
        return socket

    async def close(self) -> None:
        """Close all connections; those that wait for a reply are closed after it."""
        self.leaving = self._closing = True
        idle = self._open - self._busy
        await asyncio.gather(*(socket.close(code=GONE) for socket in idle), return_exceptions=True)

    async def _converse(self, socket: web.WebSocketResponse, session: Session) -> None:
        n_errors = 0
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                self._busy.add(socket)
                try:
                    error = await self._answer(socket, session, message.data)
                finally:
                    self._busy.discard(socket)
                if self._closing:
                    await socket.close(code=GONE)
            else:
                error = "a text frame means nothing here: send msgpack in a binary frame"
            if error is None:
                n_errors = 0
                continue
            n_errors += 1
            self.service.metrics.errors.add()
            await self._send(socket, error)
            if n_errors >= MAX_ERRORS:
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"too many errors")

    async def _answer(self, socket: web.WebSocketResponse, session: Session, data: bytes) -> str | None:
        """Reply to one message; returns an error message if it is invalid."""
        started, metrics = time.perf_counter(), self.service.metrics
        try:
            message = decode_map(data, self.service.spec.limits.max_message_bytes)
            reset = read_reset(message)
            if reset is not None:
                self.service.scene.check(reset.options)
                self.service.end(session, reset.success)
                session.pending = reset
            if self.leaving and session.pending is not None:
                await socket.close(code=GONE)
                return None
            if reset is not None and STATE not in message:
                await self._send(socket, encode({"reset": True}))
                return None
            missed = read_missed(message)
            observation = read_observation(message, self.service.obs_spec, math.nan)
            executed = read_executed(message, self.service.chunk_size)
            reply = await self.batcher.ask(Request(session, observation, executed))
        except BusyError as error:
            await self._send(socket, one_line(error))  # counted by the batcher; not the client's error
            return None
        except RecapError as error:
            return one_line(error)
        except Exception as error:
            log.exception("a request failed")
            return one_line(error)
        spent_s = time.perf_counter() - started
        timing = {**reply.message["server_timing"], "infer_ms": 1000 * spent_s}
        await self._send(socket, encode({**reply.message, "server_timing": timing}))
        metrics.requests.add()
        metrics.reply.observe(spent_s)
        metrics.missed.add(spent_s > self.service.budget_ms / 1000)
        metrics.idle.add(missed)
        metrics.held.add(reply.held)
        metrics.limited.add(reply.n_limited)
        return None

    async def _send(self, socket: web.WebSocketResponse, what: bytes | str) -> None:
        async with asyncio.timeout(self.service.spec.limits.send_timeout_s):
            if isinstance(what, bytes):
                await socket.send_bytes(what)
            else:
                await socket.send_str(what)

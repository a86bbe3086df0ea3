"""A conversation with a page: JSON both ways on one websocket, and an error is one line of it."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from recap.errors import InputError, RecapError

MAX_MESSAGE = 8 * 1024  # bytes that a page may send at once
SOCKETS: web.AppKey[set[web.WebSocketResponse]] = web.AppKey("studio_sockets", set)  # of pages that are open
log = logging.getLogger("recap_apps.studio")


class Conversation(ABC):
    """One page on one socket."""

    def __init__(self) -> None:
        self.socket = web.WebSocketResponse(heartbeat=15, max_msg_size=MAX_MESSAGE)

    @abstractmethod
    async def hear(self, kind: str, message: dict[str, Any]) -> None:
        """A message has come."""

    @abstractmethod
    async def end(self) -> None:
        """The page has gone."""

    async def hold(self, request: web.Request) -> web.WebSocketResponse:
        """Listen until it ends."""
        await self.socket.prepare(request)
        open_sockets = request.app[SOCKETS]
        open_sockets.add(self.socket)
        try:
            async for message in self.socket:
                if message.type is not WSMsgType.TEXT:
                    break
                try:
                    given = _checked(message.data)
                    await self.hear(str(given["type"]), given)
                except Exception as error:  # a page that meets one goes on all the same
                    await self.complain(error)
        finally:
            open_sockets.discard(self.socket)
            await self.end()
        return self.socket

    async def say(self, kind: str, **values: Any) -> None:
        """Send, unless the page has gone."""
        if not self.socket.closed:
            try:
                await self.socket.send_str(json.dumps({"type": kind, **values}, allow_nan=False))
            except ConnectionError:
                log.debug("a page went away in the middle of a message")

    async def complain(self, error: Exception) -> None:
        """Say what went wrong, in one line."""
        if not isinstance(error, RecapError):
            log.error("the studio met an error", exc_info=error)
        text = (
            str(error) if isinstance(error, RecapError) else f"{type(error).__name__}: see the server's log"
        )
        await self.say("error", text=" ".join(text.split()))


async def close_sockets(app: web.Application) -> None:
    """Let every page go, so that the server can stop at once; they come back by themselves."""
    sockets = app[SOCKETS]
    for socket in tuple(sockets):
        await socket.close(code=WSCloseCode.GOING_AWAY)


def _checked(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("that was not JSON: reload the page") from None
    if not isinstance(given, dict) or not isinstance(given.get("type"), str):
        raise InputError("a message is a map with a type: reload the page")
    return given


def number(given: Any, what: str) -> float:
    """A finite number of a message."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) < 1e9:
        raise InputError(f"{what} is no number: reload the page")
    return float(given)

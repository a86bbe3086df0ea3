"""A websocket to a page: JSON messages in both directions; errors are sent as one line."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from recap.errors import InputError, RecapError

MAX_MESSAGE = 8 * 1024  # largest message from a page, in bytes
SOCKETS: web.AppKey[set[web.WebSocketResponse]] = web.AppKey("studio_sockets", set)  # of open pages
log = logging.getLogger("recap_apps.studio")


class Conversation(ABC):
    """The socket of one page."""

    def __init__(self) -> None:
        self.socket = web.WebSocketResponse(heartbeat=15, max_msg_size=MAX_MESSAGE)

    @abstractmethod
    async def hear(self, kind: str, message: dict[str, Any]) -> None:
        """Handle a message."""

    @abstractmethod
    async def end(self) -> None:
        """Clean up after the page has closed."""

    async def hold(self, request: web.Request) -> web.WebSocketResponse:
        """Handle messages until the page closes."""
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
                except Exception as error:  # the page can continue after an error
                    await self.complain(error)
        finally:
            open_sockets.discard(self.socket)
            await self.end()
        return self.socket

    async def say(self, kind: str, **values: Any) -> None:
        """Send a message, unless the page has closed."""
        if not self.socket.closed:
            try:
                await self.socket.send_str(json.dumps({"type": kind, **values}, allow_nan=False))
            except ConnectionError:
                log.debug("a page went away in the middle of a message")

    async def complain(self, error: Exception) -> None:
        """Send an error in one line."""
        if not isinstance(error, RecapError):
            log.error("the studio met an error", exc_info=error)
        text = (
            str(error) if isinstance(error, RecapError) else f"{type(error).__name__}: see the server's log"
        )
        await self.say("error", text=" ".join(text.split()))


async def close_sockets(app: web.Application) -> None:
    """Close all sockets, so that the server can stop at once; pages reconnect by themselves."""
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
    """A finite number in a message."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) < 1e9:
        raise InputError(f"{what} is no number: reload the page")
    return float(given)

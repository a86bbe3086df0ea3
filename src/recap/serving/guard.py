"""Access control: a token for servers on a network, and refusal of requests from other websites."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from recap.errors import RecapError, explain_os_error
from recap.serving.service import one_line
from recap.serving.spec import ServeSpec

COOKIE = "recap-token"
OPEN_PATHS = ("/healthz", "/readyz")  # for monitoring; they reveal nothing else
log = logging.getLogger("recap.serving")
LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")


def refusal(status: int, text: str, code: str = "server") -> web.Response:
    """An error response, in the same form for every route."""
    return web.json_response({"error": text, "code": code}, status=status)


def make_guard(spec: ServeSpec, on_refusal: Callable[[], None] = lambda: None) -> Middleware:
    """The middleware that checks access; `on_refusal` is called for each refused request."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        reason = _why_foreign(request, spec)
        if reason is not None:
            on_refusal()
            return refusal(403, reason)
        if spec.token is not None and request.path not in OPEN_PATHS:
            query_token = request.query.get("token", "")
            if request.method == "GET" and _same(query_token, spec.token) and not is_upgrade(request):
                redirect = web.HTTPSeeOther(str(request.rel_url.without_query_params("token")))
                redirect.set_cookie(COOKIE, spec.token, httponly=True, samesite="Strict")
                raise redirect
            scheme, _, key = request.headers.get("Authorization", "").partition(" ")
            has_token = scheme.lower() in ("api-key", "bearer")
            if not _same(key.strip() if has_token else request.cookies.get(COOKIE, ""), spec.token):
                on_refusal()
                return refusal(401, "a token is needed: send 'Authorization: Bearer TOKEN', or Api-Key TOKEN")
        return await handler(request)

    return guard


def make_error_handler(place: str | None = None) -> Middleware:
    """The middleware that turns errors, including aiohttp's under /api/, into one line of JSON.

    Args:
        place: path of the pool, which is removed from messages.
    """

    def message(error: BaseException) -> str:
        """The message without the path of the pool, which clients need not know."""
        text = one_line(error)
        return text.replace(f"pool {place}", "the pool") if place else text

    @web.middleware
    async def handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except RecapError as error:
            return refusal(409 if error.code == "pool.moved" else 400, message(error), error.code)
        except web.HTTPException as error:
            if error.status < 400 or not request.path.startswith("/api/"):
                raise
            return refusal(error.status, " ".join((error.text or error.reason).split()))
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            what, remedy = explain_os_error(error) if isinstance(error, OSError) else ("", "")
            if remedy:
                log.error("%s %s failed: %s", request.method, request.path, what)
                return refusal(507, f"the server cannot write: {what}. Send it again when that is mended")
            log.exception("%s %s failed", request.method, request.path)
            return refusal(500, message(error))

    return handle_errors


def _why_foreign(request: web.Request, spec: ServeSpec) -> str | None:
    """The reason to refuse a request because of its Host or Origin, or None."""
    host = request.headers.get("Host", "")
    if spec.is_local and _name(f"//{host}") not in LOCAL_NAMES:
        return f"this server answers to {spec.host} only: open it by that name"
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        return "a page of another site may not use this server: open the server's own page"
    return None


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _same(given: str, token: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode("utf-8", "replace"))


def is_upgrade(request: web.Request) -> bool:
    """True if the request asks for a websocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"

"""The files of the studio's pages, and security headers that block other content."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from aiohttp import web

KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Nothing inline and nothing external: a string that is injected into markup has no effect.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class Site:
    """The files by name; `first` is served at the root."""

    def __init__(self, first: str) -> None:
        folder = files("recap_apps") / "studio" / "page"
        self.first = first
        self.files = {f.name: f.read_bytes() for f in folder.iterdir() if Path(f.name).suffix in KINDS}

    async def page(self, request: web.Request) -> web.StreamResponse:
        """The page."""
        return self._file(self.first)

    async def asset(self, request: web.Request) -> web.StreamResponse:
        """A file of the page."""
        return self._file(request.match_info["file"])

    def _file(self, name: str) -> web.Response:
        if name not in self.files:
            raise web.HTTPNotFound(text=f"the studio has no file {name!a}")
        kind = KINDS[Path(name).suffix]
        return web.Response(body=self.files[name], content_type=kind, charset="utf-8", headers=HEADERS)

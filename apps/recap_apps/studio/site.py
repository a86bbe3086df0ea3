"""The files of the studio's pages, and the headers that keep anything else out."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from aiohttp import web

KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Nothing inline, nothing from elsewhere: a string that slipped into markup could do nothing.
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
    """The files by name; one of them is what the address shows."""

    def __init__(self, first: str) -> None:
        folder = files("recap_apps") / "studio" / "page"
        self.first = first
        self.files = {f.name: f.read_bytes() for f in folder.iterdir() if Path(f.name).suffix in KINDS}

    async def page(self, request: web.Request) -> web.StreamResponse:
        """The page."""
        return self._file(self.first)

    async def asset(self, request: web.Request) -> web.StreamResponse:
        """What it is made of."""
        return self._file(request.match_info["file"])

    def _file(self, name: str) -> web.Response:
        if name not in self.files:
            raise web.HTTPNotFound(text=f"the studio has no file {name!a}")
        kind = KINDS[Path(name).suffix]
        return web.Response(body=self.files[name], content_type=kind, charset="utf-8", headers=HEADERS)

"""A studio on a real port, served from a thread of the test process."""

import asyncio
import threading
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Self

from aiohttp import web

from recap.serving.app import build_app, start
from recap.serving.service import Service
from recap.serving.spec import ServeSpec
from recap_apps.studio.app import add_studio
from recap_apps.studio.explore import Extras, build_explorer, explorer_spec
from recap_apps.studio.library import open_library
from recap_apps.studio.serving import studio_spec


class Served(ABC):
    """A server as a context manager; `stop` and `start` inside it are a restart."""

    spec: ServeSpec
    port = 0

    @abstractmethod
    def build(self) -> web.Application:
        """A new application."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Build the application and listen, on the same port as before."""
        self._app = self.build()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(30), "the server does not start"

    def _serve(self, ready: threading.Event) -> None:
        async def main() -> None:
            self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
            runner, self.port = await start(self._app, replace(self.spec, port=self.port))
            ready.set()
            await self._end.wait()
            await runner.cleanup()

        asyncio.run(main())

    def stop(self) -> None:
        """Close every connection and the port."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server does not stop"


class Opened(Served):
    """The Push-T studio."""

    def __init__(self, pool: Path, policy: str = "replay", runs: Path = Path("no-runs")) -> None:
        self.spec = studio_spec(str(pool), policy)
        self.runs = runs
        self.service: Service

    def build(self) -> web.Application:
        """The application with policy and pool."""
        self.service = Service.open(self.spec)
        app = build_app(self.service)
        add_studio(app, self.runs)
        return app


class OpenedExplorer(Served):
    """The studio on a pool or dataset."""

    def __init__(self, place: Path, extras: Extras = Extras()) -> None:  # noqa: B008
        self.place, self.extras = place, extras
        self.spec = explorer_spec(str(place), 0)

    def build(self) -> web.Application:
        """The application on the reopened pool or dataset."""
        return build_explorer(open_library(str(self.place)), self.spec, self.extras)

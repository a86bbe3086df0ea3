"""A studio on a real port, served from a thread of the test's own process."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

from recap.serving.app import build_app, start
from recap.serving.service import Service
from recap_apps.studio.app import add_studio
from recap_apps.studio.serving import studio_spec


class Opened:
    """Starts when entered, stops when left; `stop` and `start` in between are a restart."""

    def __init__(self, pool: Path, policy: str = "replay", runs: Path = Path("no-runs")) -> None:
        self.spec = studio_spec(str(pool), policy)
        self.runs = runs
        self.port = 0
        self.service: Service

    def __enter__(self) -> "Opened":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Open pool and policy and listen, on the port it had before."""
        self.service = Service.open(self.spec)
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(30), "the server does not start"

    def _serve(self, ready: threading.Event) -> None:
        async def main() -> None:
            self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
            app = build_app(self.service)
            add_studio(app, self.runs)
            runner, self.port = await start(app, replace(self.spec, port=self.port))
            ready.set()
            await self._end.wait()
            await runner.cleanup()

        asyncio.run(main())

    def stop(self) -> None:
        """Close every connection and the port."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server does not stop"

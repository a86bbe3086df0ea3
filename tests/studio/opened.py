"""A studio on a real port, served from a thread of the test's own process."""

import asyncio
import threading
from pathlib import Path

from recap.serving.app import build_app, start
from recap.serving.service import ServeSpec, Service
from recap.studio.app import add_studio


class Opened:
    """Starts when entered, stops when left; `stop` and `start` in between are a restart."""

    def __init__(self, pool: Path, checkpoint: str = "replay", runs: Path = Path("no-runs")) -> None:
        self.spec = ServeSpec(agent=checkpoint, pool=str(pool), port=0)
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
            spec = ServeSpec(agent=self.spec.agent, pool=self.spec.pool, port=self.port)
            runner, self.port = await start(app, spec)
            ready.set()
            await self._end.wait()
            await runner.cleanup()

        asyncio.run(main())

    def stop(self) -> None:
        """Close every connection and the port."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server does not stop"

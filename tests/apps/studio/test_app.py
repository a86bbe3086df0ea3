"""The studio's routes and websockets, without a browser."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from opened import Opened

from episodes import random_episode
from recap.pool.store import Pool
from recap_apps.studio import app as studio_app

TASK = {"block": "tee", "angle": 30, "start": 151}
Talk = Callable[[aiohttp.ClientSession, str], Awaitable[Any]]


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    place = tmp_path_factory.mktemp("app")
    Pool.create(place / "pool")
    with Opened(place / "pool", runs=place) as opened:
        yield opened


def talk(studio: Opened, work: Talk) -> Any:
    async def main() -> Any:
        async with aiohttp.ClientSession() as session:
            return await work(session, studio.url)

    return asyncio.run(main())


async def hear(socket: aiohttp.ClientWebSocketResponse, *kinds: str) -> dict[str, Any]:
    """The next message of one of these kinds."""
    while True:
        message = json.loads(await socket.receive_str(timeout=120))
        if message["type"] in kinds:
            return message  # type: ignore[no-any-return]


def test_the_page_has_a_strict_content_security_policy(studio: Opened) -> None:
    async def work(session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(url) as answer:
            policy = answer.headers["Content-Security-Policy"]
            page = await answer.text()
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert '<script type="module" src="/studio/main.js"></script>' in page
        assert "style=" not in page
        assert "http" not in page.replace("http-equiv", "")  # no external resources
        for name, kind in (("main.js", "text/javascript"), ("studio.css", "text/css")):
            async with session.get(f"{url}studio/{name}") as answer:
                assert answer.status == 200
                assert answer.content_type == kind
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
        for name in ("nothing.js", "..%2Fapp.py", "__init__.py"):
            async with session.get(f"{url}studio/{name}") as answer:
                assert answer.status == 404

    talk(studio, work)


def test_no_page_file_parses_html_or_loads_external_urls() -> None:
    folder = Path(studio_app.__file__).parent / "page"
    files = [file for file in folder.iterdir() if file.suffix in (".js", ".css", ".html")]
    assert len(files) >= 10
    for file in files:
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "http://",
            "https://",
        ):
            assert word not in text, (file.name, word)


def test_websockets_with_a_foreign_origin_are_refused(studio: Opened) -> None:
    async def work(session: aiohttp.ClientSession, url: str) -> None:
        for path in ("teach", "run", "events"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await session.ws_connect(f"{url}api/studio/{path}", origin="http://evil.example")
            assert caught.value.status == 403

    talk(studio, work)


def test_a_demonstration_taught_over_the_websocket_is_added_to_the_pool(studio: Opened) -> None:
    async def work(session: aiohttp.ClientSession, url: str) -> None:
        async with (
            session.ws_connect(f"{url}api/studio/events") as events,
            session.ws_connect(f"{url}api/studio/teach") as socket,
        ):
            first = json.loads(await events.receive_str(timeout=120))
            await socket.send_json({"type": "begin", **TASK})
            scene = await hear(socket, "scene")
            assert scene["t"] == 0
            with pytest.raises(asyncio.TimeoutError):
                await hear_within(socket, 0.4)  # no step before the first input
            x, y = scene["pusher"]
            await socket.send_json({"type": "point", "x": x + 60, "y": y})
            moments = [await hear(socket, "moment") for _ in range(12)]
            assert [moment["t"] for moment in moments] == list(range(1, 13))
            await socket.send_json({"type": "stop"})
            stopped = await hear(socket, "stopped")
            await socket.send_json({"type": "add", "name": "twice", "first": 0, "last": stopped["n"]})
            added = await hear(socket, "added", "error")
            assert added["type"] == "added", added
            assert added["version"] == added["before"] + 1
            now = json.loads(await events.receive_str(timeout=120))
            assert now["version"] == added["version"]
            assert now["n_episodes"] == first["n_episodes"] + 1
            await socket.send_json({"type": "add", "name": "twice", "first": 0, "last": stopped["n"]})
            assert "already" in (await hear(socket, "error"))["text"]

    talk(studio, work)
    kept = studio.service.store.get("studio/twice")
    assert kept.embodiment == "disc"
    studio.service.store.remove(["studio/twice"])


async def hear_within(socket: aiohttp.ClientWebSocketResponse, seconds: float) -> str:
    return await socket.receive_str(timeout=seconds)


@pytest.mark.parametrize(
    ("path", "message", "words"),
    [
        ("teach", "no json", "not JSON"),
        ("teach", "[" * 5000, "not JSON"),
        ("teach", "[1]", "a map"),
        ("teach", '{"type": "point", "x": 1, "y": 1}', "choose a task"),
        ("teach", '{"type": "begin"}', "a task is"),
        ("teach", '{"type": "begin", "block": "tee", "angle": 1e400, "start": 0}', "out of range"),
        ("run", '{"type": "play"}', "choose a task"),
        ("run", '{"type": "begin", "block": "tee", "angle": 0, "start": 0}', "pool versions"),
        (
            "run",
            '{"type": "begin", "block": "tee", "angle": 0, "start": 0, "versions": [9999]}',
            "no version",
        ),
        (
            "run",
            '{"type": "begin", "block": "tee", "angle": 0, "start": 0, "versions": ["x"]}',
            "pool versions",
        ),
        ("run", '{"type": "play", "rate": "fast"}', "no number"),
    ],
)
def test_a_wrong_message_gets_a_one_line_error_and_the_socket_stays_open(
    studio: Opened, path: str, message: str, words: str
) -> None:
    async def work(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
        async with session.ws_connect(f"{url}api/studio/{path}") as socket:
            await socket.send_str(message)
            said = await hear(socket, "error")
            await socket.send_json({"type": "begin", **TASK, "versions": [None]})
            await hear(socket, "scene")  # the socket stays open
            return said

    said = talk(studio, work)
    assert words in said["text"]
    assert "\n" not in said["text"]


def test_a_run_plays_pauses_and_steps_without_losing_a_step(studio: Opened) -> None:
    async def work(session: aiohttp.ClientSession, url: str) -> list[int]:
        seen = []
        async with session.ws_connect(f"{url}api/studio/run") as socket:
            await socket.send_json({"type": "begin", **TASK, "versions": [None]})
            seen.append((await hear(socket, "moment"))["t"])
            await socket.send_json({"type": "play", "rate": 100})
            for _ in range(5):
                seen.append((await hear(socket, "moment"))["t"])
            await socket.send_json({"type": "pause"})
            while (message := await hear(socket, "moment", "paused"))["type"] == "moment":
                seen.append(message["t"])
            await socket.send_json({"type": "step"})
            seen.append((await hear(socket, "moment"))["t"])
        return seen

    seen = talk(studio, work)
    assert seen == list(range(len(seen)))
    assert len(seen) >= 7


def test_the_coverage_results_and_report_routes(studio: Opened) -> None:
    async def work(session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(f"{url}api/studio/coverage?block=plus") as answer:
            assert (await answer.json())["block"] == "plus"
        async with session.get(f"{url}api/studio/coverage?block=pentagon") as answer:
            assert answer.status == 400
            assert "pentagon" in (await answer.json())["error"]
        async with session.get(f"{url}api/studio/results") as answer:
            assert (await answer.json())["runs"] == []
        async with session.get(f"{url}api/studio/reports/..%2F..%2Fetc%2Fpasswd") as answer:
            assert answer.status == 400

    talk(studio, work)


def test_an_unusable_demonstration_is_listed_and_the_run_continues(studio: Opened) -> None:
    studio.service.store.add([replace(random_episode("studio/blind", 1), objects={})])

    async def work(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
        async with session.get(f"{url}api/pool") as answer:
            assert list((await answer.json())["unusable"]) == ["studio/blind"]
        async with session.get(f"{url}api/studio/coverage?block=tee") as answer:
            assert (await answer.json())["n_demonstrations"] == 0
        async with session.ws_connect(f"{url}api/studio/run") as socket:
            await socket.send_json({"type": "begin", **TASK, "versions": [None]})
            return await hear(socket, "moment", "error")

    moment = talk(studio, work)
    studio.service.store.remove(["studio/blind"])
    assert moment["holding"]


def test_a_report_is_served_in_a_sandbox(studio: Opened) -> None:
    folder = studio.runs / "some run"
    folder.mkdir()
    (folder / "eval_info.json").write_text("{}")
    (folder / "report.html").write_text("<script>parent.broken = 1</script>")

    async def work(session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(f"{url}api/studio/results") as answer:
            (run,) = (await answer.json())["runs"]
        assert run["reports"] == ["some run/report.html"]
        async with session.get(f"{url}api/studio/reports/some%20run/report.html") as answer:
            assert answer.status == 200
            assert answer.headers["Content-Security-Policy"].startswith("sandbox")
            assert "allow-same-origin" not in answer.headers["Content-Security-Policy"]

    talk(studio, work)

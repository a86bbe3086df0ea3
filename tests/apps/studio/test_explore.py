"""The routes of the studio for any pool or dataset."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import av
import pytest
from foreign import HOSTILE, dataset, demonstrations
from opened import OpenedExplorer

FIRST = demonstrations()[0]
Talk = Callable[[aiohttp.ClientSession, str], Awaitable[Any]]


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedExplorer]:
    with OpenedExplorer(dataset(tmp_path_factory.mktemp("explore") / "arm")) as opened:
        yield opened


def talk(studio: OpenedExplorer, work: Talk) -> Any:
    async def main() -> Any:
        async with aiohttp.ClientSession() as session:
            return await work(session, studio.url)

    return asyncio.run(main())


def asked(studio: OpenedExplorer, path: str, **query: Any) -> tuple[int, Any]:
    """The status and JSON of a reply."""

    async def work(session: aiohttp.ClientSession, url: str) -> tuple[int, Any]:
        async with session.get(f"{url}api/explore/{path}", params=query) as answer:
            return answer.status, await answer.json()

    return talk(studio, work)  # type: ignore[no-any-return]


def test_the_page_has_a_strict_csp_and_foreign_hosts_are_refused(studio: OpenedExplorer) -> None:
    async def work(session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(url) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "unsafe" not in answer.headers["Content-Security-Policy"]
            assert '<script type="module" src="/studio/explore.js"></script>' in await answer.text()
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            async with session.get(f"{url}api/explore/about", headers=headers) as answer:
                assert answer.status == 403

    talk(studio, work)


def test_about_describes_the_data_and_the_robot(studio: OpenedExplorer) -> None:
    status, told = asked(studio, "about")
    assert status == 200
    assert (told["n"], told["kind"]) == (6, "LeRobot dataset")
    assert told["robot"]["cameras"] == ["front", "wrist"]
    assert [f["name"] for f in told["robot"]["features"]] == [
        "tool.position",
        "tool.rotation",
        "tool.gripper",
    ]


def test_a_demonstration_has_its_time_series(studio: OpenedExplorer) -> None:
    status, told = asked(studio, "one", id=FIRST.id)
    assert status == 200
    assert (told["task"], told["n_frames"]) == (FIRST.task, len(FIRST))
    assert len(told["series"]["steps"]) == len(FIRST)


def test_frames_and_videos_are_those_of_the_camera(studio: OpenedExplorer) -> None:
    async def work(session: aiohttp.ClientSession, url: str) -> None:
        given = {"id": FIRST.id, "camera": "wrist"}
        async with session.get(f"{url}api/explore/frame", params={**given, "t": "3"}) as answer:
            assert answer.content_type == "image/jpeg"
            assert (await answer.read())[:2] == b"\xff\xd8"
        async with session.get(f"{url}api/explore/film", params=given) as answer:
            assert answer.content_type == "video/mp4"
            with av.open(io.BytesIO(await answer.read())) as film:
                assert (film.streams.video[0].width, film.streams.video[0].height) == (96, 48)
                assert sum(1 for _ in film.decode(video=0)) == len(FIRST)
        async with session.get(
            f"{url}api/explore/film", params=given, headers={"Range": "bytes=0-9"}
        ) as answer:
            assert (answer.status, len(await answer.read())) == (206, 10)

    talk(studio, work)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("one", {}),
        ("one", {"id": "nobody"}),
        ("one", {"id": HOSTILE}),
        ("list", {"offset": "-1"}),
        ("list", {"limit": "many"}),
        ("list", {"limit": "100000"}),
        ("list", {"show": "everything"}),
        ("frame", {"id": FIRST.id, "camera": "../../etc/passwd"}),
        ("frame", {"id": FIRST.id, "camera": "front", "t": "1e9"}),
        ("film", {"id": FIRST.id, "camera": "rear"}),
        ("retrieve", {"id": "nobody"}),
        ("retrieve", {"id": FIRST.id, "retrieval": "no such"}),
        ("retrieve", {"id": FIRST.id, "retrieval": "dualarm-parts"}),
        ("retrieve", {"id": FIRST.id, "n": "1000"}),
        ("starts", {"by": "where?"}),
    ],
)
def test_a_wrong_query_is_a_one_line_error(studio: OpenedExplorer, path: str, query: dict[str, str]) -> None:
    status, told = asked(studio, path, **query)
    assert status == 400
    assert told["code"]
    assert "\n" not in told["error"]


def test_the_retrieve_and_starts_routes(studio: OpenedExplorer) -> None:
    status, told = asked(studio, "retrieve", id=FIRST.id, t=10, n=2)
    assert (status, len(told["matches"])) == (200, 2)
    status, told = asked(studio, "starts")
    assert (status, told["n"]) == (200, 6)
    status, told = asked(studio, "starts", by="scene")
    assert (status, told["n"]) == (200, 6)


def test_reading_changes_no_file(studio: OpenedExplorer) -> None:
    before = {p: p.stat().st_mtime_ns for p in Path(studio.place).rglob("*")}
    asked(studio, "list")
    asked(studio, "one", id=FIRST.id)
    assert {p: p.stat().st_mtime_ns for p in Path(studio.place).rglob("*")} == before

"""The studio's changes to a pool: accepted videos of hands, and quarantine."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from foreign import demonstrations, pool
from hand_films import film, landmarks
from made_hands import FRONT, motion
from opened import OpenedExplorer

from recap.errors import InputError
from recap.pool.store import Pool
from recap.types import QUARANTINE
from recap.usage import UsageLog
from recap_apps.studio.explore import Extras, build_explorer, explorer_spec
from recap_apps.studio.hand_films import HandFilms
from recap_apps.studio.library import open_library
from recap_hands.camera import Camera
from recap_hands.landmarks import load_landmarks
from recap_hands.lift import LiftSettings, lift, write_demonstration

IDS = [episode.id for episode in demonstrations()]


def lifted(folder: Path, gap: slice | None = None, camera: Camera = FRONT) -> Path:
    """A video of a synthetic hand as `recap lift` writes it, with an optional gap."""
    times, points = motion(90)
    if gap is not None:
        points[gap] = np.nan
    folder.parent.mkdir(parents=True, exist_ok=True)
    shot = film(folder.parent / f"{folder.name}.mp4", times)
    marks = landmarks(folder.parent / f"{folder.name}.npz", times, points, camera)
    write_demonstration(folder, lift([load_landmarks(marks)], [camera], LiftSettings()), "wave", shot)
    return folder


@pytest.fixture(scope="module")
def hands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("lifted") / "hand"
    lifted(place / "0")
    lifted(place / "1", slice(40, 50))
    return place


def asked(opened: OpenedExplorer, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    async def main() -> tuple[int, Any]:
        async with aiohttp.ClientSession() as session:
            url = f"{opened.url}api/explore/{path}"
            way = session.get(url) if body is None else session.post(url, json=body)
            async with way as answer:
                return answer.status, await answer.json()

    return asyncio.run(main())


def test_a_hand_video_is_shown_with_its_landmarks_and_gaps(hands: Path) -> None:
    films = HandFilms(open_library(str(hands)))
    assert [one["name"] for one in films.list()["films"]] == ["hand/0", "hand/1"]
    told = films.show("hand/1")
    found = load_landmarks(hands / "1" / "landmarks.npz")
    (side,) = told["hands"]
    marks = told["hands"][side]["marks"]
    assert told["n_frames"] == told["n_film"] == len(marks) == len(found.times)
    assert [k for k, flat in enumerate(marks) if flat is None] == list(range(40, 50))
    shown = np.array(marks[0]).reshape(21, 2) * [found.size[1], found.size[0]]
    np.testing.assert_allclose(shown, found.hands[side].pixels[0], atol=0.1)
    middle = np.array(told["hands"][side]["tool"][0]) * [found.size[1], found.size[0]]
    np.testing.assert_allclose(middle, found.hands[side].pixels[0, [4, 8]].mean(axis=0), atol=0.1)
    assert len(told["quality"]["hands"][side]["gaps_s"]) == 1


def test_an_accepted_hand_video_is_added_to_the_pool_once(hands: Path, tmp_path: Path) -> None:
    Pool.create(tmp_path / "pool")
    with OpenedExplorer(hands, Extras(into=str(tmp_path / "pool"))) as opened:
        status, told = asked(opened, "accept", {"name": "hand/1"})
        assert (status, told["added"]) == (200, 2)  # one before the gap, one after it
        assert asked(opened, "accept", {"name": "hand/1"})[1]["added"] == 0
        assert asked(opened, "reject", {"name": "hand/1"})[0] == 400
        asked(opened, "reject", {"name": "hand/0"})
        states = [one["state"] for one in asked(opened, "hands")[1]["films"]]
    assert states == ["rejected", "accepted"]
    kept = Pool.open(tmp_path / "pool")
    assert kept.ids() == ("hand/1/0", "hand/1/1")
    assert (hands / "0" / "landmarks.npz").is_file()  # rejecting deletes nothing


def test_without_a_pool_accepting_is_refused(hands: Path) -> None:
    with OpenedExplorer(hands) as opened:
        status, told = asked(opened, "accept", {"name": "hand/0"})
    assert (status, told["code"]) == (400, "studio.read_only")


def test_a_damaged_hand_video_is_a_one_line_error_and_others_are_shown(hands: Path, tmp_path: Path) -> None:
    place = tmp_path / "hand"
    lifted(place / "good")
    lifted(place / "bad")
    (place / "bad" / "landmarks.npz").write_bytes(b"no numbers")
    (place / "bad" / "quality.json").write_text("[1]")
    with OpenedExplorer(place) as opened:
        films = {one["name"]: one for one in asked(opened, "hands")[1]["films"]}
        assert "problem" in films["hand/bad"]
        assert "problem" not in films["hand/good"]
        status, told = asked(opened, "hand?name=hand/bad")
        assert status == 400
        assert "\n" not in told["error"]
        assert asked(opened, "hand?name=../../etc")[0] == 400


def usage(path: Path, bad: str) -> Path:
    """A usage log in which robots left the course after chunks of one demonstration."""
    log = UsageLog(path)
    for run in range(40):
        used = [IDS[(run + k) % len(IDS)] for k in range(3)]
        for step in range(9):
            before = used[(step - 1) % 3]
            off = None if not step else 2 + run / 10 if before == bad else 0.2
            log.use("arm", run, step, episode_id=used[step % 3], t=step, distance=0.1, off_course=off)
        log.outcome("arm", run, bad not in used)
    log.close()
    return path


def test_a_harmful_demonstration_is_accused_and_can_be_quarantined(tmp_path: Path) -> None:
    place, log = pool(tmp_path / "pool"), usage(tmp_path / "use.jsonl", IDS[2])
    with OpenedExplorer(place, Extras(writable=True, logs=(log,))) as opened:
        assert "blame" in asked(opened, "about")[1]["views"]
        rows = asked(opened, "blame")[1]["rows"]
        assert [row["episode_id"] for row in rows if row["accused"]] == [IDS[2]]
        status, told = asked(opened, "quarantine", {"id": IDS[2], "undo": False})
        assert (status, told["version"]) == (200, 3)
        assert Pool.open(place).get(IDS[2]).attributes[QUARANTINE] is True
        assert asked(opened, "blame")[1]["rows"][0]["quarantine"] is True
        found = asked(opened, f"retrieve?id={IDS[0]}&t=3&n=12")[1]["matches"]
        assert found
        assert IDS[2] not in [match["id"] for match in found]
        asked(opened, "quarantine", {"id": IDS[2], "undo": True})
        assert QUARANTINE not in Pool.open(place).get(IDS[2]).attributes


@pytest.mark.parametrize(
    "body",
    [{"id": IDS[0]}, {"id": IDS[0], "undo": "yes"}, {"id": "nobody", "undo": False}, {"ids": []}],
)
def test_a_wrong_change_is_a_one_line_error_and_changes_nothing(tmp_path: Path, body: dict[str, Any]) -> None:
    with OpenedExplorer(pool(tmp_path / "pool"), Extras(writable=True)) as opened:
        status, told = asked(opened, "quarantine", body)
    assert status == 400
    assert "\n" not in told["error"]
    assert Pool.open(tmp_path / "pool").version == 2


def test_a_studio_without_write_access_changes_nothing(tmp_path: Path) -> None:
    with OpenedExplorer(pool(tmp_path / "pool")) as opened:
        status, told = asked(opened, "quarantine", {"id": IDS[0], "undo": False})
        assert (status, told["code"]) == (400, "studio.read_only")

        async def foreign() -> int:
            async with aiohttp.ClientSession(headers={"Origin": "http://evil.example"}) as session:
                data = json.dumps({"id": IDS[0], "undo": False})
                async with session.post(f"{opened.url}api/explore/quarantine", data=data) as answer:
                    return answer.status

        assert asyncio.run(foreign()) == 403
    assert Pool.open(tmp_path / "pool").version == 2


def test_options_that_do_not_fit_the_data_are_refused_at_start(hands: Path, tmp_path: Path) -> None:
    place = pool(tmp_path / "pool")
    spec = explorer_spec(str(place), 0)
    with pytest.raises(InputError):
        build_explorer(open_library(str(hands)), spec, Extras(writable=True))
    with pytest.raises(InputError):
        build_explorer(open_library(str(place)), spec, Extras(into=str(place)))

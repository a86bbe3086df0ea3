"""The studio's library of a pool or dataset, without a browser."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from foreign import dataset, demonstrations, pool

from recap.errors import InputError, RecapError
from recap.pool.store import Pool
from recap.types import Episode
from recap_apps.studio.library import Library, open_library
from recap_apps.studio.series import MAX_POINTS, series

ALL = ("", "", "all", 0, 50)


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dataset(tmp_path_factory.mktemp("data") / "arm")


@pytest.fixture
def no_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indices of the demonstrations that are read."""
    read: list[int] = []
    for kind in Library.__subclasses__():
        original = kind._read

        def counted(self: Library, number: int, original: object = original) -> Episode:
            read.append(number)
            return original(self, number)  # type: ignore[operator,no-any-return]

        monkeypatch.setattr(kind, "_read", counted)
    return read


def test_listing_a_page_of_a_dataset_reads_only_that_page(arm: Path, no_reads: list[int]) -> None:
    library = open_library(str(arm))
    told = library.list("", "", "all", 2, 2)
    assert sorted(set(no_reads)) == [2, 3]
    assert (told["n"], told["n_read"], told["total"]) == (6, 2, 6)
    assert [entry["id"] for entry in told["entries"]] == [e.id for e in demonstrations()[2:4]]
    assert told["entries"][0]["cameras"] == ("front", "wrist")
    assert told["entries"][0]["findings"] is not None


def test_a_pool_is_listed_without_reading_a_demonstration(tmp_path: Path, no_reads: list[int]) -> None:
    library = open_library(str(pool(tmp_path / "pool")))
    told = library.list(*ALL)
    assert no_reads == []
    assert [entry["id"] for entry in told["entries"]] == [e.id for e in demonstrations()]
    assert {task["name"]: task["n"] for task in told["tasks"]} == {
        "lift the red cube": 3,
        "press the blue button": 3,
    }
    assert library.list("", "press the blue button", "all", 0, 50)["total"] == 3
    assert library.list("LIFT", "", "all", 0, 50)["total"] == 3
    assert library.list("nothing like it", "", "all", 0, 50)["total"] == 0


def test_additions_and_quarantine_in_a_pool_are_followed(tmp_path: Path) -> None:
    library = open_library(str(pool(tmp_path / "pool")))
    first = demonstrations()[0]
    store = Pool.open(tmp_path / "pool")
    store.add([replace(first, id="late")])
    store.quarantine(["late"])
    told = library.list("", "", "quarantine", 0, 50)
    assert (told["version"], told["n"], told["total"]) == (4, 7, 1)
    assert told["entries"][0]["id"] == "late"
    assert library.episode("late").task == first.task


def test_the_data_checks_findings_are_listed(tmp_path: Path) -> None:
    first = demonstrations()[0]
    still = replace(
        first,
        id="still",
        proprio=np.repeat(first.proprio[:1], len(first), axis=0),
        actions=np.repeat(first.actions[:1], len(first), axis=0),
    )
    library = open_library(str(pool(tmp_path / "pool", [first, still])))
    for entry in library.entries:
        library.examine(entry)
    (shown,) = library.list("", "", "findings", 0, 50)["entries"]
    assert shown["id"] == "still"
    assert "error" in {severity for severity, _ in shown["findings"]}


def test_a_damaged_demonstration_is_a_one_line_error_and_others_are_listed(tmp_path: Path) -> None:
    place = dataset(tmp_path / "arm", demonstrations()[:3])
    film = next((place / "videos").rglob("*.mp4"))
    film.write_bytes(film.read_bytes()[: film.stat().st_size // 2])
    library = open_library(str(place))
    told = library.list(*ALL)
    broken = [entry for entry in told["entries"] if entry["damage"]]
    assert broken
    assert told["n_unreadable"] == len(broken)
    assert all("\n" not in entry["damage"] for entry in broken)
    assert len(told["entries"]) == 3


def test_all_demonstrations_are_examined_in_the_background(arm: Path) -> None:
    library = open_library(str(arm))
    library.start()
    try:
        for _ in range(600):
            told = library.list("", "", "all", 0, 1)
            if told["n_examined"] == told["n"]:
                break
            time.sleep(0.05)
    finally:
        library.stop()
    assert (told["n_examined"], told["n_read"]) == (6, 6)


def test_a_demonstration_is_found_by_id_before_it_was_listed(arm: Path) -> None:
    library = open_library(str(arm))
    assert library.episode(demonstrations()[4].id).scene_id == demonstrations()[4].scene_id
    with pytest.raises(InputError) as caught:
        library.episode("nobody")
    assert caught.value.code == "studio.demonstration"


def test_time_series_have_the_names_and_units_of_robot_features(arm: Path) -> None:
    library = open_library(str(arm))
    first = library.episode(demonstrations()[0].id)
    told = series(first, library.robot())
    groups = {group["name"]: group for group in told["groups"]}
    assert list(groups) == ["tool.position", "tool.rotation", "tool.gripper"]
    assert groups["tool.position"]["unit"] == "m"
    assert groups["tool.position"]["channels"] == ("x", "y", "z")
    np.testing.assert_allclose(groups["tool.position"]["state"], first.proprio[:, :3].T, atol=1e-5)
    np.testing.assert_allclose(groups["tool.gripper"]["action"], first.actions[:, 9:].T, atol=1e-5)


def test_a_long_time_series_is_subsampled(arm: Path) -> None:
    library = open_library(str(arm))
    n = 2 * MAX_POINTS + 1
    first = demonstrations()[0]
    long = replace(
        first,
        timestamps=np.arange(n) / first.fps,
        proprio=np.resize(first.proprio, (n, 10)),
        actions=np.resize(first.actions, (n, 10)),
    )
    told = series(long, library.robot())
    assert told["every"] == 3
    assert len(told["steps"]) == len(told["time"]) == len(told["groups"][0]["state"][0]) <= MAX_POINTS


def test_a_state_of_another_width_with_nan_is_still_shown(arm: Path) -> None:
    library = open_library(str(arm))
    first = demonstrations()[0]
    odd = replace(first, proprio=np.full((len(first), 3), np.nan, np.float32))
    told = series(odd, library.robot())
    assert told["groups"][0]["name"] == "state"
    assert told["groups"][0]["state"][0][0] is None


@pytest.mark.parametrize("place", ["nothing", "pools/nothing", "snapshot.safetensors"])
def test_a_path_without_pool_or_dataset_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecapError) as caught:
        open_library(place)
    assert "\n" not in str(caught.value)


def test_opening_a_dataset_needs_no_simulator_package(arm: Path) -> None:
    script = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("gym_pusht", "pymunk", "pygame", "mujoco", "gymnasium"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
from recap_apps.studio.explore import build_explorer, explorer_spec
from recap_apps.studio.library import open_library
library = open_library(sys.argv[1])
build_explorer(library, explorer_spec(sys.argv[1], 0))
print(library.list("", "", "all", 0, 3)["n"])
"""
    done = subprocess.run([sys.executable, "-c", script, str(arm)], capture_output=True, text=True)
    assert done.stdout.strip() == "6", done.stderr

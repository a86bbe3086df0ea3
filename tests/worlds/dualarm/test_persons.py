"""Simulated hands: they solve the tasks at a person's speed and are observed with the errors of films."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recap.errors import InputError
from recap.geometry3 import rotation6_error, rotation6_to_matrix
from recap.pool.importers import open_source
from recap.types import Episode
from recap_worlds.dualarm.collecting import DualArmSpec, collect_dualarm
from recap_worlds.dualarm.collection import demonstrate
from recap_worlds.dualarm.env import DualArmEnv
from recap_worlds.dualarm.persons import CAMERA, FILMS, SPEEDS, as_filmed, habits_of


@pytest.fixture(scope="module")
def shown() -> Episode:
    return demonstrate("move_can_pot", "hand", 500, 0)


@pytest.mark.parametrize("task", ["move_can_pot", "grab_roller", "open_microwave"])
def test_hands_solve_the_task_faster_than_a_robot_in_the_same_scene(task: str) -> None:
    hand, robot = (demonstrate(task, name, 503, 0) for name in ("hand", "ur5e"))
    assert hand.success
    assert robot.success
    assert hand.scene_id == robot.scene_id
    assert 1.2 < len(robot) / len(hand) < 4
    assert SPEEDS[0] <= float(hand.attributes["speed"]) <= SPEEDS[1]
    for name in hand.objects:
        np.testing.assert_allclose(hand.objects[name][0], robot.objects[name][0], atol=2e-3)


def test_a_persons_habits_depend_on_the_seed() -> None:
    assert habits_of(500) == habits_of(500)
    assert habits_of(500).speed != habits_of(501).speed
    again = [demonstrate("click_bell", "hand", 500, 0, speed=0.6) for _ in range(2)]
    np.testing.assert_array_equal(again[0].actions, again[1].actions)


def test_hands_open_less_wide_than_grippers() -> None:
    hand, robot = (DualArmEnv("lift_pot", name, image_size=0) for name in ("hand", "viperx"))
    assert (hand.robot.travel, robot.robot.travel) == (0.045, 0.05)
    hand.reset(seed=500)
    robot.reset(seed=500)
    np.testing.assert_allclose(hand.proprio()[:9], robot.proprio()[:9], atol=0.01)  # both start at home


@pytest.mark.parametrize(("film", "most_mm", "most_deg"), [("two-cameras", 5, 6), ("one-camera", 60, 2)])
def test_as_filmed_adds_errors_of_the_measured_size(
    shown: Episode, film: str, most_mm: float, most_deg: float
) -> None:
    seen = as_filmed(shown, FILMS[film], 500)
    truth, got = (np.asarray(e.proprio, np.float64).reshape(-1, 2, 10) for e in (shown, seen))
    mm = 1000 * np.linalg.norm(got[..., :3] - truth[..., :3], axis=2)
    assert 0.5 < np.median(mm) < most_mm
    a, b = (rotation6_to_matrix(values[..., 3:9]) for values in (truth, got))
    cosine = (np.einsum("...ij,...ij->...", a, b) - 1) / 2
    assert np.median(np.degrees(np.arccos(np.clip(cosine, -1, 1)))) < most_deg
    assert rotation6_error(got[..., 3:9]).max() < 1e-5
    np.testing.assert_array_equal(seen.actions[:-1], seen.proprio[1:])
    assert set(np.unique(seen.proprio[:, [9, 19]])) <= {0.0, 1.0} or np.ptp(seen.proprio[:, 9]) < 0.3
    np.testing.assert_array_equal(seen.objects["can"], shown.objects["can"])


def test_one_camera_errs_along_its_viewing_direction(shown: Episode) -> None:
    film = replace(FILMS["one-camera"], position=0.0, scale=0.0, gaps=0.0)
    seen = as_filmed(shown, film, 500)
    truth, got = (e.proprio[:, :3] - CAMERA for e in (shown, seen))
    np.testing.assert_allclose(got, 1.03 * truth, atol=1e-6)


def test_a_dataset_of_hands_has_only_the_head_camera(tmp_path: Path) -> None:
    spec = DualArmSpec("click_bell", "hand", 2, image_size=16, film="two-cameras")
    collect_dualarm(spec, tmp_path / "hand")
    source = open_source(tmp_path / "hand")
    assert (len(source), source[0].embodiment, set(source[0].images)) == (2, "hand", {"head"})
    assert "film" not in DualArmSpec("click_bell", "ur5e", 2).settings()
    with pytest.raises(InputError, match="of hands"):
        DualArmSpec("click_bell", "ur5e", 2, film="two-cameras")
    with pytest.raises(InputError, match="film"):
        DualArmSpec("click_bell", "hand", 2, film="three-cameras")

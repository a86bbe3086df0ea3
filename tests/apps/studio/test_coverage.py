"""The coverage survey: which goals and starts a pool covers."""

from dataclasses import replace

import numpy as np
import pytest
from test_teaching import taught_by_expert

from recap.pool.memory import MemoryPool
from recap.retrieval.config import with_scales
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.retrieval.subtrajectories import SubtrajectoryPool
from recap.types import Episode
from recap_apps.studio.coverage import APART, N_STARTS, Survey, goal_angles, survey
from recap_apps.studio.task import Task
from recap_worlds.pusht.retrieval import PUSHES
from recap_worlds.pusht.robot import PUSHT


@pytest.fixture(scope="module")
def shown() -> list[Episode]:
    teachings = [taught_by_expert(Task("tee", angle, start)) for angle, start in ((30.0, 3), (-60.0, 5))]
    return [t.episode(f"{t.task}", 0, len(t)) for t in teachings]


def surveyed(episodes: list[Episode], block: str = "tee") -> Survey:
    source = SubtrajectoryPool(MemoryPool(episodes), PUSHES)
    return survey(Retriever(source, *find_retrieval("pusht-object")), block)


def test_an_empty_pool_covers_nothing_and_has_suggestions() -> None:
    found = surveyed([])
    assert len(found.cells) == 24 * N_STARTS
    assert all(cell.distance is None for cell in found.cells)
    assert found.usual is None
    assert len(found.suggestions) == 4
    assert found.suggestions[0].angle == 0


def test_demonstrated_starts_are_near_and_the_farthest_is_suggested(shown: list[Episode]) -> None:
    found = surveyed(shown)
    distances = {(cell.angle, cell.start): cell.distance for cell in found.cells}
    known = [d for d in distances.values() if d is not None]
    assert len(known) == len(distances)
    assert distances[30.0, 3] == pytest.approx(0, abs=1)
    assert distances[-60.0, 5] == pytest.approx(0, abs=1)
    worst = found.suggestions[0]
    assert worst.distance == max(known)
    assert found.n_demonstrations == 2


def test_suggestions_are_apart_from_each_other(shown: list[Episode]) -> None:
    chosen = surveyed(shown).suggestions
    for i, one in enumerate(chosen):
        for other in chosen[:i]:
            turn = abs((one.angle - other.angle + 180) % 360 - 180)
            assert turn >= APART
            assert one.start != other.start


def test_the_left_out_distance_of_a_demonstration_excludes_its_own_scene(shown: list[Episode]) -> None:
    found = surveyed(shown)
    assert set(found.left_out) == {episode.id for episode in shown}
    assert min(found.left_out.values()) > 20
    twin = replace(shown[0], id="studio/twin", scene_id="another scene")
    assert surveyed([*shown, twin]).left_out[shown[0].id] == pytest.approx(0, abs=1)


def test_demonstrations_of_other_blocks_do_not_count(shown: list[Episode]) -> None:
    found = surveyed(shown, "cup")
    assert found.n_demonstrations == 0
    assert all(cell.distance is None for cell in found.cells)


def test_goals_equal_by_symmetry_are_surveyed_once() -> None:
    assert len(goal_angles(1)) == 24
    assert len(goal_angles(2)) == 12
    assert goal_angles(4) == [-30.0, -15.0, 0.0, 15.0, 30.0, 45.0]
    told = surveyed([], "plus").to_json()
    assert [goal["angle"] for goal in told["goals"]] == goal_angles(4)


def test_a_survey_is_json_serialisable(shown: list[Episode]) -> None:
    import json

    told = surveyed(shown).to_json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert all(goal["median"] <= goal["worst"] for goal in told["goals"])


def test_unusable_demonstrations_do_not_count(shown: list[Episode]) -> None:
    blind = replace(shown[0], id="studio/blind", scene_id="another scene", objects={})
    still = {"block": np.repeat(shown[0].objects["block"][:1], len(shown[0]), axis=0)}
    aimless = replace(shown[0], id="studio/aimless", scene_id="a third", goal=None, objects=still)
    pool = [blind, *shown, aimless]
    found = surveyed(pool)
    assert found.n_demonstrations == 2
    assert found.to_json() == surveyed(shown).to_json()


def test_a_pool_of_unusable_demonstrations_covers_nothing(shown: list[Episode]) -> None:
    found = surveyed([replace(shown[0], objects={})])
    assert found.n_demonstrations == 0
    assert all(cell.distance is None for cell in found.cells)


def test_retrieval_by_images_distinguishes_goals(
    shown: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recap_apps.studio.coverage.N_STARTS", 1)
    monkeypatch.setattr("recap_apps.studio.coverage.goal_angles", lambda symmetry: [-60.0, 30.0])
    source = MemoryPool(shown)
    describer, config = find_retrieval("world", PUSHT)
    config = with_scales(config, source.view().descriptors(describer))
    found = survey(Retriever(source, describer, config), "tee")
    assert len({cell.distance for cell in found.cells}) == 2
    assert set(found.left_out) == {episode.id for episode in shown}

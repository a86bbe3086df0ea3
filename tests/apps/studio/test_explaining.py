"""The retrieval view and the coverage map, without a browser."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from foreign import demonstrations, pool

from episodes import random_episode
from recap.errors import RecapError
from recap.pool.memory import MemoryPool
from recap.pool.store import Pool
from recap.retrieval.explain import explain
from recap.types import Episode, FrameRef
from recap_apps.studio.explaining import Explainer
from recap_apps.studio.library import Library, open_library
from recap_apps.studio.starts import SCENE, axes_of, nearest, survey, within
from recap_worlds.pusht.collecting import CollectSpec, demonstrate

AT = FrameRef(demonstrations()[0].id, 30)


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return open_library(str(pool(tmp_path_factory.mktemp("explain") / "pool")))


@pytest.fixture(scope="module")
def tees(tmp_path_factory: pytest.TempPathFactory) -> Library:
    place = tmp_path_factory.mktemp("tees") / "pool"
    spec = CollectSpec("disc", (-30.0, 30.0), 2)
    Pool.create(place).add([demonstrate(spec, demo) for demo in spec.demos()])
    return open_library(str(place))


def test_costs_add_up_to_the_squared_distance_without_the_querys_scene(arm: Library) -> None:
    told = Explainer(arm).explain("", AT, 5)
    assert told["retrieval"] == "world"
    assert len(told["matches"]) >= 2
    for match in told["matches"]:
        assert sum(match["costs"].values()) == pytest.approx(match["total"])
        assert match["total"] == pytest.approx(match["distance"] ** 2, rel=1e-4, abs=1e-9)
        assert set(match["costs"]) == set(told["terms"])
        assert match["id"] != AT.episode_id
    distances = [match["distance"] for match in told["matches"]]
    assert distances == sorted(distances)


def test_the_explanation_equals_the_librarys(arm: Library) -> None:
    explainer = Explainer(arm)
    told = explainer.explain("", AT, 4)
    found = explain(explainer.retriever(), arm.view(), AT, 4)
    assert [(m["id"], m["t"]) for m in told["matches"]] == [
        (m.ref.episode_id, m.ref.t) for m in found.retrieval.matches
    ]
    assert told["why"] == found.compare_with_next()


def test_chunks_are_split_by_robot_feature_and_end_with_the_episode(arm: Library) -> None:
    explainer = Explainer(arm)
    told = explainer.explain("", AT, 3)
    first = demonstrations()[0]
    groups = {group["name"]: group for group in told["chunk"]["groups"]}
    n = told["chunk"]["n"]
    here = next(iter(groups.values()))
    np.testing.assert_allclose(here["lines"], first.actions[30 : 30 + n, :3].T, atol=1e-5)
    match = told["matches"][0]
    shown = next(e for e in demonstrations() if e.id == match["id"])
    np.testing.assert_allclose(
        np.array(here["matches"][0], float)[:, 0], shown.actions[match["t"], :3], atol=1e-5
    )
    last = explainer.explain("", FrameRef(first.id, len(first) - 1), 1)
    assert last["chunk"]["groups"][0]["lines"][0][1:] == [None] * (n - 1)


def test_a_match_is_transformed_into_the_querys_frame_by_the_aligner(tees: Library) -> None:
    view = tees.view()
    told = Explainer(tees).explain("pusht-object", FrameRef(view.episode_ids[0], 10), 2)
    assert told["aligner"] == "object"
    assert all(picture.startswith("data:image/png;base64,") for picture in told["moved"])
    one = view.episode(view.episode_ids[0])
    match = told["matches"][0]
    shown = view.episode(match["id"])
    carried = np.array(told["chunk"]["groups"][0]["matches"][0], float)[:, 0]
    apart_here = np.linalg.norm(carried - one.objects["block"][10, :2])
    apart_there = np.linalg.norm(shown.actions[match["t"]] - shown.objects["block"][match["t"], :2])
    assert apart_here == pytest.approx(apart_there, rel=1e-3)  # the same distance to the block


def test_a_retrieval_is_chosen_by_name_or_file(tees: Library, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("base: world\nweights: {proprio: 2.0}\n")
    explainer = Explainer(tees, str(file))
    told = explainer.explain("", FrameRef(tees.view().episode_ids[0], 3), 2)
    assert told["retrieval"] == "mine"
    names = [choice["name"] for choice in told["choices"]]
    assert {"pusht-object", "pusht-world", "world"} <= set(names)
    assert "dualarm-parts" not in names
    with pytest.raises(RecapError):
        explainer.explain("dualarm-parts", FrameRef(tees.view().episode_ids[0], 3), 2)


def test_a_pool_of_one_demonstration_has_no_match_and_a_reason(tmp_path: Path) -> None:
    library = open_library(str(pool(tmp_path / "pool", demonstrations()[:1])))
    told = Explainer(library).explain("", FrameRef(demonstrations()[0].id, 0), 3)
    assert (told["matches"], told["chunk"]) == ([], None)
    assert "Nothing" in told["why"]


def started_at(number: int, x: float, y: float) -> Episode:
    one = random_episode(f"demo-{number}", number)
    poses = one.objects["block"].copy()
    poses[0, :2] = x, y
    return replace(one, objects={"block": poses})


def test_the_emptiest_place_of_the_map_is_suggested(tees: Library) -> None:
    places = [(x, y) for x in range(0, 101, 20) for y in range(0, 101, 20) if (x, y) != (60, 40)]
    view = MemoryPool([started_at(i, *place) for i, place in enumerate(places)]).view()
    told = survey(view, tees.robot(), None, "object block", "")
    assert told["n"] == len(places)
    assert told["usual"] == pytest.approx(20)
    worst = told["next"][0]
    assert math.dist((worst["x"], worst["y"]), (60, 40)) < 4
    assert worst["away"] == pytest.approx(20, abs=2)


def test_the_map_shows_one_task_and_too_few_starts_give_no_suggestion(arm: Library) -> None:
    told = survey(arm.view(), arm.robot(), None, "tool.position", "lift the red cube")
    assert told["n"] == 3
    assert {p["id"] for p in told["points"]} == {e.id for e in demonstrations() if "lift" in e.task}
    view = MemoryPool(demonstrations()[:1]).view()
    assert survey(view, arm.robot(), None, "tool.position", "")["next"] == []


def test_without_object_poses_the_map_uses_where_the_gripper_closes(arm: Library) -> None:
    first = demonstrations()[0]
    axes = {axis.name: axis for axis in axes_of(arm.robot(), first)}
    names = list(axes)
    assert names[0].endswith("closing")
    assert names[-1] == SCENE
    place = axes[names[0]].of(first)
    assert place is not None
    opening = first.proprio[:, 9]
    t = int(np.flatnonzero(opening < (opening.min() + opening.max()) / 2)[0])
    np.testing.assert_allclose(place, first.proprio[t, :2])
    open_all = replace(first, proprio=np.where(np.arange(10) == 9, 1.0, first.proprio).astype(np.float32))
    assert axes[names[0]].of(open_all) is None


def test_the_default_map_is_one_in_which_starts_differ(arm: Library) -> None:
    first = demonstrations()[0]
    alike = [replace(first, id=str(i), proprio=first.proprio.copy()) for i in range(3)]
    for number, one in enumerate(alike):
        one.proprio[-1, 0] += 0.1 * number  # equal start and closing place, different end
    told = survey(MemoryPool(alike).view(), arm.robot(), None, "", "")
    assert told["chosen"].endswith("end")
    same = survey(MemoryPool(alike).view(), arm.robot(), None, told["choices"][1]["name"], "")
    assert (same["usual"], same["next"]) == (None, [])


def test_first_frames_are_mapped_by_descriptor_and_isolated_ones_listed(tees: Library) -> None:
    explainer = Explainer(tees)
    told = survey(tees.view(), tees.robot(), lambda: explainer.retriever("pusht-object"), SCENE, "")
    assert told["n"] == 4
    assert 0 < told["share"] <= 1
    assert all(entry["away"] > told["usual"] for entry in told["lonely"])


def test_nearest_distances_and_convex_hull_are_correct() -> None:
    rng = np.random.default_rng(1)
    places, points = rng.normal(size=(700, 2)), rng.normal(size=(40, 2))
    straight = np.linalg.norm(places[:, None] - points, axis=2).min(axis=1)
    np.testing.assert_allclose(nearest(places, points), straight, atol=1e-6)
    square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [0.5, 0.5]])
    asked = np.array([[0.5, 0.2], [1.5, 0.5], [-0.1, 0.5], [0.99, 0.99]])
    assert within(asked, square).tolist() == [True, False, False, True]

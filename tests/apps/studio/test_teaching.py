"""Teaching: demonstrations dragged by hand."""

from pathlib import Path

import numpy as np
import pytest

from recap.errors import InputError
from recap.pool.store import Pool
from recap_apps.studio.task import DONE, Task
from recap_apps.studio.teaching import MAX_STEP_PX, Teaching, checked_name, free_name
from recap_worlds.pusht.collecting import CollectSpec, demonstrate
from recap_worlds.pusht.expert import Expert

EASY = Task("tee", 30.0, 151)


def taught_by_expert(task: Task = EASY) -> Teaching:
    """A demonstration taught with the expert's actions."""
    teaching, expert = Teaching(task), Expert("disc", task.block)
    while not teaching.is_over:
        teaching.point(*expert.act(teaching._env.observe()))
        teaching.tick()
    return teaching


def drag(teaching: Teaching, x: float, y: float, n: int) -> None:
    for _ in range(n):
        teaching.point(x, y)
        teaching.tick()


def test_a_start_is_deterministic_and_the_same_for_both_pushers() -> None:
    disc, triangle = (EASY.open(pusher).state() for pusher in ("disc", "triangle"))
    np.testing.assert_array_equal(disc, triangle)
    np.testing.assert_array_equal(disc, EASY.open("disc").state())
    assert EASY.seed >= 100_000  # not an evaluation seed


def test_time_advances_only_until_the_released_disc_rests() -> None:
    teaching = Teaching(EASY)
    assert teaching.tick() is None
    drag(teaching, 400, 400, 5)
    assert len(teaching) == 5
    teaching.release()
    n_after = 0
    while teaching.tick() is not None:
        n_after += 1
        assert n_after < 30
    assert n_after >= 1
    here = teaching.moment()
    assert np.hypot(*np.subtract(here["pusher"], here["target"])) < 1
    assert teaching.tick() is None


def test_the_targets_speed_is_limited() -> None:
    teaching = Teaching(EASY)
    begin = teaching.moment()["target"]
    drag(teaching, 500, 500, 12)
    steps = np.linalg.norm(np.diff(np.array([begin, *teaching._actions]), axis=0), axis=1)
    assert steps.max() <= MAX_STEP_PX + 1e-3


def test_teaching_ends_at_the_goal() -> None:
    teaching = taught_by_expert()
    assert teaching.moment()["coverage"] > DONE
    assert teaching.moment()["over"] == "solved"
    n = len(teaching)
    drag(teaching, 0, 0, 3)
    assert len(teaching) == n


def test_a_taught_episode_has_the_form_of_a_collected_one() -> None:
    teaching = taught_by_expert()
    mine = teaching.episode(" by hand ", 0, len(teaching))
    spec = CollectSpec("disc", (30.0,), 1, first_seed=EASY.seed)
    theirs = demonstrate(spec, spec.demos()[0])
    assert mine.id == "studio/by hand"
    assert mine.success
    for key in ("scene_id", "task", "embodiment", "fps", "action_space"):
        assert getattr(mine, key) == getattr(theirs, key)
    assert set(mine.attributes) >= set(theirs.attributes)
    for key in ("block", "goal_angle", "seed", "symmetry"):
        assert mine.attributes[key] == theirs.attributes[key]
    for key in ("proprio", "actions", "goal"):
        assert getattr(mine, key).dtype == getattr(theirs, key).dtype
    np.testing.assert_array_equal(mine.proprio[0], theirs.proprio[0])
    np.testing.assert_array_equal(mine.objects["block"][0], theirs.objects["block"][0])
    np.testing.assert_array_equal(mine.images["top"][0], theirs.images["top"][0])
    assert len(mine.images["top"]) == len(mine)


def test_replaying_a_taught_episodes_actions_gives_the_same_states() -> None:
    teaching = taught_by_expert()
    episode = teaching.episode("again", 0, len(teaching))
    env = EASY.open("disc")
    for t, action in enumerate(episode.actions):
        np.testing.assert_allclose(env.observe().objects["block"], episode.objects["block"][t], atol=1e-4)
        env.step(action)
    assert env.coverage() > DONE


def test_a_trimmed_episode_is_stored_in_a_pool(tmp_path: Path) -> None:
    teaching = taught_by_expert()
    n = len(teaching)
    part = teaching.episode("the end", 20, n)
    assert len(part) == n - 20
    assert part.timestamps[0] == 0
    assert part.success
    assert not teaching.episode("the beginning", 0, 30).success
    pool = Pool.create(tmp_path / "pool")
    pool.add([part])
    kept = pool.get("studio/the end")
    np.testing.assert_array_equal(kept.actions, part.actions)
    assert (
        np.abs(kept.images["top"][0].astype(int) - part.images["top"][0]).mean() < 4
    )  # video compression is lossy


def test_the_best_end_is_where_coverage_is_largest() -> None:
    teaching = taught_by_expert()
    assert teaching.best_end() == len(teaching)
    teaching._coverage += [0.5] * 3
    teaching._actions += teaching._actions[-3:]
    assert teaching.best_end() == len(teaching) - 3
    short = Teaching(EASY)
    drag(short, 100, 100, 12)
    assert short.best_end() == 12  # never near the goal: the end is not cut


def test_too_short_or_invalid_teaching_is_refused() -> None:
    teaching = Teaching(EASY)
    drag(teaching, 100, 100, 20)
    with pytest.raises(InputError, match="too little"):
        teaching.episode("x", 0, 5)
    with pytest.raises(InputError, match="no steps"):
        teaching.episode("x", 0, 21)
    with pytest.raises(InputError, match="finite"):
        teaching.point(float("nan"), 0)


@pytest.mark.parametrize("name", ["", "   ", "x" * 81, "a\nb", "a\x00", "looks like a part@3-9"])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        checked_name(name)


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "../../etc", "été 日本", "a@b"])
def test_unusual_but_valid_names_are_accepted(name: str) -> None:
    assert checked_name(name) == name


def test_free_name_avoids_existing_names() -> None:
    first = free_name(EASY, frozenset())
    second = free_name(EASY, frozenset({f"studio/{first}"}))
    assert first == "tee +30° start 151"
    assert second == "tee +30° start 151, take 2"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"block": "tee", "angle": "30", "start": 1},
        {"block": "tee", "angle": 30, "start": 1.5},
        {"block": "tee", "angle": True, "start": 1},
        {"block": "pentagon", "angle": 30, "start": 1},
        {"block": "tee", "angle": float("nan"), "start": 1},
        {"block": "tee", "angle": 1e9, "start": 1},
        {"block": "tee", "angle": 30, "start": -1},
    ],
)
def test_an_invalid_task_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Task.from_json(given)

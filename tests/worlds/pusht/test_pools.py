"""The included PushT pools."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from episodes import random_episode
from recap.errors import InputError
from recap.pool.memory import MemoryView
from recap.pool.opening import open_pool
from recap.pool.packed import PackedPool, write_packed
from recap.retrieval.presets import find_retrieval
from recap.types import Episode
from recap_worlds.pusht.collecting import CollectSpec, Demo, demonstrate
from recap_worlds.pusht.env import PushTEnv
from recap_worlds.pusht.pools import STANDARD_POOLS, StandardPool, can_be_drawn, open_standard
from recap_worlds.pusht.rendering import RenderedFrames
from recap_worlds.pusht.suite import PushTSuite
from two_arms import place_in_box, pose


@pytest.mark.parametrize(
    ("name", "n", "angles", "pusher"),
    [
        ("pusht-9x100", 900, 9, "disc"),
        ("pusht-25x40", 1000, 25, "disc"),
        ("pusht-triangle", 200, 2, "triangle"),
    ],
)
def test_an_included_pool_has_the_episodes_its_name_says(name: str, n: int, angles: int, pusher: str) -> None:
    view = open_standard(name)
    assert len(view.episode_ids) == n
    episodes = [view.episode(i) for i in view.episode_ids]
    assert len({e.attributes["goal_angle"] for e in episodes}) == angles
    assert {e.embodiment for e in episodes} == {pusher}
    assert all(e.success for e in episodes)
    assert min(int(e.attributes["seed"]) for e in episodes) >= 100_000, "no evaluation seeds"


def test_the_triangle_pool_has_scenes_of_the_disc_pool() -> None:
    disc, triangle = (open_standard(name) for name in ("pusht-9x100", "pusht-triangle"))
    shown = {disc.episode(i).scene_id for i in disc.episode_ids}
    assert {triangle.episode(i).scene_id for i in triangle.episode_ids} <= shown


def test_the_expert_still_collects_the_same_demonstrations() -> None:
    view = open_standard("pusht-9x100")
    spec = CollectSpec("disc", (-60.0,), 1, image_size=0)
    for k in (0, 57):
        episode = view.episode(view.episode_ids[k])
        again = demonstrate(spec, Demo(k, -60.0, 100_000 + k))
        assert episode.id == again.id
        assert np.array_equal(episode.actions, again.actions)


def test_rendered_frames_equal_those_of_the_env() -> None:
    view = open_standard("pusht-9x100")
    episode = view.episode(view.episode_ids[200])
    env = PushTEnv(goal_angle=float(episode.attributes["goal_angle"]))
    env.reset(seed=int(episode.attributes["seed"]))
    frames = episode.images["top"]
    assert len(frames) == len(episode)
    for t in range(20):
        assert np.abs(frames[t].astype(int) - env.draw(96)).max() <= 2  # poses are rounded to float32
        env.step(episode.actions[t].astype(float))
    assert np.array_equal(frames[-1], frames[len(frames) - 1])
    with pytest.raises(IndexError):
        frames[len(frames)]


def test_rendering_an_episode_without_poses_is_an_error() -> None:
    view = open_standard("pusht-9x100")
    with pytest.raises(InputError, match="cannot be drawn"):
        RenderedFrames(replace(view.episode(view.episode_ids[0]), goal=None), 96)


def test_descriptors_are_cached() -> None:
    view = open_standard("pusht-9x100")
    describer, _ = find_retrieval("pusht-object")
    assert view.descriptors(describer) is view.descriptors(describer)


def test_the_suite_lists_the_included_pools() -> None:
    suite = PushTSuite()
    assert set(suite.pools()) == set(STANDARD_POOLS) == {"pusht-9x100", "pusht-triangle", "pusht-25x40"}
    assert suite.default_pool in suite.pools()
    assert isinstance(suite.open_pool("pusht-triangle"), StandardPool)


def packed(tmp_path: Path, *episodes: Episode) -> PackedPool:
    file = tmp_path / "pool.safetensors"
    write_packed(MemoryView(episodes), file)
    return PackedPool.open(file)


def test_a_packed_pusht_pool_without_images_is_rendered_on_access(tmp_path: Path) -> None:
    pool = packed(tmp_path, random_episode("a", 0))
    assert can_be_drawn(pool)
    opened = open_pool(str(tmp_path / "pool.safetensors"))
    assert isinstance(opened, StandardPool)
    assert opened.view().episode("a").images["top"][3].shape == (96, 96, 3)


BOARD = random_episode("a", 0)
OTHERS: dict[str, list[Episode]] = {
    "empty": [],
    "of two arms": [place_in_box(pose(-0.2, 0.3), pose(-0.1, 0.6))],
    "of an unknown pusher": [replace(BOARD, embodiment="hand")],
    "without a goal": [replace(BOARD, goal=None)],
    "with images": [replace(BOARD, images={"top": [np.zeros((16, 16, 3), np.uint8)] * len(BOARD)})],
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_packed_pools_are_not_rendered(what: str, tmp_path: Path) -> None:
    pool = packed(tmp_path, *OTHERS[what])
    assert not can_be_drawn(pool)
    assert PushTSuite().dress(pool) is None
    assert isinstance(open_pool(str(tmp_path / "pool.safetensors")), PackedPool)

"""The pools that come with the package, and how a pool is found by name."""

from pathlib import Path

import numpy as np
import pytest

from recap.collection import CollectSpec, Demo, demonstrate
from recap.envs.pusht.env import PushTEnv
from recap.envs.pusht.rendering import RenderedFrames
from recap.errors import DatasetError, InputError
from recap.retrieval.presets import preset
from recap.standard_pools import STANDARD_POOLS, open_pool


@pytest.mark.parametrize(
    ("name", "n", "angles", "pusher"),
    [
        ("pusht-9x100", 900, 9, "disc"),
        ("pusht-25x40", 1000, 25, "disc"),
        ("pusht-triangle", 200, 2, "triangle"),
    ],
)
def test_holds_what_its_name_says(name: str, n: int, angles: int, pusher: str) -> None:
    view = open_pool(name).view()
    assert len(view.episode_ids) == n
    episodes = [view.episode(i) for i in view.episode_ids]
    assert len({e.attributes["goal_angle"] for e in episodes}) == angles
    assert {e.embodiment for e in episodes} == {pusher}
    assert all(e.success for e in episodes)
    assert min(int(e.attributes["seed"]) for e in episodes) >= 100_000, "no evaluation seed among them"


def test_the_triangle_solves_scenes_of_the_disc() -> None:
    disc, triangle = (open_pool(name).view() for name in ("pusht-9x100", "pusht-triangle"))
    shown = {disc.episode(i).scene_id for i in disc.episode_ids}
    assert {triangle.episode(i).scene_id for i in triangle.episode_ids} <= shown


def test_is_what_the_expert_collects_today() -> None:
    view = open_pool(None).view()
    spec = CollectSpec("disc", (-60.0,), 1, image_size=0)
    for k in (0, 57):
        episode = view.episode(view.episode_ids[k])
        again = demonstrate(spec, Demo(k, -60.0, 100_000 + k))
        assert episode.id == again.id
        assert np.array_equal(episode.actions, again.actions)


def test_frames_are_drawn_as_the_environment_draws_them() -> None:
    view = open_pool(None).view()
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


def test_an_episode_without_poses_cannot_be_drawn() -> None:
    from dataclasses import replace

    view = open_pool(None).view()
    with pytest.raises(InputError, match="cannot be drawn"):
        RenderedFrames(replace(view.episode(view.episode_ids[0]), goal=None), 96)


def test_descriptors_are_the_same_object_each_time() -> None:
    view = open_pool(None).view()
    describer, _ = preset("pusht-aligned")
    assert view.descriptors(describer) is view.descriptors(describer)


def test_unknown_pools_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'pusht-9x100'"):
        open_pool("pusht-9x10")
    with pytest.raises(DatasetError, match="no packed pool"):
        open_pool(str(tmp_path / "none.safetensors"))
    assert set(STANDARD_POOLS) == {"pusht-9x100", "pusht-triangle", "pusht-25x40"}

"""Demonstrations that differ from the pool's layout are refused by id, before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arms import arms_episode

from episodes import random_episode
from recap.body import Feature
from recap.errors import InputError
from recap.pool.layout import refuse_other_layout
from recap.pool.memory import MemoryView
from recap.pool.store import Pool
from recap.robot import CameraSpec, RobotSpec
from recap.types import Episode

FILM = [np.zeros((32, 32, 3), np.uint8)] * 12


def pushed(name: str, seed: int = 0, cameras: tuple[str, ...] = ("top",), **changes: Any) -> Episode:
    """A planar demonstration with cameras."""
    episode = random_episode(name, seed, n=12)
    return replace(episode, images=dict.fromkeys(cameras, FILM), **changes)


POOL = MemoryView([pushed("a", 1), pushed("b", 2, ("top", "side"))])


class Described(MemoryView):
    """A pool view with a robot description."""

    robot = RobotSpec(
        "arm",
        20.0,
        (Feature("tool", "position", 3), Feature("grip", "gripper")),
        cameras={"front": CameraSpec(), "wrist": CameraSpec((48, 96))},
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"actions": np.zeros((12, 7), np.float32)}, "actions of 7 numbers a step, not 2 (position 2)"),
        ({"proprio": np.zeros((12, 3), np.float32)}, "proprioception of 3 numbers a step, not 2 (pos"),
        ({"actions": np.zeros(12, np.float32)}, "actions of shape ()"),
        ({"cameras": ("side",)}, "camera 'top' is missing, it has side; --map image:top=KEY"),
        ({"cameras": ()}, "camera 'top' is missing"),
        ({"objects": {}}, "object 'block' is missing"),
    ],
)
def test_the_error_names_the_demonstration_and_what_differs(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        refuse_other_layout(POOL, [pushed("good"), pushed("bad", **changes)])
    assert caught.value.code == "pool.layout"
    assert words in str(caught.value)
    assert "'bad'" in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"embodiment": "triangle"},
        {"cameras": ("top",)},
        {"cameras": ("top", "side", "wrist")},
        {"objects": {"block": np.zeros((12, 3), np.float32), "other": np.zeros((12, 7), np.float32)}},
        {"objects": {}, "task": "draw a circle"},
        {"goal": None, "attributes": {}},
    ],
)
def test_differences_that_are_accepted(changes: dict[str, Any]) -> None:
    refuse_other_layout(POOL, [pushed("other", **changes)])


def test_episodes_already_in_the_pool_are_not_checked_again() -> None:
    old = pushed("a", 1, ())
    refuse_other_layout(POOL, [old])
    mixed = MemoryView([pushed("first"), pushed("second", 2, ())])
    refuse_other_layout(mixed, [pushed("third", 3, ())])


def test_an_empty_pool_accepts_any_layout() -> None:
    refuse_other_layout(MemoryView([]), [pushed("a"), arms_episode("b")])


def test_the_robot_description_sets_the_layout_of_an_empty_pool() -> None:
    good = replace(
        arms_episode("good", n=12, cameras=("front", "wrist")),
        actions=np.zeros((12, 4), np.float32),
        proprio=np.zeros((12, 4), np.float32),
    )
    refuse_other_layout(Described([]), [good])
    with pytest.raises(InputError, match=r"not 4 \(tool 3, grip 1\)"):
        refuse_other_layout(Described([]), [replace(good, actions=np.zeros((12, 5), np.float32))])
    with pytest.raises(InputError, match="camera 'wrist' is missing"):
        refuse_other_layout(Described([]), [replace(good, images={"front": FILM})])


def test_a_new_task_may_have_other_objects() -> None:
    lift = arms_episode("lift", 1)
    ring = replace(arms_episode("ring", 2, task="ring the bell"), objects={})
    refuse_other_layout(MemoryView([lift]), [ring])
    with pytest.raises(InputError, match="object 'pot' is missing"):
        refuse_other_layout(MemoryView([lift]), [replace(ring, task=lift.task)])


def test_a_refused_batch_writes_nothing(tmp_path: Path) -> None:
    pool = Pool.create(tmp_path / "pool")
    pool.add([pushed("a")])
    before = sorted(pool.files.names(""))
    with pytest.raises(InputError, match="actions of 7 numbers"):
        pool.add([pushed("b"), pushed("c", actions=np.zeros((12, 7), np.float32))])
    assert sorted(pool.files.names("")) == before
    assert pool.ids() == ("a",)
    pool.add([pushed("a")], skip_existing=True)
    pool.add([pushed("d", embodiment="triangle")])
    assert pool.ids() == ("a", "d")

"""What a robot sends is checked before anything acts on it."""

from typing import Any

import numpy as np
import pytest

from recap.errors import RecapError, WireError
from recap.serving.observations import (
    Look,
    Reset,
    fit_image,
    read_executed,
    read_missed,
    read_observation,
    read_reset,
)

LOOK = Look("top", None, 2, "block", "push it")
SEES = Look("top", 96, 2, "block", "push it")
IMAGE = np.zeros((96, 96, 3), np.uint8)
GOOD: dict[str, Any] = {
    "observation/state": np.array([1.0, 2.0], np.float32),
    "observation/image": IMAGE,
    "observation/goal": np.array([256, 256, 0.5]),
    "observation/objects/block": np.array([100, 100, 1.0]),
    "prompt": "onto the goal",
}


def test_the_usual_keys_become_an_observation() -> None:
    seen = read_observation({**GOOD, "observation/wrist_image": 5}, SEES, 1.5)
    assert seen.proprio.dtype == np.float32
    assert seen.proprio.tolist() == [1, 2]
    assert (seen.task, seen.time_s) == ("onto the goal", 1.5)
    assert seen.images["top"] is IMAGE
    assert seen.goal is not None
    assert seen.objects["block"].tolist() == [100, 100, 1]
    bare = read_observation({"observation/state": [3, 4], "observation/image": IMAGE}, SEES, 0.0)
    assert (bare.task, bare.goal, bare.objects) == ("push it", None, {})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"observation/state": None}, "array of 2 numbers"),
        ({"observation/state": np.zeros(3)}, "array of 2 numbers"),
        ({"observation/state": np.array([1, np.nan])}, "NaN"),
        ({"observation/state": [1, float("inf")]}, "infinity"),
        ({"observation/state": [1, 10**400]}, "infinity"),
        ({"observation/state": np.array([True, False])}, "array of 2 numbers"),
        ({"observation/state": np.array([1e30, 0])}, "beyond"),
        ({"observation/goal": np.zeros(2)}, "array of 3 numbers"),
        ({"observation/objects/block": "there"}, "array of 3 numbers"),
        ({"observation/image": np.zeros((3, 96, 96), np.uint8)}, "height, width, 3"),
        ({"observation/image": np.zeros((96, 96, 3), np.float32)}, "uint8"),
        ({"observation/image": np.zeros((8, 8, 3), np.uint8)}, "32 to 1024"),
        ({"observation/image": "picture"}, "uint8"),
        ({"prompt": 5}, "no text"),
        ({"prompt": "x" * 5000}, "1000 characters"),
        ({"observation/time_s": "now"}, "array of 1 numbers"),
        ({f"observation/objects/{i}": np.zeros(3) for i in range(40)}, "objects"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(WireError, match=words):
        read_observation({**GOOD, **change}, SEES, 0.0)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(WireError, match="no 'observation/state'"):
        read_observation({"prompt": "x"}, LOOK, 0.0)
    blind = {key: value for key, value in GOOD.items() if key != "observation/image"}
    with pytest.raises(WireError, match="the policy sees"):
        read_observation(blind, SEES, 0.0)
    assert not read_observation(blind, LOOK, 0.0).images
    del blind["observation/goal"]
    with pytest.raises(WireError, match="send poses, or an image"):
        read_observation(blind, LOOK, 0.0)


def test_resets() -> None:
    assert read_reset(GOOD) is None
    assert read_reset({"reset": True}) == Reset()
    assert read_reset({"reset": True, "seed": np.int64(5), "block": "zed"}) == Reset(5, "zed")
    for wrong in ({"reset": 1}, {"reset": True, "seed": -1}, {"reset": True, "seed": "x"}):
        with pytest.raises(WireError):
            read_reset(wrong)
    for block in ("zedd", 5):
        with pytest.raises(RecapError):
            read_reset({"reset": True, "block": block})


def test_how_much_was_carried_out() -> None:
    assert read_executed({}, 8) is None
    assert read_executed({"executed": 3}, 8) == 3
    assert read_executed({"executed": 100}, 8) == 8
    with pytest.raises(WireError):
        read_executed({"executed": 1.5}, 8)


def test_how_much_was_missed() -> None:
    assert read_missed({}) == 0
    assert read_missed({"missed": 3}) == 3
    for wrong in (-1, 1.5, "3", True, 10**9):
        with pytest.raises(WireError):
            read_missed({"missed": wrong})


def test_a_larger_camera_is_seen_at_the_policys_size() -> None:
    from recap.envs.pusht.env import PushTEnv

    env = PushTEnv("triangle")
    env.reset(seed=600)
    small, large = env.draw(96), env.draw(288)
    assert fit_image(small, 96) is small
    difference = np.abs(fit_image(large, 96).astype(int) - small)
    assert difference.mean() < 1
    for wrong in (env.draw(64), large[:, :200]):
        with pytest.raises(WireError, match="square picture"):
            fit_image(np.ascontiguousarray(wrong), 96)

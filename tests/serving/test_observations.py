"""Messages of robots are checked before they are used."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recap.body import Feature
from recap.errors import WireError
from recap.robot import CameraSpec, ObjectSpec, RobotSpec
from recap.serving.observations import (
    ObservationSpec,
    Reset,
    read_executed,
    read_missed,
    read_observation,
    read_reset,
)
from recap.types import Requires
from recap_worlds.pusht.robot import PUSHT

NEEDS = Requires(("block",), goal=True)
LOOK = ObservationSpec(PUSHT, NEEDS, True, "push it")
SEES = ObservationSpec(PUSHT, NEEDS | Requires(cameras=("top",)), True, "push it")
BLIND = ObservationSpec(PUSHT, NEEDS, False, "push it")
ARM = RobotSpec(
    "arm",
    20.0,
    (Feature("tool", "position", 3), Feature("grip", "gripper")),
    cameras={"front": CameraSpec((60, 80)), "left_wrist": CameraSpec((48, 96)), "side": CameraSpec()},
    objects={"*": ObjectSpec("pose3")},
)
IMAGE = np.zeros((96, 96, 3), np.uint8)
GOOD: dict[str, Any] = {
    "observation/state": np.array([1.0, 2.0], np.float32),
    "observation/image": IMAGE,
    "observation/goal": np.array([256, 256, 0.5]),
    "observation/objects/block": np.array([100, 100, 1.0]),
    "prompt": "onto the goal",
}


def test_the_openpi_keys_become_an_observation() -> None:
    seen = read_observation({**GOOD, "observation/wrist_image": IMAGE, "observation/other": 5}, SEES, 1.5)
    assert set(seen.images) == {"top"}, "openpi's clients always send a wrist image, which this robot has not"
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
        ({"observation/image": np.zeros((8, 8, 3), np.uint8)}, "16 to 4096"),
        ({"observation/images/side": IMAGE}, "not a camera of robot 'pusht', which has top"),
        ({"observation/objects/lid": np.zeros(3)}, "not known to this robot"),
        ({"observation/image": "picture"}, "uint8"),
        ({"prompt": 5}, "not text"),
        ({"prompt": "x" * 5000}, "1000 characters"),
        ({"observation/time_s": "now"}, "array of 1 numbers"),
        ({"observation/time_s": [[1.0], [1.0, 2.0]]}, "array of 1 numbers"),
        ({"observation/time_s": [1.0, 2.0]}, "array of 1 numbers"),
        ({"observation/time_s": {"now": 1}}, "array of 1 numbers"),
        ({f"observation/objects/{i}": np.zeros(3) for i in range(40)}, "at most 32"),
    ],
)
def test_an_error_names_the_wrong_field(change: dict[str, Any], words: str) -> None:
    with pytest.raises(WireError, match=words):
        read_observation({**GOOD, **change}, SEES, 0.0)


def test_the_state_is_all_proprio_features_in_order() -> None:
    features = (Feature("joint", "joint", 1), Feature("speed", "scalar", 2), Feature("gripper", "gripper"))
    look = ObservationSpec(replace(ARM, proprio=features), Requires(), False, "")
    seen = read_observation({"observation/state": np.arange(4.0)}, look, 0.0)
    assert seen.proprio.tolist() == [0, 1, 2, 3]
    with pytest.raises(WireError, match=r"array of 4 numbers: joint, speed \(2\), gripper$"):
        read_observation({"observation/state": np.zeros(1), "observation/speed": np.zeros(2)}, look, 0.0)


def test_an_error_names_the_missing_field() -> None:
    with pytest.raises(WireError, match="no 'observation/state'"):
        read_observation({"prompt": "x"}, LOOK, 0.0)
    blind = {key: value for key, value in GOOD.items() if key != "observation/image"}
    with pytest.raises(WireError, match=r"no 'observation/image': .* of camera 'top'"):
        read_observation(blind, SEES, 0.0)
    assert not read_observation(blind, LOOK, 0.0).images
    del blind["observation/goal"]
    with pytest.raises(WireError, match=r"no goal: .* or 'observation/image' to find it in"):
        read_observation(blind, LOOK, 0.0)
    with pytest.raises(WireError, match=r"no goal: send 'observation/objects/block' and 'observation/goal'$"):
        read_observation({**blind, "observation/image": IMAGE}, BLIND, 0.0)


def test_cameras_of_any_size_are_read_by_name_and_by_openpi_keys() -> None:
    look = ObservationSpec(ARM, Requires(cameras=("front", "left_wrist")), False, "")
    sizes = {"front": (60, 80), "left_wrist": (48, 96), "side": (33, 200)}
    films = {name: np.full((*size, 3), i, np.uint8) for i, (name, size) in enumerate(sizes.items())}
    state = {"observation/state": np.zeros(4), "observation/objects/cup": np.zeros(7)}
    named = {f"observation/images/{name}": image for name, image in films.items()}
    openpi = {"observation/image": films["front"], "observation/wrist_image": films["left_wrist"]}
    for images in (named, {**openpi, "observation/images/side": films["side"]}):
        seen = read_observation({**state, **images}, look, 0.0)
        assert {name: image.shape[:2] for name, image in seen.images.items()} == sizes
        assert all(seen.images[name] is films[name] for name in sizes)
    assert set(read_observation({**state, **openpi}, look, 0.0).images) == {"front", "left_wrist"}
    with pytest.raises(WireError, match=r"no 'observation/images/left_wrist': .*'observation/image'$"):
        read_observation({**state, "observation/image": films["front"]}, look, 0.0)
    misnamed = {**state, "observation/image": films["front"], "observation/image/left_wrist": films["side"]}
    with pytest.raises(WireError, match=r"images are 'observation/image', 'observation/image/left_wrist'$"):
        read_observation(misnamed, look, 0.0)
    assert [look.key_of(name) for name in sizes] == [
        "observation/image",
        "observation/images/left_wrist",
        "observation/images/side",
    ]
    other = ObservationSpec(
        replace(ARM, cameras={"top": CameraSpec(), "side": CameraSpec()}), Requires(), False, ""
    )
    assert other.camera_of("observation/wrist_image") == "side", "the second camera, if none is called wrist"


def test_reset_messages_with_seed_and_options() -> None:
    assert read_reset(GOOD) is None
    assert read_reset({"reset": True}) == Reset()
    options = {"block": "zed", "level": 2}
    assert read_reset({"reset": True, "seed": np.int64(5), "options": options}) == Reset(5, options)
    for wrong in ({"reset": 1}, {"reset": True, "seed": -1}, {"reset": True, "seed": "x"}):
        with pytest.raises(WireError):
            read_reset(wrong)
    for odd in ("zed", ["zed"], {"block": None}, {"block": {}}, {str(i): i for i in range(33)}):
        with pytest.raises(WireError, match="not a map of text and numbers"):
            read_reset({"reset": True, "options": odd})


def test_the_number_of_executed_actions_is_read_and_capped() -> None:
    assert read_executed({}, 8) is None
    assert read_executed({"executed": 3}, 8) == 3
    assert read_executed({"executed": 100}, 8) == 8
    with pytest.raises(WireError):
        read_executed({"executed": 1.5}, 8)


def test_the_number_of_missed_periods_is_read_and_checked() -> None:
    assert read_missed({}) == 0
    assert read_missed({"missed": 3}) == 3
    for wrong in (-1, 1.5, "3", True, 10**9):
        with pytest.raises(WireError):
            read_missed({"missed": wrong})

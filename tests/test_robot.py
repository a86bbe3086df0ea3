"""Robot descriptions: feature kinds, frames, limits, files, and the comparison of two robots."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from episodes import random_episode
from recap import config as configs
from recap.body import KINDS, Body, Feature, arm_features, body_of
from recap.errors import InputError
from recap.geometry import into_frame
from recap.geometry3 import encode_arm, quaternion_to_matrix, rotation6_error
from recap.robot import (
    CameraSpec,
    Kinematics,
    ObjectSpec,
    RobotSpec,
    difference,
    infer_robot,
    load_robot,
    read_robot,
)
from recap.types import F64, Episode
from recap_worlds.dualarm.robot import TWO_ARMS
from recap_worlds.pusht.robot import PUSHT
from two_arms import place_in_box, pose

seeds = st.integers(0, 2**32 - 1)
WHOLE = Body(
    (
        Feature("base", "position", 2),
        Feature("heading", "angle"),
        Feature("arm.position", "position", 3),
        Feature("arm.rotation", "rotation6d"),
        Feature("joints", "joint", 3),
        Feature("hand", "gripper"),
        Feature("force", "scalar", 2),
    )
)
ARM = (
    '<robot name="arm"><link name="base" /><link name="tip" /><joint name="a" type="revolute">'
    '<parent link="base" /><child link="tip" /></joint><joint name="b" type="continuous" /></robot>'
)
JOINTS = RobotSpec("joints", 20.0, (Feature("joints", "joint", 6), Feature("hand", "gripper")))


def random_frame(seed: int, space: bool) -> F64:
    rng = np.random.default_rng(seed)
    if not space:
        return rng.uniform([-5, -5, -4], [5, 5, 4])
    quaternion = rng.normal(size=4)
    return np.concatenate([rng.uniform(-2, 2, 3), quaternion / np.linalg.norm(quaternion)])


def random_rows(seed: int, body: Body = WHOLE, n: int = 5) -> F64:
    return np.random.default_rng(seed).uniform(-2, 2, (n, body.size))


# --- features ---


def test_the_feature_kinds_with_their_sizes_units_and_limits() -> None:
    assert {name: (kind.letters, kind.sizes, kind.unit, kind.limits) for name, kind in KINDS.items()} == {
        "position": ("XYZ", (2, 3), "m", None),
        "rotation6d": ("r", (6,), "", None),
        "angle": ("a", (), "rad", None),
        "gripper": ("g", (), "", (0.0, 1.0)),
        "joint": ("J", (), "rad", None),
        "scalar": ("u", (), "", None),
    }


@pytest.mark.parametrize(
    ("feature", "size", "letters", "unit", "limits"),
    [
        (Feature("x", "position", 2), 2, "XY", "m", None),
        (Feature("x", "position", 3, "px", (0.0, 512.0)), 3, "XYZ", "px", (0.0, 512.0)),
        (Feature("x", "rotation6d"), 6, "rrrrrr", "", None),
        (Feature("x", "angle"), 1, "a", "rad", None),
        (Feature("x", "gripper"), 1, "g", "", (0.0, 1.0)),
        (Feature("x", "gripper", limits=(-1.0, 0.04)), 1, "g", "", (-1.0, 0.04)),
        (Feature("x", "joint", 7), 7, "JJJJJJJ", "rad", None),
        (Feature("x", "scalar", 2), 2, "uu", "", None),
    ],
)
def test_a_features_defaults_follow_its_kind(
    feature: Feature, size: int, letters: str, unit: str, limits: tuple[float, float] | None
) -> None:
    assert (feature.size, feature.letters, feature.unit, feature.limits) == (size, letters, unit, limits)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("x", "positon", 3), "unknown kind 'positon': did you mean 'position'?"),
        (("x", "position"), "feature 'x' (position) lacks its size"),
        (("x", "position", 4), "feature 'x' (position) has 4 numbers, not 2 or 3"),
        (("x", "rotation6d", 4), "feature 'x' (rotation6d) has 4 numbers, not 6"),
        (("x", "joint", -1), "feature 'x' (joint) has -1 numbers, not 1 or more"),
        (("x", "joint", 1, "", (1.0, 1.0)), "feature 'x' has limits (1.0, 1.0)"),
        (("x", "joint", 1, "", (math.nan, 1.0)), "feature 'x' has limits (nan, 1.0)"),
    ],
)
def test_an_invalid_feature_is_refused_by_name(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InputError) as refused:
        Feature(*given)
    assert words in str(refused.value)


def test_a_body_concatenates_its_features() -> None:
    assert (WHOLE.size, WHOLE.letters) == (18, "XYaXYZrrrrrrJJJguu")
    assert {f.name: (at.start, at.stop) for f, at in WHOLE.spans} == {
        "base": (0, 2),
        "heading": (2, 3),
        "arm.position": (3, 6),
        "arm.rotation": (6, 12),
        "joints": (12, 15),
        "hand": (15, 16),
        "force": (16, 18),
    }
    assert WHOLE.positions == (3,), "the columns of 3-D tool positions"
    assert TWO_ARMS.act.positions == (0, 10)
    low, high = WHOLE.bounds
    assert (low[15], high[15]) == (0.0, 1.0)
    assert np.isinf(np.delete(low, 15)).all()
    assert np.isinf(np.delete(high, 15)).all()


def test_a_body_made_from_letters_transforms_the_same() -> None:
    for body in (WHOLE, TWO_ARMS.body, PUSHT.body):
        other = body_of(body.letters)
        assert [(f.kind, f.size) for f, _ in other.spans if f.kind in ("position", "rotation6d")] == [
            (f.kind, f.size) for f, _ in body.spans if f.kind in ("position", "rotation6d")
        ]
        for space in (False, True):
            frame, rows = random_frame(3, space), random_rows(4, body)
            np.testing.assert_array_equal(other.into(frame, rows), body.into(frame, rows))


def test_a_duplicate_feature_name_is_refused() -> None:
    with pytest.raises(InputError, match="feature 'x' is given twice"):
        Body((Feature("x", "joint"), Feature("y", "joint"), Feature("x", "gripper")))
    with pytest.raises(InputError, match="feature 'hand' is given twice"):
        replace(JOINTS, action=(Feature("hand", "gripper"), Feature("hand", "joint")))


@pytest.mark.parametrize(
    ("features", "planar"),
    [
        (PUSHT.proprio, True),
        ((*PUSHT.proprio, Feature("hand", "gripper"), Feature("force", "scalar")), True),
        ((*PUSHT.proprio, Feature("heading", "angle")), False),
        ((*PUSHT.proprio, Feature("turn", "rotation6d")), False),
        (TWO_ARMS.proprio, False),
        (JOINTS.proprio, False),
    ],
)
def test_a_body_is_planar_if_2d_positions_are_its_only_spatial_features(
    features: tuple[Feature, ...], planar: bool
) -> None:
    assert Body(features).is_planar == planar


# --- frames ---


@pytest.mark.parametrize("space", [False, True], ids=["plane", "space"])
@given(seed=seeds)
def test_into_and_out_of_a_frame_are_inverses(space: bool, seed: int) -> None:
    frame, rows = random_frame(seed, space), random_rows(seed)
    np.testing.assert_allclose(WHOLE.out_of(frame, WHOLE.into(frame, rows)), rows, atol=1e-9)
    np.testing.assert_allclose(WHOLE.into(frame, WHOLE.out_of(frame, rows)), rows, atol=1e-9)


@pytest.mark.parametrize("space", [False, True], ids=["plane", "space"])
@given(seed=seeds)
def test_only_spatial_features_are_transformed_and_the_input_is_unchanged(space: bool, seed: int) -> None:
    frame, rows = random_frame(seed, space), random_rows(seed)
    before = rows.copy()
    found = WHOLE.into(frame, rows)
    np.testing.assert_array_equal(rows, before)
    stays = np.isin(list(WHOLE.letters), list("Jgu"))
    if space:
        stays[:3] = True  # a 2-D position and a heading do not change with a 3-D frame
    else:
        stays[[5, 8, 11]] = True  # a planar frame does not change z
    np.testing.assert_array_equal(found[:, stays], rows[:, stays])
    assert not np.allclose(found[:, ~stays], rows[:, ~stays])


@given(seeds)
def test_a_planar_frame_equals_its_3d_frame(seed: int) -> None:
    x, y, angle = random_frame(seed, space=False)
    there = np.array([x, y, 0.0, np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])
    body, rows = Body(arm_features("tool")), random_rows(seed, Body(arm_features("tool")))
    flat = body.into(np.array([x, y, angle]), rows)
    np.testing.assert_allclose(flat, body.into(there, rows), atol=1e-9)


@given(seeds)
def test_frames_preserve_distances_and_rotations(seed: int) -> None:
    body = Body((*arm_features("left"), *arm_features("right")))
    rng = np.random.default_rng(seed)
    poses = np.array([random_frame(s, True) for s in rng.integers(0, 2**32, 8)])
    rows = np.concatenate([encode_arm(poses[:4], np.ones(4)), encode_arm(poses[4:], np.zeros(4))], axis=1)
    for space in (False, True):
        frame = random_frame(seed, space)
        found = body.into(frame, rows)
        apart, now = (np.linalg.norm(r[:, :3] - r[:, 10:13], axis=1) for r in (rows, found))
        np.testing.assert_allclose(now, apart, atol=1e-9)
        assert rotation6_error(found[:, 3:9]).max() < 1e-9
    turn = quaternion_to_matrix(frame[3:])
    np.testing.assert_allclose(found[:, :3], (rows[:, :3] - frame[:3]) @ turn, atol=1e-9)
    np.testing.assert_allclose(found[:, 16:19], rows[:, 16:19] @ turn, atol=1e-9)


@given(seeds)
def test_any_batch_shape_is_transformed_the_same(seed: int) -> None:
    frame, rows = random_frame(seed, True), random_rows(seed, n=6)
    whole = WHOLE.into(frame, rows)
    np.testing.assert_array_equal(WHOLE.into(frame, rows.reshape(2, 3, -1)), whole.reshape(2, 3, -1))
    np.testing.assert_array_equal(WHOLE.into(frame, rows[2]), whole[2])


def test_a_tool_in_its_own_frame_is_at_the_origin() -> None:
    tool = random_frame(1, space=True)
    row = encode_arm(tool[None], np.ones(1))
    found = Body(arm_features("tool")).into(tool, row)
    np.testing.assert_allclose(found[0], [0, 0, 0, 1, 0, 0, 0, 1, 0, 1], atol=1e-12)
    np.testing.assert_allclose(PUSHT.act.into(np.array([3.0, 4.0, 1.0]), np.array([3.0, 4.0])), 0, atol=1e-12)
    point, frame = np.array([[1.0, 2.0]]), np.array([3.0, 4.0, 1.0])
    np.testing.assert_array_equal(PUSHT.act.into(frame, point), into_frame(frame, point))


# --- projection to valid rows ---


@given(seeds)
def test_project_makes_rows_valid_and_keeps_valid_ones(seed: int) -> None:
    body = TWO_ARMS.act
    rng = np.random.default_rng(seed)
    poses = np.array([random_frame(s, True) for s in rng.integers(0, 2**32, 8)])
    base = np.concatenate([encode_arm(poses[:4], np.ones(4)), encode_arm(poses[4:], np.zeros(4))], axis=1)
    off = (base + rng.normal(0, 0.3, base.shape)).astype(np.float32)
    base = base.astype(np.float32)
    found = body.project(off, base)
    assert found.dtype == np.float32
    for start in (0, 10):
        assert rotation6_error(found[:, start + 3 : start + 9]).max() < 1e-5
        np.testing.assert_array_equal(found[:, start : start + 3], off[:, start : start + 3])
        assert ((found[:, start + 9] >= 0) & (found[:, start + 9] <= 1)).all()
    np.testing.assert_allclose(body.project(found, base), found, atol=1e-6)
    np.testing.assert_allclose(body.project(base, off), base, atol=1e-6)


def test_project_replaces_a_degenerate_rotation_by_the_bases() -> None:
    base = np.tile(encode_arm(random_frame(5, True)[None], np.ones(1)).astype(np.float32), (3, 1))
    broken = base.copy()
    broken[0, 3:9] = 0
    broken[1, 6:9] = -2 * broken[1, 3:6]
    broken[2, 3:9] *= 1e-6
    found = Body(arm_features("tool")).project(broken, base)
    np.testing.assert_allclose(found, base, atol=1e-6)


def test_project_clips_a_gripper_to_its_limits() -> None:
    body = Body(
        (Feature("hand", "gripper", limits=(-0.5, 0.04)), Feature("force", "scalar", limits=(0.0, 1.0)))
    )
    rows = np.array([[-2.0, 5.0], [0.0, 0.5], [1.0, -5.0]], np.float32)
    np.testing.assert_allclose(body.project(rows, rows), [[-0.5, 5.0], [0.0, 0.5], [0.04, -5.0]])


def test_origin_keeps_positions_and_joints_only() -> None:
    now = np.arange(1, 19, dtype=np.float32)
    found = WHOLE.origin(now)
    moving = np.isin(list(WHOLE.letters), list("XYZJ"))
    np.testing.assert_array_equal(found, np.where(moving, now, 0))
    np.testing.assert_array_equal(WHOLE.origin(np.stack([now, 2 * now])), [found, 2 * found])
    assert not Body(WHOLE.features, changes=True).origin(now).any(), "deltas are already relative"


# --- robots ---


def test_the_action_defaults_to_the_proprio_features() -> None:
    assert JOINTS.action == JOINTS.proprio
    assert (PUSHT.act.size, PUSHT.body.letters) == (2, "XY")
    other = replace(JOINTS, action=(Feature("speed", "scalar", 3),))
    assert (other.body.size, other.act.size, other.act.letters) == (7, 3, "uuu")
    changes = replace(TWO_ARMS, action_mode="delta")
    assert changes.act.changes
    assert not changes.body.changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"control_hz": 0.0}, "robot 'joints' has control_hz 0.0"),
        ({"control_hz": math.nan}, "control_hz nan"),
        ({"control_hz": math.inf}, "control_hz inf"),
        ({"proprio": ()}, "robot 'joints' has no proprio feature"),
        ({"max_step": {"joint": 1.0}}, "unknown feature in max_step 'joint': did you mean 'joints'?"),
        ({"max_step": {"joints": 0.0}}, "max_step of 'joints' is 0.0"),
        ({"max_step": {"joints": math.nan}}, "max_step of 'joints' is nan"),
        ({"objects": {"a": ObjectSpec("pose3"), "b": ObjectSpec("box")}}, "of the kinds box and pose3"),
    ],
)
def test_an_invalid_robot_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        replace(JOINTS, **changes)
    assert words in str(refused.value)


def test_the_largest_steps_are_given_by_column_range() -> None:
    robot = replace(TWO_ARMS, max_step={"right.position": 0.02, "left.gripper": 0.5})
    assert robot.max_steps == ((slice(9, 10), 0.5), (slice(10, 13), 0.02))
    assert TWO_ARMS.max_steps == ()


def test_a_robot_in_metres_and_radians_is_metric() -> None:
    assert TWO_ARMS.is_metric
    assert JOINTS.is_metric
    assert not PUSHT.is_metric
    assert not replace(JOINTS, proprio=(Feature("state", "scalar", 4),), action=()).is_metric


def test_objects_are_found_by_name_or_by_star() -> None:
    assert (PUSHT.object_size("block"), PUSHT.object_size("can"), PUSHT.object_kind) == (3, None, "pose2")
    assert (TWO_ARMS.object_size("can"), TWO_ARMS.object_kind) == (7, "pose3")
    both = replace(TWO_ARMS, objects={"*": ObjectSpec("box"), "sign": ObjectSpec("box", symmetry=2)})
    assert (both.object_size("sign"), both.object_size("can"), both.object_kind) == (4, 4, "box")
    assert (JOINTS.object_size("can"), JOINTS.object_kind) == (None, None)


# --- holding ---


def test_absolute_actions_hold_at_the_current_state() -> None:
    now = np.arange(20, dtype=np.float32)
    np.testing.assert_array_equal(TWO_ARMS.hold(now), now)
    np.testing.assert_array_equal(TWO_ARMS.hold(np.stack([now, now + 1])), [now, now + 1])
    assert TWO_ARMS.hold(now).dtype == np.float64


def test_delta_actions_hold_with_zeros() -> None:
    robot = replace(TWO_ARMS, action_mode="delta")
    assert not robot.hold(np.ones(20)).any()
    assert (robot.measured == -1).all()


def test_hold_maps_state_features_to_action_features_by_name() -> None:
    robot = RobotSpec(
        "mixed",
        10.0,
        (Feature("joints", "joint", 3), Feature("hand", "gripper"), Feature("force", "scalar", 2)),
        (
            Feature("hand", "gripper"),
            Feature("speed", "scalar"),
            Feature("joints", "joint", 3),
            Feature("force", "scalar"),  # another size: not the measured feature
        ),
    )
    np.testing.assert_array_equal(robot.measured, [3, -1, 0, 1, 2, -1])
    np.testing.assert_array_equal(robot.hold(np.arange(1.0, 7.0)), [4, 0, 1, 2, 3, 0])


@given(seeds)
def test_holding_in_a_frame_equals_holding_in_the_world(seed: int) -> None:
    frame, now = random_frame(seed, True), random_rows(seed, TWO_ARMS.body, 1)[0]
    inside = TWO_ARMS.hold(TWO_ARMS.body.into(frame, now))
    np.testing.assert_allclose(TWO_ARMS.act.out_of(frame, inside), TWO_ARMS.hold(now), atol=1e-9)


# --- files ---


PLAIN: dict[str, Any] = {
    "name": "arm",
    "control_hz": 20,
    "proprio": [
        {"name": "tool.position", "kind": "position", "size": 3},
        {"name": "tool.rotation", "kind": "rotation6d"},
        {"name": "gripper", "kind": "gripper", "limits": [0, 0.08]},
    ],
}


def test_an_action_may_be_like_proprio_in_a_file() -> None:
    written = {**PLAIN, "action": {"like": "proprio", "mode": "delta", "max_step": {"tool.position": 0.02}}}
    robot = read_robot(written, "robot.yaml")
    assert robot.action == robot.proprio
    assert (robot.action_mode, robot.max_step) == ("delta", {"tool.position": 0.02})
    assert robot.proprio[2].limits == (0.0, 0.08)
    assert read_robot({**PLAIN, "action": {"like": "proprio"}}, "robot.yaml") == read_robot(
        PLAIN, "robot.yaml"
    )


def test_action_mode_and_max_step_beside_the_action_are_kept() -> None:
    beside = {**PLAIN, "action_mode": "delta", "max_step": {"gripper": 0.01}, "action": {"like": "proprio"}}
    robot = read_robot(beside, "robot.yaml")
    assert (robot.action_mode, robot.max_step) == ("delta", {"gripper": 0.01})


def test_an_action_may_have_its_own_features_in_a_file() -> None:
    features = [{"name": "joints", "kind": "joint", "size": 6}]
    for action in (features, {"features": features, "mode": "absolute"}):
        robot = read_robot({**PLAIN, "action": action}, "robot.yaml")
        assert robot.action == (Feature("joints", "joint", 6),)
        assert robot.action_mode == "absolute"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "red"}, "robot.yaml has an unknown key 'colour'"),
        ({"action": {"like": "proprio", "modus": "delta"}}, "unknown key 'action.modus'"),
        ({"action": {"like": "joints"}}, "action.like 'joints'"),
        ({"action": {"mode": "relative"}}, "at 'action_mode'"),
        ({"action": {"max_step": {"arm": 1.0}}}, "unknown feature in max_step 'arm'"),
        ({"action": 3}, "at 'action'"),
        ({"control_hz": "fast"}, "at 'control_hz'"),
        ({"control_hz": None}, "at 'control_hz'"),
        ({"proprio": [{"name": "x", "kind": "joint", "sise": 3}]}, "unknown key 'proprio.0.sise'"),
        ({"proprio": [{"name": "x", "kind": "arm"}]}, "unknown kind 'arm'"),
        ({"proprio": [{"name": "x"}]}, "missing required field `kind`"),
        ({"cameras": {"top": {"fit": "squeeze"}}}, "at 'cameras"),
        ({"objects": {"can": {"kind": "pose4"}}}, "at 'objects"),
        ({"objects": {"can": {"kynd": "pose3"}}}, "unknown key 'objects.can.kynd'"),
        ({"goal": "pose9"}, "at 'goal'"),
    ],
)
def test_a_mistake_in_a_file_is_a_one_line_error(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_robot({**PLAIN, **changes}, "robot.yaml")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("values", [None, [], "arm"])
def test_values_that_are_no_robot_description_are_refused(values: object) -> None:
    with pytest.raises(InputError, match=r"robot\.yaml is no description of a robot"):
        read_robot(values, "robot.yaml")


@pytest.mark.parametrize("robot", [PUSHT, TWO_ARMS, JOINTS], ids=lambda robot: robot.name)
@pytest.mark.parametrize("name", ["robot.yaml", "robot.json"])
def test_a_saved_robot_is_read_back(name: str, robot: RobotSpec, tmp_path: Path) -> None:
    whole = replace(robot, kinematics=Kinematics(ARM, "tip", ("a", "b")))
    configs.save_file(tmp_path / name, whole)
    assert load_robot(tmp_path / name) == whole
    assert read_robot(json.loads(json.dumps(configs.plain(whole))), "it") == whole


def test_a_hand_written_robot_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "robot.yaml").write_text(
        """
        name: so101
        control_hz: 30
        proprio:
          - {name: joints, kind: joint, size: 5}
          - {name: gripper, kind: gripper}
        action: {like: proprio, max_step: {joints: 0.1}}
        cameras:
          front: {size: [480, 640], fit: crop}
          wrist: {}
        objects:
          cube: {kind: pose3, symmetry: 4}
        """,
        "utf-8",
    )
    robot = load_robot(tmp_path / "robot.yaml")
    assert (robot.act.letters, robot.control_hz) == ("JJJJJg", 30.0)
    assert robot.cameras == {"front": CameraSpec((480, 640), "crop"), "wrist": CameraSpec()}
    assert robot.objects == {"cube": ObjectSpec("pose3", 4)}
    assert robot.max_steps == ((slice(0, 5), 0.1),)


# --- comparison of two robots ---


@pytest.mark.parametrize("robot", [PUSHT, TWO_ARMS, JOINTS], ids=lambda robot: robot.name)
def test_names_limits_cameras_and_objects_may_differ(robot: RobotSpec) -> None:
    other = replace(
        robot,
        name="another",
        control_hz=7.0,
        proprio=tuple(replace(f, limits=(-9.0, 9.0)) for f in robot.proprio),
        action=tuple(replace(f, limits=(-9.0, 9.0)) for f in robot.action),
        max_step={},
        cameras={"roof": CameraSpec((10, 20), "crop")},
        objects={},
        goal=None,
        kinematics=Kinematics("arm.urdf", "tip"),
    )
    assert difference(robot, other) is None
    assert difference(other, robot) is None


@pytest.mark.parametrize("what", ["action", "proprio"])
@pytest.mark.parametrize(
    ("given", "named"),
    [
        (Feature("grip", "gripper"), "'grip' (gripper, 1) is not 'hand' (gripper, 1)"),
        (Feature("hand", "scalar"), "'hand' (scalar, 1) is not 'hand' (gripper, 1)"),
        (Feature("hand", "gripper", 2), "'hand' (gripper, 2) is not 'hand' (gripper, 1)"),
        (Feature("hand", "gripper", unit="mm"), "'hand' (gripper, 1 mm) is not 'hand' (gripper, 1)"),
    ],
)
def test_difference_names_the_feature_that_differs(what: str, given: Feature, named: str) -> None:
    other = replace(JOINTS, **{what: (JOINTS.proprio[0], given)})  # type: ignore[arg-type]
    assert difference(JOINTS, other) == f"{what} feature {named}"


def test_a_missing_or_additional_feature_is_named() -> None:
    arm, hand = JOINTS.proprio
    short = replace(JOINTS, action=(arm,))
    assert difference(JOINTS, short) == "action feature 'hand' (gripper, 1) is missing"
    assert difference(short, JOINTS) == "action feature 'hand' (gripper, 1) is unknown"
    wide = replace(JOINTS, proprio=(arm, hand, Feature("force", "scalar", 6)), action=JOINTS.action)
    assert difference(JOINTS, wide) == "proprio feature 'force' (scalar, 6) is unknown"
    swapped = replace(JOINTS, action=(hand, arm))
    assert difference(JOINTS, swapped) == (
        "action feature 'hand' (gripper, 1) is not 'joints' (joint, 6 rad)"
    )


def test_delta_and_absolute_actions_differ() -> None:
    assert difference(JOINTS, replace(JOINTS, action_mode="delta")) == "actions are delta, not absolute"


# --- robots inferred from data ---


def test_a_planar_point_robot_is_inferred() -> None:
    robot = infer_robot(random_episode("a", 0, symmetry=2))
    assert difference(PUSHT, robot) is None
    assert (robot.name, robot.control_hz, robot.goal) == ("disc", 10.0, "pose2")
    assert robot.objects == {"block": ObjectSpec("pose2", 2)}


def test_two_arms_are_inferred() -> None:
    demo = place_in_box(pose(-0.2, 0.3), pose(-0.1, 0.6))
    film = [np.zeros((8, 8, 3), np.uint8)] * len(demo)
    robot = infer_robot(replace(demo, images={"head": film}))
    assert difference(TWO_ARMS, robot) is None
    assert (robot.control_hz, robot.goal, tuple(robot.cameras)) == (20.0, None, ("head",))
    assert robot.objects == {"box": ObjectSpec("pose3"), "can": ObjectSpec("pose3")}


def one_arm(demo: Episode) -> Episode:
    return replace(demo, proprio=demo.proprio[:, :10], actions=demo.actions[:, :10])


def test_one_arm_is_inferred_and_ten_joints_are_not_an_arm() -> None:
    demo = one_arm(place_in_box(pose(-0.2, 0.3), pose(-0.1, 0.6)))
    assert infer_robot(demo).proprio == arm_features("tool")
    joints = np.random.default_rng(0).uniform(-3, 3, (len(demo), 10)).astype(np.float32)
    robot = infer_robot(replace(demo, proprio=joints, actions=joints))
    assert robot.proprio == robot.action == (Feature("state", "scalar", 10),)


def test_other_states_and_actions_are_inferred_as_scalars() -> None:
    demo = random_episode("a", 0)
    wide = replace(demo, proprio=np.zeros((30, 7), np.float32), actions=np.zeros((30, 3), np.float32))
    robot = infer_robot(replace(wide, embodiment="", goal=np.zeros(5, np.float32)))
    assert (robot.name, robot.goal) == ("robot", None)
    assert robot.proprio == (Feature("state", "scalar", 7),)
    assert robot.action == (Feature("state", "scalar", 3),)
    boxes = {"can": np.zeros((30, 4), np.float32), "odd": np.zeros((30, 5), np.float32)}
    assert infer_robot(replace(demo, objects=boxes)).objects == {"can": ObjectSpec("box")}


def test_demonstrations_without_actions_get_the_proprio_features_as_action() -> None:
    demo = replace(random_episode("a", 0), actions=np.zeros((30, 0), np.float32))
    robot = infer_robot(demo)
    assert robot.action == robot.proprio

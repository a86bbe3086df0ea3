"""Forward and inverse kinematics, and robots in joint space."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

import recap
from jointed import EXAMPLES, TOOL, arm, pair_of_arms, walk
from recap import config as configs
from recap.body import Feature
from recap.chain import Chain
from recap.errors import InputError
from recap.geometry3 import rotation6_to_matrix
from recap.kinematics import JointSpace, joint_space, tool_space
from recap.pool.store import Pool
from recap.robot import Base, Kinematics, RobotSpec, load_robot, read_robot
from recap.robot_model import load_model, read_model
from recap.types import F64
from recap_worlds.dualarm.robots import SIDES, UR5E, VIPERX

PLANAR = """
<robot name="planar">
  <link name="base"><visual><geometry><mesh filename="package://no/such.stl"/></geometry></visual></link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><axis xyz="0 0 1"/>
    <limit lower="-2" upper="2" effort="1" velocity="1"/>
  </joint>
  <link name="upper"><collision><geometry><box size="1 1 1"/></geometry></collision></link>
  <joint name="elbow" type="continuous">
    <parent link="upper"/><child link="lower"/><origin xyz="0.3 0 0"/><axis xyz="0 0 1"/>
  </joint>
  <link name="lower"/>
  <joint name="mount" type="fixed"><parent link="lower"/><child link="tip"/><origin xyz="0.2 0 0"/></joint>
  <link name="tip"/>
  <transmission name="t"><actuator name="m"/></transmission>
</robot>
"""


BALL = '<mujoco><worldbody><body name="tip"><joint name="j" type="ball"/></body></worldbody></mujoco>'


@cache
def chain(name: str) -> Chain:
    if name == "five joints":
        text = load_model(EXAMPLES / "arm.urdf").text
        return Chain(
            text.replace('name="forearm_roll" type="revolute"', 'name="forearm_roll" type="fixed"'), ["tool"]
        )
    if name.endswith("urdf"):
        return Chain(load_model(EXAMPLES / name).text, ["tool"])
    text = pair_of_arms({"viperx": VIPERX, "ur5e": UR5E}[name.split()[0]])
    return Chain(text, [f"{side}/tool" for side in (SIDES if "both" in name else ("left",))])


def degrees_apart(a: F64, b: F64) -> float:
    return math.degrees(math.acos(np.clip((np.trace(a @ b.T) - 1) / 2, -1, 1)))


# --- forward and inverse ---


def test_forward_kinematics_of_a_planar_arm() -> None:
    planar = Chain(PLANAR, ["tip"])
    assert planar.names == ("shoulder", "elbow")
    (position,), (axes,) = planar.poses(np.array([0.5, 0.7]))
    assert np.allclose(
        position, [0.3 * math.cos(0.5) + 0.2 * math.cos(1.2), 0.3 * math.sin(0.5) + 0.2 * math.sin(1.2), 0]
    )
    assert np.allclose(axes[:2, 0], [math.cos(1.2), math.sin(1.2)])
    assert (planar.low[0], planar.high[0]) == (-2, 2)
    assert np.isinf([planar.low[1], planar.high[1]]).all()  # continuous


@pytest.mark.parametrize(
    "name", ["arm.urdf", "other_arm.urdf", "five joints", "viperx", "ur5e", "viperx both"]
)
def test_inverse_kinematics_reaches_reachable_poses(name: str) -> None:
    """Starting up to 0.2 rad away, errors are at most 0.5 mm and 0.1 degrees."""
    moved, rng = chain(name), np.random.default_rng(500)
    low, high = np.maximum(moved.low, -3), np.minimum(moved.high, 3)
    for _ in range(60):
        joints = rng.uniform(low, high)
        positions, axes = moved.poses(joints)
        found, *errors = moved.solve(joints + rng.uniform(-0.2, 0.2, len(joints)), positions, axes)
        again, turned = moved.poses(found)
        assert np.abs(again - positions).max() < 0.5e-3
        assert max(map(degrees_apart, turned, axes)) < 0.1
        assert errors[0] < 0.5e-3
        assert math.degrees(errors[1]) < 0.1
        assert (moved.low <= found).all()
        assert (found <= moved.high).all()


def test_inverse_kinematics_leaves_a_singular_pose() -> None:
    moved = chain("arm.urdf")
    positions, axes = moved.poses(np.array([0.2, 0.6, 1.0, 0.1, 0.8, 0.0]))
    found, metres, radians = moved.solve(np.zeros(6), positions, axes)  # all axes in one plane: singular
    assert np.isfinite(found).all()
    assert metres < 0.5e-3
    assert radians < math.radians(0.1)


def test_an_unreachable_pose_is_approached_as_closely_as_possible() -> None:
    planar = Chain(PLANAR, ["tip"])
    found, metres, _ = planar.solve(np.array([0.3, 0.4]), np.array([[1.0, 0, 0]]), np.eye(3)[None])
    assert metres == pytest.approx(0.5, abs=1e-3)
    assert np.allclose(found, 0, atol=0.03)


def test_an_arm_with_few_joints_prefers_position_to_rotation() -> None:
    planar = Chain(PLANAR, ["tip"])
    found, metres, radians = planar.solve(
        np.array([0.5, 0.7]), np.array([[0.35, 0.2, 0]]), np.diag([-1.0, -1, 1])[None]
    )
    assert metres < 5e-3
    assert radians > 1
    positions = Chain(PLANAR, ["tip"], turns=[False]).solve(
        found, np.array([[0.35, 0.2, 0]]), np.eye(3)[None]
    )
    assert positions[1] < 1e-4


def test_redundant_joints_move_towards_the_rest_posture() -> None:
    """With a third planar joint the tip stays in place while the posture changes."""
    text = PLANAR.replace('name="mount" type="fixed"', 'name="wrist" type="continuous"')
    text = text.replace("</robot>", '<joint name="end" type="fixed"><parent link="tip"/><child link="end"/>'
                        '<origin xyz="0.1 0 0"/></joint><link name="end"/></robot>')  # fmt: skip
    moved = Chain(text, ["end"], turns=[False])
    start, rest = np.array([0.2, 0.9, 0.4]), np.array([0.9, 0.1, 0.9])
    positions, axes = moved.poses(start)
    stays, *_ = moved.solve(start, positions, axes)
    drawn, metres, _ = moved.solve(start, positions, axes, rest)
    assert np.allclose(stays, start)
    assert metres < 1e-4
    assert np.linalg.norm(drawn - rest) < np.linalg.norm(start - rest) - 0.05


# --- models ---


def test_a_loaded_urdf_keeps_only_links_and_joints() -> None:
    model = read_model(PLANAR, "planar.urdf")
    assert model.tips == ("base", "upper", "lower", "tip")
    assert model.joints == ("shoulder", "elbow")
    assert not any(word in model.text for word in ("visual", "collision", "mesh", "transmission"))
    assert read_model(model.text, "again") == model


def test_a_loaded_mjcf_keeps_defaults_and_includes(tmp_path: Path) -> None:
    (tmp_path / "arm.xml").write_text(
        """<mujoco><asset><mesh name="m" file="no.stl"/></asset>
        <default><default class="big"><joint axis="0 0 1" range="-90 90"/><geom mesh="m"/>
        </default></default><worldbody><body name="one" childclass="big"><joint name="turn"/><geom/>
        <site name="end" pos="0.5 0 0"/></body></worldbody>
        <actuator><motor joint="turn"/></actuator></mujoco>""",
        "utf-8",
    )
    (tmp_path / "scene.xml").write_text('<mujoco><include file="arm.xml"/></mujoco>', "utf-8")
    moved = Chain(load_model(tmp_path / "scene.xml").text, ["end"])
    assert np.allclose([moved.low, moved.high], [[-math.pi / 2], [math.pi / 2]])
    assert np.allclose(moved.poses(np.array([math.pi / 2]))[0], [[0, 0.5, 0]])


@pytest.mark.parametrize(
    ("text", "tip", "joints", "code", "words"),
    [
        ("<robot", "tip", (), "kinematics.model", "arm.urdf is no model of a robot"),
        (
            PLANAR.replace("<link", '<x:macro xmlns:x="http://ros.org/wiki/xacro"/><link', 1),
            "tip",
            (),
            "kinematics.model",
            "xacro",
        ),
        ("<sdf/>", "tip", (), "kinematics.model", "it begins with <sdf>"),
        (PLANAR, "tipp", (), "kinematics.name", "no tip 'tipp': did you mean 'tip'?"),
        (PLANAR, "tip", ("shoulder", "elbo"), "kinematics.name", "no joint 'elbo': did you mean 'elbow'?"),
    ],
)
def test_a_wrong_model_or_name_is_a_one_line_error(
    text: str, tip: str, joints: tuple[str, ...], code: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "arm.urdf").write_text(text, "utf-8")
    described = configs.plain(replace(arm(), kinematics=Kinematics("arm.urdf", tip, joints)))
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(described), "utf-8")
    with pytest.raises(InputError) as refused:
        load_robot(tmp_path / "robot.yaml")
    assert refused.value.code == code
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "joints", "words"),
    [
        (PLANAR, ("shoulder",), "'tip' is moved by shoulder, elbow: name just these"),
        (PLANAR.replace('<child link="tip"/>', '<child link="nowhere"/>'), (), "cannot be used"),
        ('<mujoco><worldbody><body name="tip"/></worldbody></mujoco>', (), "'tip' is moved by no joint"),
        (BALL, (), "ball"),
    ],
)
def test_an_unusable_model_is_a_one_line_error(text: str, joints: tuple[str, ...], words: str) -> None:
    with pytest.raises(InputError) as refused:
        Chain(text, ["tip"], joints)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.code.startswith("kinematics.")


def test_the_robot_description_contains_the_model(tmp_path: Path) -> None:
    (tmp_path / "arm.urdf").write_text(PLANAR, "utf-8")
    described = configs.plain(replace(arm(), kinematics=Kinematics("arm.urdf", "tip")))
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(described), "utf-8")
    robot = load_robot(tmp_path / "robot.yaml")
    (tmp_path / "arm.urdf").unlink()
    again = read_robot(configs.plain(robot), "a checkpoint")
    assert again == robot
    space = joint_space(again)
    assert space is not None
    assert space.chain.names == ("shoulder", "elbow")
    assert joint_space(replace(robot, kinematics=None)) is None


@pytest.mark.parametrize(
    ("robot", "words"),
    [
        (
            replace(arm(), proprio=(TOOL[0], TOOL[2]), action=(Feature("state", "scalar", 7),), max_step={}),
            "'tool.position'",
        ),
        (replace(arm(), action_mode="delta"), "delta"),
        (arm(rest=(0.0, 1.0)), "kinematics.rest has 2 numbers"),
    ],
)
def test_a_description_that_does_not_fit_its_model_is_refused(robot: RobotSpec, words: str) -> None:
    with pytest.raises(InputError, match=words):
        JointSpace(robot)


# --- robots in joint space ---


def test_joint_space_describes_the_robot_in_joints() -> None:
    space = JointSpace(arm(units="deg", gripper=(100.0, 0.0), max_speed=1.5))
    names = [(f.name, f.kind, f.unit) for f in space.robot.proprio]
    assert names[0] == ("shoulder_pan", "joint", "deg")
    assert names[6] == ("gripper", "gripper", "")
    assert space.robot.proprio[0].limits == pytest.approx((math.degrees(-2.8), math.degrees(2.8)))
    assert space.robot.proprio[6].limits == (0.0, 100.0)
    assert space.robot.max_step["wrist_flex"] == pytest.approx(math.degrees(1.5 / 30))
    assert space.robot.kinematics is None


def test_units_gripper_range_and_base_are_applied() -> None:
    joints, sent = np.array([0.4, 0.2, 1.5, 0.1, 1.2, 0.0]), np.zeros(7)
    plain = JointSpace(arm()).tool(np.append(joints, 0.25))
    sent[:6], sent[6] = np.degrees(joints), 75.0
    base = Base((0.1, 0.2, 0.3), (0.0, 0.0, math.pi / 2))
    moved = JointSpace(arm(units="deg", gripper=(100.0, 0.0), base=base)).tool(sent)
    x, y, z = plain[:3]
    assert np.allclose(moved[:3], [0.1 - y, 0.2 + x, 0.3 + z], atol=1e-6)
    turn = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1.0]])
    assert np.allclose(rotation6_to_matrix(moved[3:9]), turn @ rotation6_to_matrix(plain[3:9]), atol=1e-6)
    assert moved[9] == plain[9] == 0.25


def test_the_column_order_follows_the_description() -> None:
    names = chain("viperx both").names
    features = tuple(
        Feature(f"{side}.{name}", kind, size)
        for side in SIDES
        for name, kind, size in (
            ("position", "position", 3),
            ("rotation", "rotation6d", 6),
            ("gripper", "gripper", 1),
        )
    )
    order = (*names[:6], "left.gripper", *names[6:], "right.gripper")
    tips = {side: f"{side}/tool" for side in SIDES}
    space = JointSpace(
        RobotSpec("two", 20.0, features, kinematics=Kinematics(pair_of_arms(VIPERX), tips, order))
    )
    assert tuple(f.name for f in space.robot.proprio) == order
    rng = np.random.default_rng(501)
    sent = rng.uniform(-0.5, 0.5, 14)
    sent[[6, 13]] = 0.2, 0.9
    tools = space.tool(sent)
    assert tools[[9, 19]] == pytest.approx([0.2, 0.9])
    back, reach = space.command(tools[None].astype(np.float64), sent)
    assert np.allclose(back[0], sent, atol=1e-3)
    assert not reach.unreachable.any()


def test_a_joint_space_demonstration_converts_to_tool_space_and_back() -> None:
    space, episode = JointSpace(arm()), walk(502)
    sent = episode.proprio
    tools = space.episode(episode)
    assert tools.proprio.shape == tools.actions.shape == (40, 10)
    assert np.allclose(tools.actions[:-1], tools.proprio[1:])
    assert (tools.id, tools.scene_id) == (episode.id, episode.scene_id)
    assert space.episode(tools) is tools
    targets, reach = space.command(tools.actions[:-1].astype(np.float64), sent[0])
    assert np.abs(targets - sent[1:]).max() < 1e-3
    assert reach.error_mm.max() < 0.5
    assert reach.error_deg.max() < 0.1
    assert reach.summary()["n_unreachable"] == 0


def test_a_demonstration_of_another_width_is_refused() -> None:
    odd = replace(walk(503), actions=walk(503).actions[:, :6])
    with pytest.raises(InputError) as refused:
        JointSpace(arm()).episode(odd)
    assert refused.value.code == "kinematics.features"


def test_commanded_joints_respect_the_speed_limit() -> None:
    space = JointSpace(arm(max_speed=0.6))  # 0.02 rad a period
    start = np.append([0.1, 0.3, 1.6, 0.0, 1.2, 0.0], 0.5)
    far = space.tool(np.append([0.6, 0.5, 1.2, 0.0, 1.0, 0.0], 0.5)).astype(np.float64)
    targets, reach = space.command(np.tile(far, (10, 1)), start)
    steps = np.abs(np.diff(np.vstack([start, targets])[:, :6], axis=0)).max(axis=1)
    assert steps.max() < 0.02 + 1e-9
    assert reach.limited.all()
    assert not reach.unreachable.any()  # limited by speed, not by reach
    more, reach = space.command(np.tile(far, (30, 1)), targets[-1])
    assert np.allclose(space.tool(more[-1]), far, atol=1e-4)
    assert not reach.limited[-1]


@pytest.mark.parametrize("unreachable", ["nearest", "hold"])
def test_unreachable_targets_are_reported(unreachable: str) -> None:
    space = JointSpace(arm(unreachable=unreachable, max_speed=100.0))
    start = np.append([0.1, 0.3, 1.6, 0.0, 1.2, 0.0], 0.5)
    here = space.tool(start).astype(np.float64)
    chunk = np.tile(here, (3, 1))
    chunk[1:, 0] += 2.0
    chunk[1:, 9] = 1.0
    targets, reach = space.command(chunk, start)
    assert reach.unreachable.tolist() == [False, True, True]
    assert reach.error_mm[0] < 0.1
    assert 1000 < reach.error_mm[1] < 2000
    assert np.isfinite(targets).all()
    held = np.allclose(targets[1:, :6], start[:6], atol=1e-4)
    assert held == (unreachable == "hold")
    assert targets[:, 6].tolist() == ([0.5, 0.5, 0.5] if held else [0.5, 1.0, 1.0])
    assert reach.summary()["n_unreachable"] == 2


def test_joints_of_another_embodiment_are_refused() -> None:
    own, named = tool_space(arm()), tool_space(arm("other_arm"), known=True)
    assert own is not None
    assert named is not None
    theirs = walk(504, embodiment="other_arm")
    with pytest.raises(InputError) as refused:
        own(theirs)
    assert refused.value.code == "kinematics.robot"
    assert "'other_arm'" in str(refused.value)
    there = named(theirs)
    assert own(there) is there  # tool-space demonstrations of any embodiment are accepted
    assert own(replace(theirs, embodiment="unknown")).proprio.shape == (40, 10)
    assert tool_space(replace(arm(), kinematics=None)) is None


# --- pools and agents ---


def test_a_pool_converts_joint_demonstrations_to_tool_poses(tmp_path: Path) -> None:
    pool = Pool.create(tmp_path / "pool", robot=arm())
    pool.add([walk(1), walk(2)])
    found = Pool.open(tmp_path / "pool").view()
    assert found.robot == arm()
    assert np.allclose(found.episode("walk/arm/1").proprio, JointSpace(arm()).episode(walk(1)).proprio)
    with pytest.raises(InputError) as refused:
        pool.add([walk(3), walk(4, embodiment="other_arm")])
    assert refused.value.code == "kinematics.robot"
    assert len(pool) == 2


def test_an_agent_accepts_joint_states_and_returns_joint_actions(tmp_path: Path) -> None:
    """Replay in a recorded state returns the recorded joints."""
    pool = Pool.create(tmp_path / "pool", robot=arm())
    demos = [walk(seed) for seed in range(4)]
    pool.add(demos)
    joints, tools = recap.Agent(None, pool), recap.Agent(None, pool)
    for t in range(3):
        action = joints.act(recap.Observation(demos[1].proprio[t], "walk about", t / 30))
        assert np.allclose(action, demos[1].actions[t], atol=2e-3)
        assert joints.last is not None
        assert joints.last.kinematics is not None
        assert joints.last.kinematics["error_mm"] < 0.5
        pose = tools.act(recap.Observation(pool.get(demos[1].id).proprio[t], "walk about", t / 30))
        assert np.allclose(pose, pool.get(demos[1].id).actions[t], atol=1e-3)


def test_a_holding_agent_returns_the_given_joints(tmp_path: Path) -> None:
    """Also if they are beyond the model's limits."""
    pool = Pool.create(tmp_path / "pool", robot=arm())
    sent = np.append([0.1, 1.95, 1.6, 0.0, 1.2, 0.0], 0.5).astype(np.float32)
    action = recap.Agent(None, pool).act(recap.Observation(sent, "walk about", 0.0))
    assert np.array_equal(action, sent)

"""`recap init`: a robot's description from its demonstrations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from lerobot_files import write_older
from test_import_act import write_act

from jointed import EXAMPLES, arm, pair_of_arms, walk
from recap.cli.check import check
from recap.cli.init import init
from recap.cli.pool import pool as pool_group
from recap.errors import InputError, RecapError
from recap.kinematics import JointSpace
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.store import Pool
from recap.robot import difference, load_robot
from recap.types import F32, Episode
from recap_worlds.dualarm.robots import VIPERX

ARM = ("shoulder_pan", "shoulder_lift", "elbow_flex", "forearm_roll", "wrist_flex", "wrist_roll", "gripper")
ALOHA = ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper")


def write(folder: Path, episodes: Sequence[Episode], names: Sequence[str] | None = None) -> Path:
    """Writes a LeRobot dataset with these names of state and action columns."""
    work = folder.with_name(f"{folder.name}.work")
    for number, episode in enumerate(episodes):
        stage_episode(work, number, episode)
    assemble(work, len(episodes), folder)
    info = json.loads((folder / "meta/info.json").read_text("utf-8"))
    for key in ("observation.state", "action"):
        info["features"][key]["names"] = None if names is None else list(names)
    (folder / "meta/info.json").write_text(json.dumps(info), "utf-8")
    return folder


def with_states(states: F32, embodiment: str = "arm") -> Episode:
    states = states.astype(np.float32)
    actions = np.concatenate([states[1:], states[-1:]])
    return replace(walk(0, len(states), embodiment), proprio=states, actions=actions)


def motors(suffix: str = ".pos") -> list[str]:
    return [f"{name}{suffix}" for name in ARM]


def call(*arguments: object) -> str:
    """Calls the command as `recap` does: errors are raised; returns the output."""
    with CliRunner().isolation() as (out, _, _):
        init.main([str(a) for a in arguments], standalone_mode=False)
        return out.getvalue().decode()


def features(path: Path) -> list[tuple[str, str, int, str]]:
    return [(f.name, f.kind, f.size, f.unit) for f in load_robot(path).proprio]


def test_joints_and_gripper_are_found_by_motor_names(tmp_path: Path) -> None:
    episode = replace(walk(1), images={"top": [np.zeros((48, 64, 3), np.uint8)] * 40})
    data = write(tmp_path / "arm", [episode, replace(walk(2), images=episode.images)], motors())
    said = call(data, "--out", tmp_path / "robot.yaml")
    robot = load_robot(tmp_path / "robot.yaml")
    assert features(tmp_path / "robot.yaml") == [
        *((name, "joint", 1, "rad") for name in ARM[:6]),
        ("gripper", "gripper", 1, ""),
    ]
    assert (robot.name, robot.control_hz, robot.action_mode) == ("arm", 30.0, "absolute")
    assert robot.action == robot.proprio
    assert robot.cameras["top"].size == (48, 64)
    assert robot.cameras["top"].fit == "letterbox"
    assert robot.proprio[6].limits == (0.0, 1.0)
    assert robot.max_step["forearm_roll"] > 0
    everything = np.concatenate([walk(1).proprio, walk(2).proprio])
    low, high = robot.body.bounds
    assert (low[:6] < everything[:, :6].min(axis=0) - 0.5).all()
    assert (high[:6] > everything[:, :6].max(axis=0) + 0.5).all()
    assert len({robot.max_step[name] for name in ARM[:6]}) == 1
    assert "same robot" in said
    assert f"recap pool add pools/arm {data}" in said
    assert "# seen: " in (tmp_path / "robot.yaml").read_text("utf-8")


def test_degrees_and_percent_are_found_by_value_ranges(tmp_path: Path) -> None:
    states = walk(1).proprio.astype(np.float64)
    states[:, :6], states[:, 6] = np.degrees(states[:, :6]), 100 * states[:, 6]
    said = call(write(tmp_path / "arm", [with_states(states)], motors()), "--out", tmp_path / "robot.yaml")
    robot = load_robot(tmp_path / "robot.yaml")
    assert [f.unit for f in robot.proprio[:6]] == ["deg"] * 6
    assert robot.proprio[6].limits == (0.0, 100.0)
    assert "Unsure: joints go to" in said


def test_two_arms_are_found_by_motor_names(tmp_path: Path) -> None:
    both = np.concatenate([walk(1).proprio, walk(2).proprio], axis=1)
    names = [f"{side}_{name}" for side in ("left", "right") for name in ALOHA]
    call(write(tmp_path / "aloha", [with_states(both)], names), "--out", tmp_path / "robot.yaml")
    found = features(tmp_path / "robot.yaml")
    assert [name for name, kind, *_ in found if kind == "gripper"] == ["left.gripper", "right.gripper"]
    assert found[0] == ("left_waist", "joint", 1, "rad")
    assert sum(kind == "joint" for _, kind, *_ in found) == 12


def test_a_quaternion_is_an_error_with_the_mapping_that_converts_it(tmp_path: Path) -> None:
    states = np.concatenate(
        [walk(1).proprio[:, :3], np.tile([0, 0, 0, 1.0], (40, 1)), walk(1).proprio[:, 6:]], axis=1
    )
    names = ["x", "y", "z", "qx", "qy", "qz", "qw", "gripper"]
    data = write(tmp_path / "arm", [with_states(states)], names)
    with pytest.raises(InputError) as refused:
        call(data, "--out", tmp_path / "robot.yaml")
    assert refused.value.code == "init.quaternion"
    assert "proprio=observation.state[0:3]+observation.state[3:7]@xyzw+observation.state[7:8]" in str(
        refused.value
    )
    assert not (tmp_path / "robot.yaml").exists()
    maps = [
        f"{field}={key}[0:3]+{key}[3:7]@xyzw+{key}[7]"
        for field, key in (("proprio", "observation.state"), ("action", "action"))
    ]
    said = call(data, "--out", tmp_path / "robot.yaml", "--map", maps[0], "--map", maps[1])
    assert features(tmp_path / "robot.yaml") == [
        ("tool.position", "position", 3, "m"),
        ("tool.rotation", "rotation6d", 6, ""),
        ("gripper", "gripper", 1, ""),
    ]
    assert "--map" in said.partition("Next:")[2]


@pytest.mark.parametrize(
    ("width", "kinds"),
    [
        (2, ["position"]),
        (6, ["joint"] * 5 + ["gripper"]),
        (14, (["joint"] * 6 + ["gripper"]) * 2),
        (5, ["joint"] * 5),
    ],
)
def test_columns_without_names_are_described_by_value_ranges(
    width: int, kinds: list[str], tmp_path: Path
) -> None:
    rng = np.random.default_rng(500)
    states = np.cumsum(rng.normal(0, 0.05, (60, width)), axis=0) - 1
    for at in (i for i, kind in enumerate(kinds) if kind == "gripper"):
        states[:, at] = rng.uniform(0, 1, 60)
    said = call(write(tmp_path / "arm", [with_states(states)]), "--out", tmp_path / "robot.yaml")
    assert [kind for _, kind, *_ in features(tmp_path / "robot.yaml")] == kinds
    assert "Unsure: the state has no names" in said


def test_delta_actions_are_recognised(tmp_path: Path) -> None:
    episode = walk(1)
    changes = np.diff(episode.proprio, axis=0, append=episode.proprio[-1:])
    call(
        write(tmp_path / "arm", [replace(episode, actions=changes)], motors()),
        "--out",
        tmp_path / "robot.yaml",
    )
    assert load_robot(tmp_path / "robot.yaml").action_mode == "delta"


def test_a_kinematic_model_adds_tool_space(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "arm.urdf", tmp_path)
    data = write(tmp_path / "arm", [walk(1), walk(2)], motors())
    call(
        data,
        "--model",
        tmp_path / "arm.urdf",
        "--tip",
        "tool",
        "--out",
        tmp_path / "described" / "robot.yaml",
    )
    robot = load_robot(tmp_path / "described" / "robot.yaml")
    assert difference(arm(), robot) is None
    assert robot.kinematics is not None
    assert robot.kinematics.joints == ARM
    tools = JointSpace(robot).episode(walk(1)).actions
    low, high = robot.act.bounds
    assert ((low <= tools) & (tools <= high)).all()
    assert robot.max_step["tool.position"] > np.linalg.norm(np.diff(tools[:, :3], axis=0), axis=1).max()


def test_a_pool_of_another_embodiment_needs_a_model_for_tool_space(tmp_path: Path) -> None:
    own = write(tmp_path / "own", [walk(1)], motors())
    other = write(tmp_path / "other", [walk(1, embodiment="other_arm")], motors())
    same = write(tmp_path / "same", [walk(2)], motors())
    assert "joint space is fine" in call(own, "--pool", same, "--out", tmp_path / "robot.yaml")
    said = call(own, "--pool", other, "--out", tmp_path / "robot.yaml", "--force")
    assert "another embodiment ('other_arm' and 'arm')" in said
    assert "--model MODEL --tip NAME" in said.partition("Next:")[2]
    model = ("--model", EXAMPLES / "arm.urdf", "--tip", "tool")
    said = call(own, "--pool", other, *model, "--out", tmp_path / "robot.yaml", "--force")
    assert f"recap init {other} --model MODEL" in said
    assert f"recap pool add pools/other_arm {other} --robot {tmp_path / 'other_arm.yaml'}" in said


def test_two_arms_are_added_to_one_pool_by_their_descriptions(tmp_path: Path) -> None:
    data = {
        name: write(tmp_path / name, [walk(1, embodiment=name)], motors()) for name in ("arm", "other_arm")
    }
    for name, place in data.items():
        model = ("--model", EXAMPLES / f"{name}.urdf", "--tip", "tool")
        call(place, *model, "--out", tmp_path / f"{name}.yaml")
    run = CliRunner().invoke
    uri = str(tmp_path / "pool")
    assert run(pool_group, ["create", uri, "--robot", str(tmp_path / "arm.yaml")]).exit_code == 0
    refused = run(pool_group, ["add", uri, str(data["other_arm"])])
    assert isinstance(refused.exception, RecapError)
    assert refused.exception.code == "kinematics.robot"
    given = ["--robot", str(tmp_path / "other_arm.yaml")]
    for arguments in ([str(data["arm"])], [str(data["other_arm"]), *given]):
        result = run(pool_group, ["add", uri, *arguments], catch_exceptions=False)
        assert result.exit_code == 0
    found = {episode.embodiment: episode.proprio for episode in Pool.open(uri)}
    assert found["arm"].shape == found["other_arm"].shape == (40, 10)
    assert (
        np.abs(found["arm"][:, :3] - found["other_arm"][:, :3]).max() > 0.05
    )  # equal joints give different poses


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--tip", "tool"), "input", "give --model"),
        (("--model", EXAMPLES / "arm.urdf"), "kinematics.name", "give --tip"),
        (("--model", EXAMPLES / "arm.urdf", "--tip", "tol"), "kinematics.name", "did you mean 'tool'?"),
        (
            ("--model", EXAMPLES / "arm.urdf", "--tip", "base"),
            "kinematics.name",
            "'base' is moved by no joint",
        ),
        (("--model", "no.urdf", "--tip", "tool"), "kinematics.model", "no.urdf is no model"),
    ],
)
def test_a_wrong_model_or_tip_is_a_one_line_error_and_writes_nothing(
    options: Sequence[Any], code: str, words: str, tmp_path: Path
) -> None:
    data = write(tmp_path / "arm", [walk(1)], motors())
    with pytest.raises(InputError) as refused:
        call(data, *options, "--out", tmp_path / "robot.yaml")
    assert refused.value.code == code
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "robot.yaml").exists()


def test_an_existing_file_is_overwritten_only_with_force(tmp_path: Path) -> None:
    data = write(tmp_path / "arm", [walk(1)], motors())
    (tmp_path / "robot.yaml").write_text("mine", "utf-8")
    with pytest.raises(InputError, match="--force"):
        call(data, "--out", tmp_path / "robot.yaml")
    assert (tmp_path / "robot.yaml").read_text("utf-8") == "mine"
    call(data, "--out", tmp_path / "robot.yaml", "--force")
    assert load_robot(tmp_path / "robot.yaml").name == "arm"


def test_states_beyond_the_models_limits_are_reported(tmp_path: Path) -> None:
    states = walk(1).proprio.astype(np.float64)
    states[:, 2] += 3
    data = write(tmp_path / "arm", [with_states(states)], motors())
    said = call(data, "--model", EXAMPLES / "arm.urdf", "--tip", "tool", "--out", tmp_path / "robot.yaml")
    assert "Unsure: 'elbow_flex' goes from" in said


def test_older_lerobot_datasets_and_aloha_files_are_described(tmp_path: Path) -> None:
    call(write_older(tmp_path / "older"), "--out", tmp_path / "older.yaml")
    robot = load_robot(tmp_path / "older.yaml")
    assert (robot.name, robot.cameras["front"].size) == ("so101", (64, 64))
    assert [f.name for f in robot.proprio][:2] == ["joint_0", "joint_1"]
    said = call(write_act(tmp_path / "aloha"), "--fps", 50, "--out", tmp_path / "aloha.yaml")
    assert f"{tmp_path / 'aloha'} --fps 50" in said
    assert load_robot(tmp_path / "aloha.yaml").body.size == 14


def test_damaged_episodes_are_left_out_of_the_description(tmp_path: Path) -> None:
    data = write_older(tmp_path / "older")
    (data / "videos/chunk-000/observation.images.front/episode_000000.mp4").write_bytes(b"")
    call(data, "--out", tmp_path / "robot.yaml")
    assert "2 of 3 episodes" in (tmp_path / "robot.yaml").read_text("utf-8")


def test_a_joint_that_never_moved_gets_limits_and_short_episodes_are_accepted(tmp_path: Path) -> None:
    states = walk(1).proprio.copy()
    states[:, 3] = 0.25
    data = write(tmp_path / "arm", [with_states(states), with_states(states[:1])], motors())
    call(data, "--out", tmp_path / "robot.yaml")
    robot = load_robot(tmp_path / "robot.yaml")
    assert robot.max_step["forearm_roll"] == robot.max_step["elbow_flex"] > 0
    low, high = robot.act.bounds
    assert (low[3], high[3]) == (-0.25, 0.75)


def test_two_arms_in_one_kinematic_model(tmp_path: Path) -> None:
    """The model's joint names differ from the dataset's, in the same order."""
    (tmp_path / "pair.xml").write_text(pair_of_arms(VIPERX), "utf-8")
    both = np.concatenate([walk(1).proprio, walk(2).proprio], axis=1)
    names = [f"{side}_{name}" for side in ("left", "right") for name in ALOHA]
    data = write(tmp_path / "aloha", [with_states(both)], names)
    tips = ("--tip", "left=left/tool", "--tip", "right=right/tool")
    said = call(data, "--model", tmp_path / "pair.xml", *tips, "--out", tmp_path / "robot.yaml")
    assert "Unsure: the model has other joint names" in said
    robot = load_robot(tmp_path / "robot.yaml")
    assert [f.name for f in robot.proprio][:2] == ["left.position", "left.rotation"]
    assert robot.body.size == 20
    space = JointSpace(robot)
    assert space.robot.body.size == 14
    assert space.robot.proprio[6].name == "left.gripper"
    assert [f.name for f in space.robot.proprio if f.kind == "joint"] == [
        n for n in names if "gripper" not in n
    ]
    assert space.chain.names[6] == "right/shoulder"
    assert space.robot.max_step["right_waist"] > 0


def test_two_gripper_columns_get_distinct_names(tmp_path: Path) -> None:
    states = np.concatenate([walk(1).proprio, walk(1).proprio[:, 6:]], axis=1)
    names = [*ARM[:6], "gripper_a", "gripper_b"]
    call(write(tmp_path / "arm", [with_states(states)], names), "--out", tmp_path / "robot.yaml")
    assert [name for name, *_ in features(tmp_path / "robot.yaml")][6:] == ["gripper", "gripper_2"]


def test_unseen_ranges_and_unused_columns_are_reported(tmp_path: Path) -> None:
    states = walk(1).proprio.copy()
    states[:, 6] = np.linspace(0.02, 0.08, len(states))
    data = write(tmp_path / "arm", [with_states(states)], motors())
    path = data / "data/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    speeds = pa.array(states[:, :2].tolist(), pa.list_(pa.float32(), 2))
    pq.write_table(table.append_column("observation.velocity", speeds), path)
    info = json.loads((data / "meta/info.json").read_text("utf-8"))
    names = [["pan.vel", "lift.vel"]]
    info["features"]["observation.velocity"] = {"dtype": "float32", "shape": [2], "names": names}
    (data / "meta/info.json").write_text(json.dumps(info), "utf-8")
    said = call(data, "--out", tmp_path / "robot.yaml")
    assert "Unsure: 'gripper' never left 0.02 to 0.08: set its limits to all it can do" in said
    wanted = "proprio=observation.state+observation.velocity"
    assert f"Unsure: 'observation.velocity' is not used: --map {wanted} adds it" in said
    said = call(data, "--map", wanted, "--out", tmp_path / "both.yaml")
    assert "is not used" not in said
    assert "of no known kind, taken as scalars: 'pan.vel', 'lift.vel'" in said
    assert len(features(tmp_path / "both.yaml")) == 9


def test_joints_of_another_arm_are_added_with_a_warning(tmp_path: Path) -> None:
    own = write(tmp_path / "own", [walk(1), walk(2)], motors())
    other = write(tmp_path / "other", [walk(3, embodiment="longer")], motors())
    call(own, "--out", tmp_path / "robot.yaml")
    warned = []
    for words in (
        ["create", tmp_path / "pool", "--robot", tmp_path / "robot.yaml"],
        ["add", tmp_path / "pool", own],
        ["add", tmp_path / "pool", other],
    ):
        found = CliRunner().invoke(pool_group, [*map(str, words)])
        assert found.exit_code == 0, found.output
        warned.append("Joints of different arms are compared ('arm' and 'longer')" in found.stderr)
    assert warned == [False, False, True]


def test_unnamed_tool_poses_are_not_mistaken_for_quaternions(tmp_path: Path) -> None:
    """In a nearly upright pose four of the numbers are close to a unit quaternion."""
    states = JointSpace(arm()).episode(walk(1)).proprio
    states[:, 3:9] = np.array([1, 0, 0, 0, 1, 0]) + np.linspace(0, 1e-4, 40)[:, None]
    call(write(tmp_path / "arm", [with_states(states)]), "--out", tmp_path / "robot.yaml")
    assert [kind for _, kind, *_ in features(tmp_path / "robot.yaml")] == [
        "position",
        "rotation6d",
        "gripper",
    ]


def test_a_retrieval_file_is_checked_and_used_in_the_next_commands(tmp_path: Path) -> None:
    images = {"top": [np.zeros((48, 64, 3), np.uint8)] * 40}
    sides = [
        write(tmp_path / name, [replace(walk(i), images=images) for i in seeds], motors())
        for name, seeds in (("own", (1, 2)), ("more", (3,)))
    ]
    file = tmp_path / "mine.yaml"
    file.write_text("cameras: [top]\n", "utf-8")
    out = tmp_path / "robot.yaml"
    said = call(sides[0], "--pool", sides[1], "--retrieval", file, "--out", out)
    assert f"Retrieval {file} compares: proprio, history, language, time, image/top" in said
    steps = said.partition("Next:")[2].splitlines()
    for command in ("recap check", "recap train"):
        assert any(command in step and f"--retrieval {file}" in step for step in steps)
    file.write_text("cameras: [wrist]\n", "utf-8")
    with pytest.raises(InputError, match="wrist"):
        call(sides[0], "--retrieval", file, "--out", tmp_path / "none.yaml")
    assert not (tmp_path / "none.yaml").exists()


def test_without_a_pool_the_next_commands_use_the_robots_own_dataset(
    tmp_path: Path,
) -> None:
    said = call(write(tmp_path / "arm", [walk(1), walk(2)], motors()), "--out", tmp_path / "robot.yaml")
    steps = said.partition("Next:")[2]
    assert "recap check pools/arm pools/arm\n" in steps
    assert (
        f"recap train {tmp_path / 'robot.yaml'} --target pools/arm --pool pools/arm --size small\n" in steps
    )


def test_datasets_without_robot_type_are_not_assumed_to_be_one_robot(tmp_path: Path) -> None:
    own, other = (
        write(tmp_path / name, [walk(seed, embodiment="") for seed in seeds], motors())
        for name, seeds in (("own", (1, 2)), ("other", (3, 4)))
    )
    said = call(own, "--pool", other, "--out", tmp_path / "robot.yaml")
    assert "Neither dataset names its robot (robot_type). If they are of two arms" in said
    assert "of the same robot" not in said.partition("Next:")[0].replace("pools of the same robot alone", "")
    for reverse in (False, True):  # reversed actions suggest the joints of another arm
        shown = [walk(seed, embodiment="") for seed in (1, 2, 3)]
        back = [replace(e, actions=-e.actions) for e in shown] if reverse else shown
        pool = write(tmp_path / f"pool-{reverse}", back, motors())
        told = CliRunner().invoke(check, [str(own), str(pool), "--horizons", "4", "--moments", "20"]).output
        assert ("Neither names its robot. Perhaps joints of different arms" in told) == reverse, told
        assert ("Next: recap init" in told and "--model FILE" in told) == reverse


def test_check_warns_when_joints_of_different_arms_are_compared(tmp_path: Path) -> None:
    def checked(pool: Path) -> str:
        words = [str(own), str(pool), "--horizons", "1,2", "--moments", "20"]
        return CliRunner().invoke(check, words).output

    own = write(tmp_path / "own", [walk(1), walk(2)], motors())
    other = write(tmp_path / "other", [walk(3, embodiment="other_arm")], motors())
    same = write(tmp_path / "same", [walk(3)], motors())
    assert "Joints of different arms are compared" in checked(other)
    assert "Verdict" in checked(same)
    assert "Joints of different arms" not in checked(same)
    renamed = write(tmp_path / "renamed", [walk(3)], [f"{name}.pos" for name in ALOHA])
    assert "Joints of different arms are compared" in checked(renamed)


def test_a_pool_stores_the_robot_description_without_local_paths(tmp_path: Path) -> None:
    here, moved = tmp_path / "here", tmp_path / "moved"
    here.mkdir()
    shutil.copy(EXAMPLES / "arm.urdf", here)
    data = write(here / "data", [walk(seed) for seed in range(3)], ARM)
    words = [data, "--model", here / "arm.urdf", "--tip", "tool", "--out", here / "robot.yaml"]
    assert CliRunner().invoke(init, [*map(str, words)]).exit_code == 0
    described = load_robot(here / "robot.yaml")
    for words in (["create", here / "pool", "--robot", here / "robot.yaml"], ["add", here / "pool", data]):
        found = CliRunner().invoke(pool_group, [*map(str, words)])
        assert found.exit_code == 0, found.output
    for file in (here / "pool").rglob("*"):
        assert file.is_dir() or str(tmp_path).encode() not in file.read_bytes(), file
    shutil.copytree(here / "pool", moved)
    shutil.rmtree(here)
    assert Pool.open(str(moved)).view().robot == described, "the description, with its kinematic model"


def test_an_exported_dataset_is_described_like_its_pool(tmp_path: Path) -> None:
    described = tmp_path / "robot.yaml"
    described.write_text(
        "name: arm\ncontrol_hz: 10\nproprio:\n"
        "  - {name: tool.position, kind: position, size: 3, unit: m}\n"
        "  - {name: tool.rotation, kind: rotation6d}\n"
        "  - {name: gripper, kind: gripper}\n"
        "action: {like: proprio, mode: absolute}\n",
        "utf-8",
    )
    rng = np.random.default_rng(0)
    states = np.concatenate([rng.uniform(0, 1, (20, 3)), np.tile([1, 0, 0, 0, 1, 0], (20, 1))], axis=1)
    states = np.concatenate([states, np.arange(20)[:, None] % 2], axis=1)
    dataset = write(tmp_path / "data", [with_states(states.astype(np.float32))])
    for words in (
        ("create", "pool", "--robot", described),
        ("add", "pool", dataset),
        ("export", "pool", "out"),
    ):
        verb, pool, *more = words
        arguments = [str(tmp_path / name) if name in ("pool", "out") else str(name) for name in (pool, *more)]
        done = CliRunner().invoke(pool_group, [verb, *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    call(tmp_path / "out", "--out", tmp_path / "again.yaml")
    found, wanted = load_robot(tmp_path / "again.yaml"), load_robot(described)
    assert [(f.name, f.kind, f.size) for f in found.proprio] == [
        (f.name, f.kind, f.size) for f in wanted.proprio
    ]

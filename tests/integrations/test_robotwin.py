"""RoboTwin's evaluation with our agent: its files, a pool, a policy folder, and a task with its interface."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from arms import arms_episode
from click.testing import CliRunner
from robotwin_task import Task, evaluate

import recap
import recap_robotwin
import recap_worlds.envs
from recap.assembly import AgentConfig
from recap.cli import main
from recap.errors import InputError, RunDirectoryError
from recap.geometry3 import decode_arms
from recap.pool.memory import MemoryPool
from recap.pool.robotwin_write import write_robotwin
from recap.pool.store import Pool
from recap.types import F32, F64, Episode
from recap_robotwin import deploy_policy
from recap_robotwin.cli import robotwin
from recap_robotwin.folder import init_folder
from recap_robotwin.pilot import Pilot, to_ee
from recap_robotwin.spec import PilotSpec, read_spec
from recap_worlds.dualarm.robotwin_tasks import pool_tasks

POT, BELL = "lift the pot with both arms", "click the bell on the table"
SOURCE = os.pathsep.join(
    str(Path(file).parents[1]) for file in (recap.__file__, recap_worlds.__file__, recap_robotwin.__file__)
)


def demonstrations() -> list[Episode]:
    """Two tasks from the same start; only the instruction distinguishes them."""
    pot = arms_episode("pot", 1, cameras=("head", "left_wrist"), task=POT)
    bell = arms_episode("bell", 2, cameras=("head", "left_wrist"), task=BELL, turn=-0.8)
    return [pot, bell]


def as_ee(arms: F32) -> F64:
    """Converts rows (t, 20) to RoboTwin's (t, 16)."""
    left, left_gripper, right, right_gripper = decode_arms(arms)
    return np.column_stack([left, left_gripper, right, right_gripper])


GOALS = {episode.task: as_ee(episode.proprio)[-1] for episode in demonstrations()}
START = as_ee(demonstrations()[0].proprio)[0]


def recap_cli(*words: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 0


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool made from RoboTwin's files by the user's commands."""
    root = tmp_path_factory.mktemp("robotwin")
    recap_cli("pool", "create", root / "pool")
    for episode, task in zip(demonstrations(), ("lift_pot", "click_bell"), strict=True):
        folder = write_robotwin([episode], root / "data", task, "ur5_clean")
        recap_cli("pool", "add", root / "pool", folder, "--image-size", 32)
    return root / "pool"


@pytest.fixture
def folder(tmp_path: Path, pool: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The policy folder of a checkout, imported by name as RoboTwin does."""
    init_folder(tmp_path / "policy/ReCAP", str(pool), None)
    monkeypatch.syspath_prepend(str(tmp_path / "policy"))
    yield importlib.import_module("ReCAP")
    for name in ("ReCAP", "ReCAP.deploy_policy"):
        sys.modules.pop(name, None)


def off_path(task: Task, demonstration: Episode) -> float:
    """The largest distance of the tools from the demonstrated path after the first chunk, in metres."""
    path = as_ee(demonstration.proprio)
    visited = np.array(task.visited)[16:]
    away = [np.linalg.norm(visited[:, None, i : i + 3] - path[None, :, i : i + 3], axis=2) for i in (0, 8)]
    return float(max(each.min(axis=1).max() for each in away))


@pytest.mark.parametrize("retrieval", [None, "blind"])
@pytest.mark.parametrize("words", [POT, BELL])
def test_replay_follows_the_demonstration_of_the_instruction(
    folder: ModuleType, pool: Path, words: str, retrieval: str | None
) -> None:
    model = folder.get_model({"pool": str(pool), "retrieval": retrieval, "task_name": "lift_pot", "seed": 0})
    task = Task(GOALS)
    success, n_calls = evaluate(task, folder, model, words, START)
    assert success
    demonstration = next(episode for episode in demonstrations() if episode.task == words)
    assert off_path(task, demonstration) < 1e-3
    assert task.take_action_cnt < len(demonstration) + 16
    assert n_calls == -(-task.take_action_cnt // 8), "each call executes a whole chunk"
    np.testing.assert_allclose(task.actions[-1][3:7], as_ee(demonstration.proprio)[-1][3:7], atol=0.02)


def test_a_model_runs_several_episodes(folder: ModuleType, pool: Path) -> None:
    model = folder.get_model({"pool": str(pool)})
    task = Task(GOALS)
    assert all(evaluate(task, folder, model, words, START, seed)[0] for seed, words in enumerate(GOALS))


def test_a_demonstration_added_during_a_run_is_used(tmp_path: Path) -> None:
    pot, bell = demonstrations()
    live = Pool.create(str(tmp_path / "pool"))
    live.add([bell])
    model = deploy_policy.get_model({"pool": str(tmp_path / "pool"), "retrieval": "blind"})
    task = Task(GOALS, step_lim=60)
    assert not evaluate(task, deploy_policy, model, POT, START)[0]
    live.add([pot])
    assert evaluate(task, deploy_policy, model, POT, START)[0]


def test_replay_continues_through_pauses_and_repeated_poses() -> None:
    """Neither a pause in the demonstration nor a return to its start stops replay."""
    out = arms_episode("out", 3, task=POT)
    wait, back = np.repeat(out.proprio[-1:], 30, axis=0), out.proprio[::-1]
    arms = np.concatenate([out.proprio, wait, back])
    arms[:, 9] = arms[:, 19] = 0.5
    there_and_back = replace(
        out,
        proprio=arms,
        actions=np.concatenate([arms[1:], arms[-1:]]),
        timestamps=np.arange(len(arms)) / 20,
        images={},
    )
    config = AgentConfig(retrieval="robotwin-blind", n_action_steps=8)
    pilot = Pilot(PilotSpec("memory", config), MemoryPool([there_and_back]))
    model = deploy_policy.Model(pilot, {})
    task = Task({POT: np.full(16, 9.0)}, step_lim=len(arms))
    assert not evaluate(task, deploy_policy, model, POT, as_ee(arms)[0])[0]
    visited, path = np.array(task.visited)[:, :3], as_ee(arms)[:, :3]
    farthest = np.linalg.norm(visited - path[0], axis=1).argmax()
    assert np.linalg.norm(visited[farthest] - path[45]) < 1e-3
    assert np.linalg.norm(visited[-1] - path[-1]) < 0.01, "the tool returned to the start"


def test_an_episode_ends_at_the_step_limit_or_success(folder: ModuleType, pool: Path) -> None:
    model = folder.get_model({"pool": str(pool)})
    task = Task(GOALS, step_lim=10)
    assert not evaluate(task, folder, model, POT, START)[0]
    assert task.take_action_cnt == len(task.actions) == 10
    task = Task({POT: START}, step_lim=400)
    task.setup_demo(START)
    task.set_instruction(POT)
    folder.reset_model(model)
    looks: list[int] = []
    get_obs = task.get_obs
    task.get_obs = lambda: looks.append(task.take_action_cnt) or get_obs()  # type: ignore[method-assign,func-returns-value]
    folder.eval(task, model, get_obs())
    assert task.eval_success
    assert len(looks) == task.take_action_cnt - 1, "it observes after every action except the last"


def test_a_trained_policy_runs_through_the_same_interface(
    folder: ModuleType, pool: Path, tmp_path: Path
) -> None:
    save_tiny_policy(tmp_path / "tiny")
    model = folder.get_model({"pool": str(pool), "policy": str(tmp_path / "tiny"), "denoising_steps": 1})
    assert model.agent.n_action_steps == 4
    assert model.agent.cameras == ("head_camera", "left_camera")
    task = Task(GOALS, step_lim=30)
    evaluate(task, folder, model, POT, START)
    assert len(task.actions) == 30
    assert off_path(task, demonstrations()[0]) < 0.05, "a residual of millimetres on the retrieved chunk"
    again = Task(GOALS, step_lim=30)
    evaluate(again, folder, model, POT, START)
    assert np.abs(np.array(again.actions) - np.array(task.actions)).max() > 1e-6, (
        "each episode has its own noise"
    )


def save_tiny_policy(out: Path) -> None:
    """Saves an untrained policy with random weights."""
    import torch

    from recap.policies.checkpoint import save_pretrained
    from recap.policies.config import ImageConfig, PolicyConfig
    from recap.policies.layout import build_layout
    from recap.policies.policy import RetrievalStamp, Statistics, TrainedPolicy
    from recap.policies.sizes import TINY
    from recap.policies.wam import WorldActionModel
    from recap.retrieval.presets import find_retrieval
    from recap_worlds.dualarm.robot import TWO_ARMS
    from toy_policy import toy_encoder

    image = ImageConfig(cameras=("head", "left_wrist"), camera_size=32, size=32, view="camera")
    config = PolicyConfig(TWO_ARMS, "robotwin-world", inputs="I", n_action_steps=4, image=image, network=TINY)
    describer, retrieval = find_retrieval("robotwin-world")
    metric = replace(retrieval, chunk_size=config.chunk_size).metric_fingerprint
    stamp = RetrievalStamp("robotwin-world", describer.fingerprint, metric, retrieval.scales)
    widths = {slot.name: slot.width for slot in build_layout(config).vectors}
    spread = {name: 1e-3 if name == "action" else 1.0 for name in widths}
    statistics = Statistics(
        {name: np.zeros(width, np.float32) for name, width in widths.items()},
        {name: np.full(width, spread[name], np.float32) for name, width in widths.items()},
    )
    torch.manual_seed(0)
    save_pretrained(TrainedPolicy(WorldActionModel(config), statistics, stamp, toy_encoder()), out)


def test_a_pilot_in_another_interpreter_acts_the_same(
    folder: ModuleType, pool: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    here, there = Task(GOALS), Task(GOALS)
    assert evaluate(here, folder, folder.get_model({"pool": str(pool)}), POT, START)[0]
    model = folder.get_model({"pool": str(pool), "python": sys.executable})
    assert evaluate(there, folder, model, POT, START)[0]
    np.testing.assert_array_equal(np.array(there.actions), np.array(here.actions))
    with pytest.raises(RuntimeError, match=r"recap: RoboTwin's observation has no 'endpose/left_endpose'"):
        evaluate(Task(GOALS, endpose=False), folder, model, POT, START)
    assert evaluate(there, folder, model, BELL, START)[0], "it still runs after an error"
    model.agent.close()
    with pytest.raises(RuntimeError, match="recap: no pool is set"):
        folder.get_model({"python": sys.executable})
    with pytest.raises(RuntimeError, match="cannot be started"):
        folder.get_model({"pool": str(pool), "python": "/no/such/python"})


def test_eval_sh_runs_in_a_checkout(tmp_path: Path, pool: Path) -> None:
    """From `recap robotwin init` to a result, by a script that loads policies like RoboTwin's."""
    checkout, tools = tmp_path / "RoboTwin", tmp_path / "bin"
    for place in (checkout / "script", checkout / "task_config", tools):
        place.mkdir(parents=True)
    (checkout / "script/eval_policy.py").write_text(
        Path(__file__).with_name("robotwin_evaluation.py").read_text("utf-8")
    )
    world = {"start": START.tolist(), "goals": {words: goal.tolist() for words, goal in GOALS.items()}}
    (checkout / "task_config/demo_clean.json").write_text(json.dumps(world))
    (tools / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tools / "python").chmod(0o755)
    made = CliRunner().invoke(robotwin, ["init", str(checkout / "policy/ReCAP"), "--pool", str(pool)])
    assert made.exit_code == 0, made.output
    assert "eval.sh" in made.output
    tests = Path(__file__).parent
    env = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([SOURCE, str(tests), str(tests.parent / "pool")]),
    }
    command = ["bash", str(checkout / "policy/ReCAP/eval.sh"), "lift_pot", "demo_clean", "recap", "0", "0"]
    done = subprocess.run(
        [*command, "--retrieval", "blind"], capture_output=True, text=True, env=env, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"task": "lift_pot", "successes": [True, True]}
    assert subprocess.run(command[:4], capture_output=True, cwd=tmp_path).returncode == 2


def test_the_copied_deploy_policy_is_unchanged_and_runs_on_python_3_8(tmp_path: Path) -> None:
    init_folder(tmp_path / "ReCAP")
    copied = (tmp_path / "ReCAP/deploy_policy.py").read_text("utf-8")
    assert copied == Path(deploy_policy.__file__).read_text("utf-8")
    tree = ast.parse(copied, feature_version=(3, 8))
    names = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    standard = {"__future__", "collections.abc", "typing", "io", "json", "subprocess"}
    assert names == standard | {"numpy"}


def test_init_never_overwrites_a_folder(tmp_path: Path) -> None:
    init_folder(tmp_path / "ReCAP")
    (tmp_path / "ReCAP/deploy_policy.yml").write_text("mine")
    with pytest.raises(RunDirectoryError, match="already"):
        init_folder(tmp_path / "ReCAP")
    assert (tmp_path / "ReCAP/deploy_policy.yml").read_text() == "mine"
    for name in ("my-policy", "recap"):
        with pytest.raises(RunDirectoryError, match="call it ReCAP"):
            init_folder(tmp_path / name)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "no pool is set"),
        ({"pool": "p", "n_action_step": 4}, "did you mean 'n_action_steps'"),
        ({"pool": "p", "n_action_steps": 0}, "n_action_steps 0"),
        ({"pool": "p", "n_action_steps": "many"}, "'n_action_steps' is 'many'"),
        ({"pool": "p", "n_action_steps": 2.5}, "'n_action_steps' is '2.5'"),
        ({"pool": "p", "min_confidence": 2}, "min_confidence 2"),
        ({"pool": "p", "reaction": "panic"}, "'reaction' is 'panic'"),
        ({"pool": "p", "policy": "no/such"}, "there is no policy no/such"),
        ({"pool": "pusht-9x100", "retrieval": "blend"}, "unknown retrieval 'blend'"),
        ({"pool": ["p"]}, "no pool"),
        ({"pool": "nowhere"}, "there is no pool 'nowhere'"),
        ({"pool": "pusht-9x100"}, "2-D actions"),
    ],
)
def test_a_wrong_setting_is_a_one_line_error(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Pilot.open(settings)
    assert "\n" not in str(caught.value)


def test_settings_that_only_robotwin_uses_are_ignored() -> None:
    theirs = {"task_name": "lift_pot", "ckpt_setting": "x", "left_arm_dim": 6, "instruction_type": "seen"}
    spec = read_spec({**theirs, "pool": "p", "seed": 3, "n_action_steps": "8", "retrieval": None})
    assert spec == PilotSpec("p", AgentConfig(retrieval="robotwin-world", n_action_steps=8, noise_seed=3))


def test_an_empty_pool_is_an_error(tmp_path: Path) -> None:
    Pool.create(str(tmp_path / "pool"))
    with pytest.raises(InputError, match="is empty"):
        Pilot.open({"pool": str(tmp_path / "pool")})


@pytest.mark.parametrize("name", ["dualarm-parts", "dualarm-world"])
def test_a_retrieval_that_follows_objects_is_an_error_without_objects(name: str) -> None:
    pilot = Pilot(PilotSpec("memory", AgentConfig(retrieval=name)), MemoryPool(demonstrations()))
    with pytest.raises(InputError, match=rf"'{name}' follows objects.* retrieval world or blind") as caught:
        evaluate(Task(GOALS), deploy_policy, deploy_policy.Model(pilot, {}), POT, START)
    assert "\n" not in str(caught.value)
    bare = MemoryPool([replace(episode, objects={}) for episode in demonstrations()])
    world = Pilot(PilotSpec("memory", AgentConfig(retrieval="dualarm-world")), bare)
    assert evaluate(Task(GOALS), deploy_policy, deploy_policy.Model(world, {}), BELL, START)[1] > 1


def test_object_poses_are_read_from_the_tasks_actors() -> None:
    task = Task(GOALS)
    task.setup_demo(START)
    np.testing.assert_array_equal(deploy_policy.pose_of(task, "pot")[3:], [1, 0, 0, 0])
    with pytest.raises(RuntimeError, match="no actor 'pan'"):
        deploy_policy.pose_of(task, "pan")
    assert deploy_policy.read_objects("can, pot=pot_actor") == {"can": "can", "pot": "pot_actor"}
    assert deploy_policy.read_objects({"can": "bottle"}) == {"can": "bottle"}
    assert deploy_policy.read_objects(None) == {}


def test_a_retrieval_for_push_t_is_refused() -> None:
    pilot = Pilot(PilotSpec("memory", AgentConfig(retrieval="pusht-object")), MemoryPool(demonstrations()))
    model = deploy_policy.Model(pilot, {"pot": "pot"})
    with pytest.raises(InputError, match="not meant for two arms"):
        evaluate(Task(GOALS), deploy_policy, model, POT, START)


def test_robotwin_observations_are_checked(pool: Path) -> None:
    pilot = Pilot.open({"pool": str(pool)})
    task = Task(GOALS)
    task.setup_demo(START)
    good = deploy_policy.flatten(task.get_obs(), pilot.cameras)
    seen = pilot.observe(good | {"instruction": np.asarray(POT), "objects/pot": task.now[:7]})
    assert seen.task == POT
    assert seen.images["head"].shape == (32, 32, 3), "resized to the demonstrations' images"
    np.testing.assert_allclose(as_ee(seen.proprio[None])[0], task.now, atol=1e-6)
    np.testing.assert_array_equal(seen.objects["pot"], task.now[:7])
    for change, words in (
        ({"endpose/left_gripper": np.asarray(np.nan)}, "not finite"),
        ({"endpose/left_endpose": np.zeros(7)}, "no pose of a tool"),
        ({"endpose/left_endpose": np.zeros(6)}, r"should be \(7,\)"),
        ({"observation/head_camera/rgb": np.zeros((4, 4))}, "should be uint8"),
        ({"objects/pot": np.ones(7)}, "is no pose"),
    ):
        with pytest.raises(InputError, match=words):
            pilot.observe(good | change)
    with pytest.raises(InputError, match="switch that camera"):
        pilot.observe({key: value for key, value in good.items() if "camera" not in key})


def test_an_action_has_a_wxyz_quaternion_with_the_nearer_sign() -> None:
    arms = demonstrations()[0].proprio
    now, action = arms[0].copy(), arms[20].copy()
    action[9], action[19] = 1.2, -0.1  # a residual may exceed the gripper's range
    sent = to_ee(action, now)
    np.testing.assert_allclose(sent[:7], as_ee(arms)[20, :7], atol=1e-6)
    np.testing.assert_array_equal(sent[[7, 15]], [1, 0])
    turned = now.copy()
    turned[3:9] = [-1, 0, 0, 0, -1, 0]  # half a turn about z: q and -q are equally far from w >= 0
    near = to_ee(turned, turned)
    np.testing.assert_allclose(np.abs(near[3:7]), [0, 0, 0, 1], atol=1e-6)
    with pytest.raises(InputError, match="no rotation"):
        to_ee(np.zeros(20), now)
    with pytest.raises(InputError, match="does not drive two arms"):
        to_ee(np.zeros(2), now)


def test_the_tasks_command_lists_the_tasks_of_a_level() -> None:
    shown = CliRunner().invoke(robotwin, ["tasks", "--level", "3"]).output
    assert shown.count("\n") == 18
    assert "handover_mic" in shown
    assert "click_bell" not in shown
    names = CliRunner().invoke(robotwin, ["tasks", "--level", "2", "--names"]).output.split()
    assert names == list(pool_tasks(2))

"""Custom environments: a factory or a Gymnasium id, and the mapping of their observations."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from recap.assembly import AgentConfig
from recap.errors import InputError
from recap.evaluation.agents import HoldAgent, make_agent
from recap.evaluation.film import record
from recap.evaluation.rollouts import run_trials
from recap.evaluation.run_directory import read_info
from recap.evaluation.runner import evaluate
from recap.evaluation.spec import EvalSpec
from recap.evaluation.summary import summarise
from recap.evaluation.worlds import EnvMap, GymSuite, find_suite, map_observation, read_map
from recap.pool.store import Pool
from recap.types import F64, Observation
from recap_worlds.pusht.suite import PushTSuite
from robots import joint_arm, one_arm
from robots.common import MAX_STEPS
from robots.recording import record_many

ONE_ARM, JOINT_ARM = "robots.one_arm:OneArmEnv", "robots.joint_arm:JointArmEnv"
HOLD = EvalSpec(AgentConfig("hold"), ONE_ARM, seeds=(0, 1, 2))


class Listener(HoldAgent):
    """A hold agent that records its observations."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        self.seen.extend(observations)
        return super().act(slots, observations)


def written(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    return str(path)


@pytest.fixture
def registered() -> Iterator[str]:
    """The one-arm environment under a Gymnasium id, with shorter episodes."""
    name = "recap-tests/OneArm-v0"
    gymnasium.register(name, ONE_ARM, max_episode_steps=25)
    yield name
    del gymnasium.registry[name]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Demonstrations of the task lift, from the starts of seeds 0 to 3."""
    path = tmp_path_factory.mktemp("pool") / "lifts"
    env = one_arm.OneArmEnv()
    Pool.create(path).add(record_many(env, one_arm.expert, ("lift",), range(4), "one-arm"))
    return str(path)


def test_a_factory_makes_an_env_with_one_default_task() -> None:
    assert (HOLD.tasks, HOLD.options, HOLD.thresholds) == (("default",), {}, (0.5,))
    assert EvalSpec.from_json(json.loads(json.dumps(HOLD.to_json()))) == HOLD
    agent = Listener()
    results = list(run_trials(agent, HOLD, HOLD.trials(), 2))
    assert [(r.task, r.outcome, r.steps) for r in results] == [("default", "failure", MAX_STEPS)] * 3
    assert all(r.error is None and r.metrics["distance"] > 0 for r in results), (
        "numbers of the info are metrics"
    )
    first = agent.seen[0]
    assert first.proprio.shape == (10,)
    assert {camera: picture.shape for camera, picture in first.images.items()} == {
        "front": (60, 80, 3),
        "wrist": (48, 96, 3),
    }
    assert first.task == one_arm.INSTRUCTIONS["lift"]
    assert agent.seen[4].time_s == pytest.approx(2 / 20), "two slots, twenty steps per second"


def test_replay_succeeds_in_a_custom_env(tmp_path: Path, pool: str) -> None:
    spec = EvalSpec(AgentConfig("replay"), ONE_ARM, seeds=(0, 1), pool=pool)
    summary = evaluate(spec, tmp_path / "one")
    assert summary.groups[-1].rates["0.5"].k == 2
    _, results = read_info(tmp_path / "one")
    assert [r.metrics["success"] for r in results] == [1.0, 1.0]
    evaluate(spec, tmp_path / "two", workers=2)
    infos = [(tmp_path / name / "eval_info.json").read_bytes() for name in ("one", "two")]
    assert infos[0] == infos[1], "every process makes its own env"
    assert [group.name for group in summary.groups] == ["all"], (
        "without training tasks there are no groups of seen tasks"
    )


def test_replay_succeeds_in_joint_space(tmp_path: Path) -> None:
    env = joint_arm.JointArmEnv()
    Pool.create(tmp_path / "pool").add(record_many(env, joint_arm.expert, ("reach",), range(3), "joint-arm"))
    spec = EvalSpec(AgentConfig("replay"), JOINT_ARM, seeds=(0, 1), pool=str(tmp_path / "pool"))
    results = list(run_trials(make_agent(spec), spec, spec.trials(), 2))
    assert [r.outcome for r in results] == ["success", "success"]


def test_replay_without_a_pool_is_an_error() -> None:
    with pytest.raises(InputError, match=r"has no pool of its own: give --pool"):
        make_agent(HOLD.with_agent(policy="replay"))


def test_a_missing_expert_or_pose_estimator_is_an_error() -> None:
    with pytest.raises(InputError, match="has no expert"):
        make_agent(HOLD.with_agent(policy="expert"))
    with pytest.raises(InputError, match="cannot find poses in pixels"):
        replace(HOLD, objects="pixels")


def test_a_gymnasium_id_with_an_observation_map(tmp_path: Path, registered: str) -> None:
    text = "state: state\nimages: {eye: images.wrist}\ntasks: [lift, press]\n"
    spec = EvalSpec(
        AgentConfig("hold"), registered, env_map=written(tmp_path / "map.yaml", text), seeds=(0, 1)
    )
    assert spec.tasks == ("lift", "press")
    assert EvalSpec.from_json(spec.to_json()) == spec
    agent = Listener()
    results = list(run_trials(agent, spec, spec.trials(), 1))
    assert [(r.task, r.outcome, r.error) for r in results] == [
        (task, "failure", None) for task in ("lift", "lift", "press", "press")
    ]
    assert [r.steps for r in results] == [25] * 4, "as registered, for every env"
    assert {seen.task for seen in agent.seen} == set(one_arm.INSTRUCTIONS.values())
    assert all(list(seen.images) == ["eye"] for seen in agent.seen)
    with pytest.raises(InputError, match="unknown task 'lft': did you mean 'lift'"):
        replace(spec, tasks=("lft",))


def test_the_episode_length_comes_from_the_map_the_registration_or_the_default(
    tmp_path: Path, registered: str
) -> None:
    short = written(tmp_path / "map.json", '{"max_steps": 7}')
    lengths = {
        7: EvalSpec(AgentConfig("hold"), registered, env_map=short),
        25: EvalSpec(AgentConfig("hold"), registered),
        1000: HOLD,
    }
    for length, spec in lengths.items():
        for _ in range(2):
            assert spec.steps_of("default") == length
            spec.suite.make(spec.options).close()  # type: ignore[attr-defined]
    assert replace(HOLD, max_steps=3).steps_of("default") == 3


def test_a_gymnasium_id_may_name_the_module_that_registers_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(
        tmp_path / "my_lab.py",
        f"import gymnasium\ngymnasium.register('MyArm-v3', '{ONE_ARM}', max_episode_steps=4)\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = EvalSpec(AgentConfig("hold"), "my_lab:MyArm-v3", seeds=(0, 1))
    assert [r.steps for r in run_trials(HoldAgent(), spec, spec.trials(), 1)] == [4, 4]


def test_a_factory_may_return_a_suite() -> None:
    spec = EvalSpec(
        AgentConfig("hold"), "recap_worlds.pusht.suite:PushTSuite", {"pusher": "triangle"}, tasks=("45",)
    )
    assert isinstance(getattr(spec.suite, "inner", None), PushTSuite)
    assert (spec.tasks, spec.options["block"]) == (("+45",), "tee")


def test_the_map_names_the_success_key(tmp_path: Path, registered: str) -> None:
    suite = find_suite(registered, written(tmp_path / "map.yaml", "success: distance\n"))
    world = suite.make({})
    assert world.reset(0, "default") == {"success": 0.0}
    metrics, ended = world.step(np.zeros(10))
    assert (metrics["success"], ended) == (1.0, False)
    blind = written(tmp_path / "blind.yaml", "success: nothing\n")
    metrics, _ = _one_step(find_suite(registered, blind))
    assert metrics["success"] == 0.0, "without the key, success is the end of an episode with a reward"


def _one_step(suite: Any) -> Any:
    world = suite.make({})
    world.reset(0, "default")
    return world.step(np.zeros(10))


def test_an_invalid_action_is_an_error_of_the_episode() -> None:
    class Short(HoldAgent):
        def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
            return np.zeros((len(slots), 3))

    results = list(run_trials(Short(), HOLD, HOLD.trials()[:2], 2))
    assert [r.outcome for r in results] == ["error", "error"]
    assert all("10 finite numbers" in str(r.error) for r in results)


def test_a_custom_env_is_recorded_as_video(tmp_path: Path) -> None:
    spec = replace(HOLD, max_steps=3, seeds=(0,))
    (result,) = run_trials(HoldAgent(), spec, spec.trials(), 1)
    (recording,) = record(spec, [result], tmp_path)
    assert not recording.differs
    assert recording.video is not None
    assert recording.video.stat().st_size > 500


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("maze", "unknown env 'maze'"),
        ("Maze-v0", "unknown env 'Maze-v0'"),
        ("no_such_module:Maze-v0", "env 'no_such_module:Maze-v0' could not be created"),
        ("no_such_module:make", "cannot import 'no_such_module' for env"),
        ("robots.one_arm:OneArmEnvv", "did you mean 'OneArmEnv'"),
        ("toy_agents:unmakable", r"env 'toy_agents:unmakable' could not be created \(TypeError"),
        ("builtins:dict", "env 'builtins:dict' is a dict without reset and step"),
    ],
)
def test_invalid_envs_are_errors(env: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        EvalSpec(AgentConfig("hold"), env)


def test_invalid_options_and_maps_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'speed'"):
        replace(HOLD, options={"speed": 2})
    file = written(tmp_path / "map.yaml", "state: state\n")
    with pytest.raises(InputError, match="env 'pusht' describes its own observations: leave --map out"):
        EvalSpec(AgentConfig("hold"), "pusht", env_map=file)
    with pytest.raises(InputError, match="'imges': did you mean 'images'"):
        read_map(Path(written(tmp_path / "wrong.yaml", "imges: {}\n")))
    with pytest.raises(InputError, match=r"wrong\.yaml cannot be read at 'tasks'"):
        read_map(Path(written(tmp_path / "wrong.yaml", "tasks: lift\n")))
    with pytest.raises(InputError, match=r"none\.yaml cannot be read"):
        EvalSpec(AgentConfig("hold"), ONE_ARM, env_map=str(tmp_path / "none.yaml"))
    with pytest.raises(InputError, match="without reset and step"):
        GymSuite("mine", object(), EnvMap())


FRONT = np.arange(60 * 80 * 3, dtype=np.uint8).reshape(60, 80, 3)
GYM = {"state": np.arange(4.0), "images": {"front": FRONT, "wrist": FRONT[:, ::-1]}}
LEROBOT = {
    "observation.state": torch.arange(4.0),
    "observation.images.front": torch.from_numpy(FRONT).permute(2, 0, 1) / 255,
    "task": "lift the red cube",
}


def test_map_observation_reads_a_gymnasium_dict() -> None:
    seen = map_observation(GYM, {"task": "lift"}, EnvMap(), 0.5)
    assert seen.proprio.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert seen.proprio.dtype == np.float32
    assert (seen.task, seen.time_s, seen.goal, dict(seen.objects)) == ("lift", 0.5, None, {})
    assert list(seen.images) == ["front", "wrist"]
    assert np.array_equal(seen.images["front"], FRONT)


def test_map_observation_reads_a_lerobot_dict() -> None:
    seen = map_observation(LEROBOT, {}, EnvMap(), 0.0)
    assert seen.proprio.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert seen.task == "lift the red cube"
    assert list(seen.images) == ["front"]
    assert seen.images["front"].dtype == np.uint8
    assert np.array_equal(seen.images["front"], FRONT), "bitwise equal, with height and width in order"
    assert seen.images["front"].flags.c_contiguous


def test_an_array_is_the_state() -> None:
    seen = map_observation(np.array([[1, 2]], np.int64), {}, EnvMap(), 0.0)
    assert seen.proprio.tolist() == [1.0, 2.0]
    assert seen.task == ""


def test_a_map_reads_objects_goal_and_task_from_observation_or_info() -> None:
    mapping = EnvMap(
        state="robot.q",
        images={"eye": "robot.camera"},
        objects={"cube": "scene.cube", "lid": "lid_pose"},
        goal="scene.goal",
        task="words",
    )
    nested = {
        "robot": {"q": [1.0, 2.0], "camera": FRONT},
        "scene": {"cube": np.zeros(7), "goal": [1, 2, 3]},
    }
    seen = map_observation(nested, {"lid_pose": np.ones(7), "words": "close it"}, mapping, 0.0)
    assert seen.proprio.tolist() == [1.0, 2.0]
    assert list(seen.images) == ["eye"]
    assert {name: pose.shape for name, pose in seen.objects.items()} == {"cube": (7,), "lid": (7,)}
    assert seen.goal is not None
    assert seen.goal.tolist() == [1.0, 2.0, 3.0]
    assert seen.task == "close it"


@pytest.mark.parametrize(
    ("seen", "mapping", "message"),
    [
        ({"q": np.zeros(2)}, EnvMap(), "no state 'state': it has q; give --map"),
        ({}, EnvMap(), "no state 'state': it has nothing"),
        (GYM, EnvMap(state="qpos"), "no state 'qpos': it has state, images.front, images.wrist"),
        (GYM, EnvMap(images={"eye": "images.eye"}), r"no image 'images\.eye': it has .*images\.wrist"),
        (GYM, EnvMap(images={"eye": "state"}), r"image 'state' has shape \(4,\)"),
        (GYM, EnvMap(objects={"cube": "cube_pose"}), "no 'cube_pose'"),
        (GYM, EnvMap(goal="goal_pose"), "no 'goal_pose'"),
        (
            {"state": [0.0], "left": {"rgb": FRONT}, "right": {"rgb": FRONT}},
            EnvMap(),
            r"images 'left\.rgb' and 'right\.rgb' are both 'rgb'",
        ),
        (
            {"state": [0.0], "eye": FRONT.astype(np.float32)},
            EnvMap(),
            "image 'eye' has fractions outside 0 to 1",
        ),
        ({"state": [0.0], "eye": np.full((2, 2, 3), np.nan)}, EnvMap(), "image 'eye' has fractions"),
    ],
)
def test_missing_or_unreadable_keys_are_errors_that_name_the_key(
    seen: Any, mapping: EnvMap, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        map_observation(seen, {}, mapping, 0.0)


def test_a_missing_key_is_an_error_of_every_episode(tmp_path: Path) -> None:
    file = written(tmp_path / "map.yaml", "state: qpos\n")
    spec = replace(HOLD, env_map=file, seeds=(0, 1))
    results = list(run_trials(HoldAgent(), spec, spec.trials(), 2))
    assert [r.outcome for r in results] == ["error", "error"]
    assert all("no state 'qpos'" in str(r.error) for r in results)


def test_reading_a_finished_run_makes_no_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "my_env.py", "from robots.one_arm import OneArmEnv as make\n")
    monkeypatch.syspath_prepend(tmp_path)
    spec = EvalSpec(AgentConfig("hold"), "my_env:make", seeds=(0,), max_steps=2)
    evaluate(spec, tmp_path / "run")
    find_suite.cache_clear()
    (tmp_path / "my_env.py").unlink()
    monkeypatch.delitem(sys.modules, "my_env")
    again, (result,) = read_info(tmp_path / "run")
    assert (again, result.steps) == (spec, 2)
    assert summarise(again, [result]).tasks[0].rates["0.5"].n == 1
    assert "my_env" not in sys.modules
    with pytest.raises(InputError, match="cannot import 'my_env' for env 'my_env:make'"):
        evaluate(again, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_spec_from_json_is_checked_before_it_is_run(tmp_path: Path) -> None:
    values = {**HOLD.to_json(), "options": {"speed": 2}, "tasks": ["default"]}
    find_suite.cache_clear()
    spec = EvalSpec.from_json(values)
    with pytest.raises(InputError, match="'speed'"):
        evaluate(spec, tmp_path / "run")
    assert not (tmp_path / "run").exists()

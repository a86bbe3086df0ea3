"""Robots with delta actions or with actions unlike their proprioception: trained and executed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import tracking
from accelerate.utils import LoggerType

from recap.agent import RetrievalAgent
from recap.body import Feature
from recap.errors import InputError
from recap.policies.canonical import canonical_image
from recap.policies.checkpoint import from_pretrained
from recap.policies.vectors import numbers_of, spans, vectors_of
from recap.pool.memory import MemoryPool, MemoryView
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.retriever import Retriever
from recap.robot import CameraSpec, ObjectSpec, RobotSpec
from recap.training.batches import NO_AUGMENT, BatchSource
from recap.training.config import TrainConfig
from recap.training.data import TrainingData, build_data, split, training_retrieval
from recap.training.presets import preset
from recap.training.trainer import train
from recap.types import Episode, FrameRef, Observation

ARM, HAND = Feature("tool", "position", 3), Feature("hand", "gripper")
CUBE = {"cube": ObjectSpec("pose3")}
ROBOTS = {
    "the other way round": RobotSpec("a", 10.0, (ARM, HAND), (HAND, ARM), objects=CUBE),
    "more actions than measured": RobotSpec("b", 10.0, (ARM,), (ARM, HAND), objects=CUBE),
    "changes": RobotSpec("c", 10.0, (ARM, HAND), (ARM, HAND), "delta", objects=CUBE),
    "measured otherwise": RobotSpec("d", 10.0, (Feature("q", "joint", 4),), (ARM, HAND), objects=CUBE),
}
N = 14


def demonstration(robot: RobotSpec, seed: int) -> Episode:
    """A tool that moves to the cube and closes its gripper."""
    rng = np.random.default_rng(seed)
    cube = rng.uniform([-0.2, 0.2, 0.0], [0.2, 0.5, 0.1])
    tool = np.linspace(rng.uniform([-0.1, -0.1, 0.2], [0.1, 0.1, 0.4]), cube, N + 1)
    hand = np.linspace(1, 0, N + 1)[:, None]
    known = {"tool": tool, "hand": hand, "q": rng.normal(size=(1, 4)) + np.hstack([tool, hand])}
    here = np.hstack([known[f.name][:-1] for f in robot.proprio])
    after = np.hstack([known[f.name][1:] for f in robot.action])
    before = np.hstack([known[f.name][:-1] for f in robot.action])
    return Episode(
        id=f"{robot.name}-{seed}",
        scene_id=f"scene-{seed}",
        task="take the cube",
        embodiment=robot.name,
        fps=10.0,
        timestamps=np.arange(N) / 10,
        proprio=here.astype(np.float32),
        actions=(after - before if robot.action_mode == "delta" else after).astype(np.float32),
        objects={"cube": np.tile([*cube, 1, 0, 0, 0], (N, 1)).astype(np.float32)},
    )


def recipe(robot: RobotSpec, *changes: str) -> TrainConfig:
    usual = ("n_iterations=2", "validate_every=2", "save_every=2", "pairs.leave_out=false", "held_out=0.2")
    return preset("debug", [*usual, *changes], robot)


def built(config: TrainConfig) -> TrainingData:
    robot = config.policy.robot
    target, pool = ([demonstration(robot, s) for s in seeds] for seeds in (range(6), range(10, 16)))
    return build_data(target, pool, config)


@pytest.fixture(params=ROBOTS)
def robot(request: pytest.FixtureRequest) -> RobotSpec:
    return ROBOTS[request.param]


def test_without_matches_the_residual_is_relative_to_holding_still(robot: RobotSpec) -> None:
    config = recipe(robot)
    demo = demonstration(robot, 0)
    retrieval = replace(training_retrieval(config, [])[1], chunk_size=config.policy.chunk_size)
    empty = build_conditioning(MemoryView([]), [], demo, 3, retrieval, robot)
    found = vectors_of(empty, config.policy)
    np.testing.assert_allclose(found.base, np.tile(robot.hold(demo.proprio[3]), (8, 1)), atol=1e-6)
    data = built(config)
    source = BatchSource(data.train, torch.zeros(0), data.statistics, config.policy, torch.device("cpu"))
    augment = replace(NO_AUGMENT, retrieval_dropout=1.0)
    batch = source.take(torch.arange(len(source)), augment, torch.Generator().manual_seed(0))
    action = batch.values["action"] * source._std["action"] + source._mean["action"]
    here = robot.hold(data.train.fixed["proprio"][:, : robot.body.size])
    np.testing.assert_allclose(action.numpy(), data.train.actions - np.tile(here, 8), atol=1e-5)


def test_retrieved_actions_are_relative_to_the_measured_tool(robot: RobotSpec) -> None:
    """Delta actions stay as they are; positions are relative to the tool's current position."""
    policy = recipe(robot).policy
    demo = demonstration(robot, 0)
    retrieval = replace(training_retrieval(recipe(robot), [])[1], chunk_size=policy.chunk_size)
    given = build_conditioning(MemoryView([demo]), [FrameRef(demo.id, 2)], demo, 2, retrieval, robot)
    found = vectors_of(given, policy)
    column = robot.act.columns("tool").start
    steps = found.vectors["retrieved_action"][: 8 * 4].reshape(8, 4)[:, column : column + 3]
    tool = demo.actions[2:10, column : column + 3]
    measured = robot.hold(demo.proprio[2])[column : column + 3]
    np.testing.assert_allclose(steps, tool - measured, atol=1e-6)
    (tool_steps,) = (p for p, at in spans(numbers_of(policy)["retrieved_action"]) if at.start == column)
    assert (tool_steps.kind, tool_steps.size) == ("position", 3)
    assert tool_steps.relative == (robot.name != "d"), "a position that is not measured stays absolute"


def test_augment_shift_moves_only_absolute_positions(robot: RobotSpec) -> None:
    """The whole scene is shifted: absolute positions move, delta actions and relative positions do not."""
    config = recipe(robot)
    data = built(config)
    source = BatchSource(data.train, torch.zeros(0), data.statistics, config.policy, torch.device("cpu"))
    column = robot.act.columns("tool").start
    name = "retrieved_action"

    def chunk(shift: float) -> np.ndarray:
        augment = replace(NO_AUGMENT, shift=shift, image_dropout=1.0)
        batch = source.take(torch.arange(len(source)), augment, torch.Generator().manual_seed(0))
        values = batch.values[name] * source._std[name] + source._mean[name]
        return np.asarray(values[:, column])

    moved = np.abs(chunk(0.1) - chunk(0.0)).max()
    assert (moved > 0.01) == (robot.name == "d")


def test_a_policy_is_trained_saved_and_acts(robot: RobotSpec, tmp_path: Path) -> None:
    config = recipe(robot)
    outcome = train(config, tmp_path / "run", data=built(config), device="cpu")
    policy = from_pretrained(outcome.last)
    assert policy.config.robot == robot
    pool = [demonstration(robot, s) for s in range(10, 16)]
    describer, retrieval = training_retrieval(config, pool)
    assert retrieval.scales == policy.stamp.scales
    agent = RetrievalAgent(Retriever(MemoryPool(pool), describer, retrieval), policy)
    agent.reset(0, None)
    demo = demonstration(robot, 0)
    seen = Observation(
        demo.proprio[0], demo.task, 0.0, objects={"cube": demo.objects["cube"][0].astype(np.float64)}
    )
    action = agent.act([0], [seen])
    assert action.shape == (1, robot.act.size)
    assert np.isfinite(action).all()


def test_augment_turn_needs_absolute_actions_in_the_world_frame() -> None:
    plane = RobotSpec("plane", 10.0, (Feature("tool", "position", 2),), objects={"cube": ObjectSpec("pose2")})
    assert preset("debug", ["augment.turn=30", "policy.relative=false"], plane).augment.turn == 30
    for robot, changes in ((plane, ()), (replace(plane, action_mode="delta"), ("policy.relative=false",))):
        with pytest.raises(InputError, match=r"augment\.turn=0"):
            preset("debug", ["augment.turn=30", *changes], robot)


def test_init_from_copies_the_tensors_of_another_robots_policy_that_fit(tmp_path: Path) -> None:
    first, other = recipe(ROBOTS["changes"]), recipe(ROBOTS["measured otherwise"])
    train(first, tmp_path / "first", data=built(first), device="cpu")
    told: list[str] = []
    still = ("learning_rate=1e-12", "n_iterations=1", f"init_from={tmp_path / 'first/last'}")
    config = recipe(other.policy.robot, *still)
    train(config, tmp_path / "second", data=built(config), device="cpu", notify=told.append)
    source, found = (from_pretrained(tmp_path / name / "last") for name in ("first", "second"))
    theirs, ours = source.model.state_dict(), found.model.state_dict()
    fitting = [name for name in theirs if name in ours and theirs[name].shape == ours[name].shape]
    assert f"Begun from {tmp_path / 'first/last'}: {len(fitting)} of {len(ours)} tensors" in told[0]
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in fitting)
    assert found.statistics.mean["proprio"].shape != source.statistics.mean["proprio"].shape
    wide = recipe(other.policy.robot, *still, "policy.network.attention_head_dim=24")
    with pytest.raises(InputError, match="fits this network"):
        train(wide, tmp_path / "third", data=built(wide), device="cpu")
    assert not (tmp_path / "third").exists()


def test_each_camera_has_its_own_size_and_fit_in_training_as_on_a_robot() -> None:
    cameras = {"wide": CameraSpec((24, 40), "letterbox"), "tall": CameraSpec((48, 32), "crop")}
    robot = replace(ROBOTS["changes"], cameras=cameras)
    dice = np.random.default_rng(0)

    def filmed(seed: int) -> Episode:
        films = {n: dice.integers(0, 255, (N, *c.size, 3), np.uint8) for n, c in cameras.items()}
        return replace(demonstration(robot, seed), images=films)

    target, pool = ([filmed(s) for s in seeds] for seeds in (range(6), range(10, 16)))
    config = recipe(robot)
    data = build_data(target, pool, config)
    train_side, _ = split(target, config.held_out)
    for name, camera in cameras.items():
        for t in (0, 5):
            shown = train_side[0].images[name][t]
            wanted = canonical_image(shown, np.zeros(3), config.policy.image, False, camera.fit)
            assert np.array_equal(data.pictures[data.train.images[f"frame/{name}"][t]], wanted)
            squeezed = canonical_image(shown, np.zeros(3), config.policy.image, False, "resize")
            assert not np.array_equal(wanted, squeezed)


WANDB = """
import json, os
from types import SimpleNamespace
def _note(*what):
    with open(os.environ["NOTED"], "a") as file:
        file.write(json.dumps(what) + "\\n")
class Run:
    def log(self, values, step=None, **_): _note("log", values, step)
    def finish(self): _note("finish")
def init(**given):
    _note("init", given)
    return Run()
"""


def test_metrics_go_to_wandb_by_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """wandb is replaced by a module that records its calls."""
    package = tmp_path / "site"
    package.mkdir()
    (package / "wandb.py").write_text(WANDB, "utf-8")
    monkeypatch.setenv("NOTED", str(tmp_path / "noted.jsonl"))
    config = recipe(ROBOTS["changes"])
    with pytest.raises(InputError, match="wandb is not installed"):
        train(config, tmp_path / "none", data=built(config), device="cpu", log="wandb")
    assert not (tmp_path / "none").exists()
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.setattr(tracking, "_available_trackers", [LoggerType.WANDB])  # trackers are found at import
    train(config, tmp_path / "run", data=built(config), device="cpu", log="wandb")
    noted = [json.loads(line) for line in (tmp_path / "noted.jsonl").read_text("utf-8").splitlines()]
    (_, given), *logged, last = noted
    assert (given["project"], given["name"], given["resume"]) == ("recap", "run", "allow")
    assert given["config"]["policy"]["robot"]["name"] == "c"
    assert [what for what, *_ in logged] == ["log"] * len(logged)
    assert {step for *_, step in logged} == {2}
    assert {"loss/action", "held_out/action"} <= {name for _, values, _ in logged for name in values}
    assert last == ["finish"]
    assert not (tmp_path / "run/tensorboard").exists()


def test_nearly_constant_values_use_the_minimum_deviation_of_their_kind() -> None:
    robot = ROBOTS["the other way round"]
    still = [replace(e, proprio=e.proprio[:1].repeat(N, 0)) for e in [demonstration(robot, 0)] * 6]
    named = [
        replace(e, id=f"{e.id}{i}", scene_id=str(i), actions=e.actions[:1].repeat(N, 0))
        for i, e in enumerate(still)
    ]
    config = recipe(robot)
    std = build_data(named[:5], named[:1] + named[5:], config).statistics.std
    np.testing.assert_allclose(std["proprio"][:4], [0.05, 0.05, 0.05, 0.2], rtol=1e-6)
    hand, *tool = std["retrieved_action"][:4]
    np.testing.assert_allclose([hand, *tool], [0.2, 0.02, 0.02, 0.02], rtol=1e-6)
    np.testing.assert_allclose(std["action"][:4], [0.02, 0.002, 0.002, 0.002], rtol=1e-6)

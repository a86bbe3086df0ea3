from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import toy_agents

from recap.errors import InputError
from recap.evaluation.agents import HoldAgent, PerEpisode, PoseNoise, Trial, make_agent
from recap.evaluation.rollouts import run_trials
from recap.types import F64, Observation
from recap_worlds.dualarm.env import DualArmEnv
from recap_worlds.pusht.env import PushTEnv
from specs import arms_spec, pusht_spec

SPEC = pusht_spec("hold", angles=(0.0,), seeds=(500, 501))


def test_hold_agent_returns_the_current_position() -> None:
    observation = Observation(np.array([3, 4], np.float32), "task", 0.0)
    assert HoldAgent().act([5], [observation]).tolist() == [[3.0, 4.0]]
    results = list(run_trials(make_agent(SPEC), SPEC, SPEC.trials(), 2))
    assert [r.outcome for r in results] == ["failure", "failure"]


def test_per_episode_uses_one_agent_per_slot() -> None:
    agent = PerEpisode(lambda: toy_agents.Wanderer(SPEC))
    for slot, seed in ((0, 500), (3, 501)):
        agent.reset(slot, Trial("0", seed))
    observation = Observation(np.zeros(2, np.float32), "task", 0.0, objects={"block": np.array([1.0, 2, 3])})
    both = agent.act([3, 0], [observation, observation])
    alone = toy_agents.Wanderer(SPEC)
    for row, seed in ((0, 501), (1, 500)):
        alone.reset(seed)
        assert both[row].tolist() == alone.act(observation).tolist()


def test_factories_of_single_and_batched_agents_are_found() -> None:
    assert isinstance(make_agent(pusht_spec("toy_agents:Wanderer")), PerEpisode)
    assert isinstance(make_agent(pusht_spec("toy_agents:Batched")), toy_agents.Batched)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "exprt",
            r"unknown agent 'exprt': did you mean 'expert'\? \(a policy is named by its path",
        ),
        ("no_such_module:make", "cannot import 'no_such_module' for agent .*ModuleNotFoundError"),
        ("toy_agents:Wander", "no function 'Wander' in toy_agents: did you mean 'Wanderer'?"),
        ("toy_agents:unmakable", r"could not be created \(OSError: no weights here\)"),
        ("toy_agents:refused", "^this toy has no weights: train it first$"),
        ("toy_agents:not_an_agent", "is a int without reset and act"),
        (":", "cannot import ''"),
    ],
)
def test_unknown_and_broken_agents_are_errors(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_agent(SPEC.with_agent(policy=name))


def test_the_kind_of_an_agent_is_detected_from_the_required_arguments_of_act() -> None:
    from recap.evaluation.agents import _n_required

    class Single:
        def act(self, observation: object, deterministic: bool = True, **extra: object) -> None: ...

    class Batched:
        def act(self, slots: object, observations: object, *rest: object) -> None: ...

    assert _n_required(Single().act) == 1
    assert _n_required(Batched().act) == 2


class Listener(HoldAgent):
    """A hold agent that records its observations."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        self.seen.extend(observations)
        return super().act(slots, observations)


def test_pose_noise_affects_only_the_object_and_depends_on_the_seed() -> None:
    listener = Listener()
    board = PushTEnv("triangle")
    board.reset(seed=500)
    seen = board.observe()
    for _ in range(2):
        agent = PoseNoise(listener, 4.0, 2.0)
        agent.reset(0, Trial("+45", 500))
        for _ in range(300):
            agent.act([0], [seen])
    off = np.array([o.objects["block"] - seen.objects["block"] for o in listener.seen])
    assert np.array_equal(off[:300], off[300:])
    assert off[:300, :2].std() == pytest.approx(4.0, rel=0.15)
    assert np.degrees(off[:300, 2].std()) == pytest.approx(2.0, rel=0.15)
    assert all(o.goal is seen.goal and o.proprio is seen.proprio for o in listener.seen)


def test_pose_noise_of_two_arms_affects_each_objects_position_and_rotation() -> None:
    table = DualArmEnv("move_can_pot", image_size=0)
    table.reset(seed=500)
    seen = table.observe(0)
    agent = make_agent(arms_spec("hold", pose_noise=(0.005, 2.0)))
    assert isinstance(agent, PoseNoise)
    listener = agent.agent = Listener()
    agent.reset(0, Trial("move_can_pot", 500))
    for _ in range(300):
        agent.act([0], [seen])
    off = {}
    for name, pose in seen.objects.items():
        poses = np.array([o.objects[name] for o in listener.seen])
        off[name] = poses[:, :3] - pose[:3]
        assert 1000 * off[name].std() == pytest.approx(5.0, rel=0.15)
        cosines = np.clip(np.abs(poses[:, 3:] @ pose[3:]), 0, 1)
        turned = 2 * np.degrees(np.arccos(cosines))
        assert np.sqrt(np.square(turned).mean() / 3) == pytest.approx(2.0, rel=0.15), "about each axis"
    can, pot = off.values()
    assert abs(np.corrcoef(can.ravel(), pot.ravel())[0, 1]) < 0.15, "the noise of the objects is independent"
    table.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"pose_noise": (-1.0, 0.0)},
        {"pose_noise": (0.0, 1.0), "objects": "pixels"},
        {"pose_noise": (0.0, np.nan)},
    ],
)
def test_invalid_pose_noise_is_an_error(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="noise"):
        pusht_spec(**changes)


def test_poses_from_pixels_in_a_world_without_an_estimator_are_an_error() -> None:
    with pytest.raises(InputError, match="env 'dualarm' cannot find poses in pixels"):
        arms_spec(objects="pixels")

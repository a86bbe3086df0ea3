"""The progress gate: tolerances by feature kind, and its use in the agent."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from episodes import observation_of, random_episode
from recap.assembly import AgentConfig, assemble_agent
from recap.body import Feature, arm_features
from recap.errors import InputError
from recap.evaluation.agents import Trial
from recap.gate import gate_of
from recap.pool.memory import MemoryPool
from recap.robot import RobotSpec
from recap.types import F64
from recap_worlds.pusht.robot import PUSHT

ARM = RobotSpec("arm", 20.0, arm_features("tool"))
JOINTS = RobotSpec(
    "joints",
    30.0,
    (Feature("lift", "joint", 5, "deg"), Feature("rail", "joint", 1, "m"), Feature("g", "gripper")),
)
EPISODES = [random_episode(f"demo-{i}", i) for i in range(6)]


def rollout(pace: float, n: int = 40, **config: object) -> tuple[list[F64], list[F64], int]:
    """Runs a robot that covers a share of its way each step; returns actions sent, states, held steps."""
    asked = replace(AgentConfig(retrieval="pusht-object"), **config)  # type: ignore[arg-type]
    agent = assemble_agent(asked, MemoryPool(EPISODES), robot=PUSHT)
    agent.reset(0, Trial("0", 700))
    seen = observation_of(EPISODES[2], 4)
    sent: list[F64] = []
    states = [seen.proprio.astype(np.float64)]
    for _ in range(n):
        now = replace(seen, proprio=states[-1].astype(np.float32))
        sent.append(agent.act([0], [now])[0])
        states.append(states[-1] + pace * (sent[-1] - states[-1]))
    return sent, states, agent.n_held(0)


@settings(deadline=None, max_examples=8)
@given(st.floats(0.05, 1), st.integers(0, 6), st.sampled_from([2.0, 5.0, 20.0]))
def test_the_agent_sends_the_next_action_once_the_last_was_reached(
    pace: float, patience: int, within: float
) -> None:
    sent, states, held = rollout(pace, gate=True, gate_patience=patience, gate_tolerance={"position": within})
    begins = [k for k in range(40) if k == 0 or not np.array_equal(sent[k], sent[k - 1])]
    assert held == 40 - len(begins)
    for begin, end in itertools.pairwise(begins):
        near = [np.linalg.norm(states[k] - sent[begin]) <= within + 1e-4 for k in range(begin + 1, end + 1)]
        assert near[-1] or end - begin == patience + 1
        assert not any(near[:-1])


def test_the_gate_changes_nothing_without_patience_or_with_exact_tracking() -> None:
    assert np.array_equal(rollout(0.4)[0], rollout(0.4, gate=True, gate_patience=0)[0])
    assert np.array_equal(rollout(1.0)[0], rollout(1.0, gate=True)[0])
    assert not np.array_equal(rollout(0.4)[0], rollout(0.4, gate=True)[0])


def test_after_a_pool_change_or_a_takeover_the_old_action_is_not_waited_for() -> None:
    pool = MemoryPool(EPISODES[:4])
    agent = assemble_agent(AgentConfig(retrieval="pusht-object", gate=True), pool, robot=PUSHT)
    agent.reset(0, Trial("0", 700))
    far = replace(observation_of(EPISODES[2], 0), proprio=np.zeros(2, np.float32))
    first = agent.act([0], [far])[0]
    assert np.array_equal(agent.act([0], [far])[0], first)
    pool.add(EPISODES[5])
    assert not np.array_equal(agent.act([0], [observation_of(EPISODES[5], 3)])[0], first)
    agent.watch(0, far)
    plan = agent.plan(0)
    agent.act([0], [far])
    assert agent.plan(0) is not plan, "it retrieves again"
    assert agent.n_held(0) == 1


def test_default_tolerances_follow_feature_kinds_and_units() -> None:
    assert gate_of(ARM).parts == (("position", 0, 3, 0.005), ("rotation6d", 3, 9, 0.06))
    assert gate_of(JOINTS).parts == (("joint", 0, 5, 1.7), ("joint", 5, 6, 0.005))
    assert gate_of(PUSHT).parts == (("position", 0, 2, 5.0),)
    assert gate_of(PUSHT).patience == 6


def test_the_description_and_the_agent_config_override_tolerances() -> None:
    described = replace(ARM, gate_tolerance={"tool.position": 0.02})
    assert gate_of(described).parts[0][3] == 0.02
    own = gate_of(described, {"tool.position": 0.01, "tool.gripper": 0.1}, 2)
    assert own.parts == (("position", 0, 3, 0.01), ("rotation6d", 3, 9, 0.06), ("gripper", 9, 10, 0.1))
    assert own.patience == 2


POINT = (Feature("position", "position", 2, "px"),)


@pytest.mark.parametrize(
    ("robot", "tolerance", "code"),
    [
        (replace(PUSHT, action_mode="delta"), {}, "gate.delta"),
        (RobotSpec("r", 10.0, (Feature("state", "scalar", 7),)), {}, "gate.nothing"),
        (RobotSpec("r", 10.0, POINT, (*POINT, Feature("v", "scalar"))), {"v": 1.0}, "gate.nothing"),
        (RobotSpec("r", 10.0, (Feature("other", "position", 2, "px"),), POINT), {}, "gate.nothing"),
        (ARM, {"tool.place": 0.1}, "input.unknown"),
        (ARM, {"tool.position": 0.0}, "input"),
    ],
)
def test_robots_and_tolerances_that_cannot_be_gated_are_refused(
    robot: RobotSpec, tolerance: dict[str, float], code: str
) -> None:
    with pytest.raises(InputError) as caught:
        gate_of(robot, tolerance)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)

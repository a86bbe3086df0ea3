"""The gate: a chunk advances when the robot has reached the action or patience ends, and only then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.geometry3 import matrix_to_rotation6
from recap.types import F64
from recap_client.errors import InputError
from recap_client.gate import Gate, Progress

TOOL = Gate((("position", 0, 3, 0.005), ("rotation6d", 3, 9, 0.06)), tuple(range(10)), 6)
FLAT = Gate((("position", 0, 2, 5.0),), (0, 1), 6)
paces = st.lists(st.floats(0, 1), min_size=1, max_size=40)
seeds = st.integers(0, 2**32 - 1)


def turn(axis: F64, angle: float) -> F64:
    """A rotation matrix (3, 3) from an axis of any length and an angle."""
    x, y, z = axis / np.linalg.norm(axis)
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k)


def carried_out(gate: Gate | None, chunk: F64, paces: list[float]) -> tuple[list[int], list[F64], int]:
    """Runs a robot that covers a share of its way each period; returns actions sent, states, held periods."""
    progress, state = Progress(gate), np.full(chunk.shape[1], 250.0)
    sent: list[int] = []
    states: list[F64] = []
    while True:
        again = progress.again(state)
        if again is None:
            if sent and sent[-1] == len(chunk) - 1:
                return sent, states, progress.n_held
            sent.append(sent[-1] + 1 if sent else 0)
            progress.send(chunk[sent[-1]])
        else:
            sent.append(sent[-1])
        states.append(state)
        state = state + paces[len(sent) % len(paces)] * (chunk[sent[-1]] - state)


@given(seeds, paces, st.integers(0, 8))
def test_the_gate_advances_exactly_at_the_tolerance_or_when_patience_ends(
    seed: int, paces: list[float], n: int
) -> None:
    gate = Gate(FLAT.parts, FLAT.columns, n)
    chunk = np.random.default_rng(seed).uniform(200, 300, (8, 2))
    sent, states, held = carried_out(gate, chunk, paces)
    assert held == len(sent) - 8
    for i in range(8):
        periods = [period for period, action in enumerate(sent) if action == i]
        assert len(periods) <= n + 1, "patience limits the wait"
        away = [float(np.linalg.norm(states[p] - chunk[i])) for p in periods[1:]]
        assert all(distance > 5.0 for distance in away), "a reached action is not held"
        if i < 7 and len(periods) <= n:
            assert np.linalg.norm(states[periods[-1] + 1] - chunk[i]) <= 5.0, (
                "no advance before the action is reached"
            )


@given(seeds, paces)
def test_without_patience_the_gate_is_off(seed: int, paces: list[float]) -> None:
    chunk = np.random.default_rng(seed).uniform(200, 300, (8, 2))
    impatient, off = (carried_out(g, chunk, paces) for g in (Gate(FLAT.parts, FLAT.columns, 0), None))
    assert impatient[0] == off[0] == list(range(8))
    assert np.array_equal(impatient[1], off[1])


@given(seeds)
def test_a_robot_that_follows_exactly_is_never_held(seed: int) -> None:
    chunk = np.random.default_rng(seed).uniform(200, 300, (8, 2))
    assert carried_out(FLAT, chunk, [1.0])[0] == list(range(8))


@given(seeds, st.floats(0, 0.12), st.floats(0, 0.01))
def test_a_tool_pose_is_reached_within_distance_and_angle(seed: int, angle: float, length: float) -> None:
    rng = np.random.default_rng(seed)
    there = turn(rng.normal(size=3), rng.uniform(-3, 3))
    here = there @ turn(rng.normal(size=3), angle)
    away = rng.normal(size=3)
    at = rng.normal(size=3)
    target = np.concatenate([at, matrix_to_rotation6(there), [1.0]])
    state = np.concatenate([at + length * away / np.linalg.norm(away), matrix_to_rotation6(here), [0.0]])
    near = length <= 0.005 and angle <= 0.06
    if abs(length - 0.005) > 1e-9 and abs(angle - 0.06) > 1e-7:
        assert TOOL.is_reached(target, state) == near
    stretched = state * np.concatenate([np.ones(3), [2.0] * 3, [0.5] * 3, [1.0]])
    assert TOOL.is_reached(target, stretched) == TOOL.is_reached(target, state), (
        "rotation axes need no unit length"
    )


@pytest.mark.parametrize(
    ("kind", "target", "state", "is_near"),
    [
        ("angle", 3.1, -3.15, True),  # across pi
        ("angle", 3.1, -3.0, False),
        ("angle/deg", 179.99, -179.99, True),
        ("joint", 3.1, -3.15, False),  # a joint angle does not wrap
        ("joint", 0.5, 0.53, True),
        ("gripper", 0.2, 0.3, False),
        ("scalar", 0.2, float("nan"), False),
    ],
)
def test_each_feature_kind_has_its_own_distance(
    kind: str, target: float, state: float, is_near: bool
) -> None:
    gate = Gate(((kind, 1, 2, 0.05),), (0, 2), 6)
    assert gate.is_reached(np.array([9.0, target]), [0.0, 9.0, state]) is is_near


def test_a_dropped_action_is_not_waited_for() -> None:
    progress = Progress(FLAT)
    progress.send(np.array([400.0, 400.0]))
    assert progress.again([0.0, 0.0]) is not None
    progress.send(None)
    assert progress.again([0.0, 0.0]) is None
    assert progress.n_held == 1


def test_the_servers_gate_is_the_default_and_the_robot_may_override_it() -> None:
    said: dict[str, Any] = {"action_dim": 2, "gate": FLAT.plain(on=False)}
    assert Gate.read(said) is None
    assert Gate.read(said, wanted=True) == FLAT
    assert Gate.read({**said, "gate": FLAT.plain(on=True)}) == FLAT
    assert Gate.read({**said, "gate": FLAT.plain(on=True)}, wanted=False) is None
    assert Gate.read({"action_dim": 2}) is None
    with pytest.raises(InputError) as caught:
        Gate.read({"action_dim": 2, "gate": None}, wanted=True)
    assert caught.value.code == "gate.nothing"

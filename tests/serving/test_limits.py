"""Action limits: every action is inside the box, within the largest step, and finite."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from recap.errors import InputError
from recap.serving.spec import Limits
from recap.types import F64
from recap_client.limits import ActionLimits, limit_actions
from recap_client.wire import decode_map, encode

LIMITS = ActionLimits(np.zeros(2), np.full(2, 512.0), ((0, 2, 20.0),))
# A tool position, a joint without limits and a gripper, each with its own limits.
ARM = ActionLimits(
    np.array([-0.5, -0.5, 0.0, -np.inf, 0.0]),
    np.array([0.5, 0.5, 0.4, np.inf, 1.0]),
    ((0, 3, 0.02), (4, 5, 0.1)),
)
FAR = st.floats(-1e6, 1e6)


@given(hnp.arrays(np.float64, (8, 2), elements=FAR), hnp.arrays(np.float64, 2, elements=st.floats(0, 512)))
def test_from_inside_the_box_actions_stay_inside_and_within_the_largest_step(actions: F64, here: F64) -> None:
    out, n_changed = limit_actions(actions, here, LIMITS)
    assert (out >= -1e-9).all()
    assert (out <= 512 + 1e-9).all()
    steps = np.diff(np.vstack([here, out]), axis=0)
    assert (np.linalg.norm(steps, axis=1) <= 20 + 1e-9).all()
    assert n_changed == (out != actions).any(axis=1).sum()


@given(hnp.arrays(np.float64, 2, elements=FAR))
def test_a_robot_outside_the_box_returns_within_the_largest_step(here: F64) -> None:
    out, _ = limit_actions(np.full((8, 2), 256.0), here, LIMITS)
    steps = np.diff(np.vstack([here, out]), axis=0)
    assert (np.linalg.norm(steps, axis=1) <= 20 + 1e-6).all()
    away = np.linalg.norm(np.vstack([here, out]) - 256.0, axis=1)
    assert (np.diff(away) <= 1e-6).all()


@given(hnp.arrays(np.float64, (6, 5), elements=st.floats(-3, 3)), st.floats(-1, 1))
def test_every_feature_has_its_own_box_and_largest_step(actions: F64, joint: float) -> None:
    here = np.array([0.0, 0.0, 0.2, joint, 0.5])
    out, n_changed = limit_actions(actions, here, ARM)
    path = np.vstack([here, out])
    assert (path[:, :3] >= ARM.low[:3] - 1e-9).all()
    assert (path[:, :3] <= ARM.high[:3] + 1e-9).all()
    steps = np.diff(path, axis=0)
    assert (np.linalg.norm(steps[:, :3], axis=1) <= 0.02 + 1e-9).all()
    assert (np.abs(steps[:, 4]) <= 0.1 + 1e-9).all()
    assert np.array_equal(out[:, 3], actions[:, 3]), "the joint has no limits"
    assert n_changed == (out != actions).any(axis=1).sum()


@given(hnp.arrays(np.float64, (6, 5), elements=st.floats(-3, 3)))
def test_delta_actions_are_limited_one_by_one_at_any_position(actions: F64) -> None:
    limits = replace(ARM, low=np.full(5, -1.0), high=np.full(5, 1.0), relative=True)
    out, _ = limit_actions(actions, np.full(5, 100.0), limits)
    assert (np.linalg.norm(out[:, :3], axis=1) <= 0.02 + 1e-9).all()
    assert (np.abs(out[:, 4]) <= 0.1 + 1e-9).all()
    still, n_changed = limit_actions(np.zeros((6, 5)), np.full(5, 100.0), limits)
    assert not still.any()
    assert n_changed == 0


def test_limits_are_read_from_the_servers_metadata() -> None:
    said = {"action_low": ARM.low.tolist(), "action_high": ARM.high.tolist(), "max_steps": [[0, 3, 0.02]]}
    read = ActionLimits.read(decode_map(encode(said), 2**20))
    assert np.array_equal(read.low, ARM.low)
    assert np.array_equal(read.high, ARM.high)
    assert (read.steps, read.relative) == (((0, 3, 0.02),), False)
    assert ActionLimits.read({**said, "action_mode": "delta"}).relative
    assert read.scaled(0.5).steps == ((0, 3, 0.01),)
    narrow = read.tightened({"tool": (0, 3)}, {"tool": (-0.1, 0.3)}, {})
    assert narrow.low.tolist() == [-0.1, -0.1, 0.0, -np.inf, 0.0]
    with pytest.raises(InputError, match="leave nothing"):
        read.tightened({"tool": (0, 3)}, {"tool": (2.0, 3.0)}, {})


def test_actions_within_the_limits_are_unchanged() -> None:
    actions = np.cumsum(np.full((8, 2), 5.0), axis=0) + 100
    out, n_changed = limit_actions(actions, np.array([100.0, 100.0]), LIMITS)
    assert np.array_equal(out, actions)
    assert n_changed == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_chunk_with_nan_or_infinity_is_an_error(bad: float) -> None:
    actions = np.full((8, 2), 100.0)
    actions[5, 1] = bad
    with pytest.raises(InputError, match="nothing is sent"):
        limit_actions(actions, np.zeros(2), LIMITS)


def test_zero_limits_are_refused() -> None:
    for wrong in ({"max_waiting": 0}, {"max_upload_bytes": 0}, {"max_batch": 0}, {"max_frames": 0}):
        with pytest.raises(InputError):
            Limits(**wrong)

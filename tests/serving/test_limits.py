"""No action leaves the box, none leaps, and none is not a number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from recap.errors import InputError
from recap.serving.limits import Limits, limit_actions
from recap.types import F64

LIMITS = Limits(box=(0.0, 512.0), max_step=20.0)
FAR = st.floats(-1e6, 1e6)


@given(hnp.arrays(np.float64, (8, 2), elements=FAR), hnp.arrays(np.float64, 2, elements=st.floats(0, 512)))
def test_from_inside_every_action_is_inside_and_near_the_one_before(actions: F64, here: F64) -> None:
    out, n_changed = limit_actions(actions, here, LIMITS)
    assert (out >= -1e-9).all()
    assert (out <= 512 + 1e-9).all()
    steps = np.diff(np.vstack([here, out]), axis=0)
    assert (np.linalg.norm(steps, axis=1) <= 20 + 1e-9).all()
    assert n_changed == (out != actions).any(axis=1).sum()


@given(hnp.arrays(np.float64, 2, elements=FAR))
def test_a_robot_outside_is_led_back_at_its_speed(here: F64) -> None:
    out, _ = limit_actions(np.full((8, 2), 256.0), here, LIMITS)
    steps = np.diff(np.vstack([here, out]), axis=0)
    assert (np.linalg.norm(steps, axis=1) <= 20 + 1e-6).all()
    away = np.linalg.norm(np.vstack([here, out]) - 256.0, axis=1)
    assert (np.diff(away) <= 1e-6).all()


def test_what_is_allowed_is_left_alone() -> None:
    actions = np.cumsum(np.full((8, 2), 5.0), axis=0) + 100
    out, n_changed = limit_actions(actions, np.array([100.0, 100.0]), LIMITS)
    assert np.array_equal(out, actions)
    assert n_changed == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_never_sent(bad: float) -> None:
    actions = np.full((8, 2), 100.0)
    actions[5, 1] = bad
    with pytest.raises(InputError, match="nothing is sent"):
        limit_actions(actions, np.zeros(2), LIMITS)


def test_limits_that_let_nothing_through_are_refused() -> None:
    for wrong in ({"max_waiting": 0}, {"box": (5.0, 5.0)}, {"max_step": 0.0}, {"max_upload_bytes": 0}):
        with pytest.raises(InputError):
            Limits(**wrong)  # type: ignore[arg-type]

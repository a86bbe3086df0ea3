from __future__ import annotations

import pytest

from recap.cli.evaluate import _tasks
from recap.cli.ranges import parse_numbers, parse_seeds
from recap.errors import InputError
from recap_worlds.pusht.tasks import ANGLES, EVALUATION_SEEDS, angle_key
from specs import pusht_spec


def test_the_default_tasks_and_seeds_are_the_evaluation_protocol() -> None:
    assert _tasks("-60:60:15", "pusht", None) == tuple(map(angle_key, ANGLES)) == pusht_spec("hold").tasks
    assert parse_seeds("42:92") == EVALUATION_SEEDS == pusht_spec("hold").seeds


def test_numbers_and_ranges_are_parsed() -> None:
    assert parse_numbers("-60, 0,7.5") == (-60.0, 0.0, 7.5)
    assert parse_numbers("0:0.3:0.1,45") == pytest.approx((0.0, 0.1, 0.2, 0.3, 45.0))
    assert parse_numbers("0:10:4") == (0.0, 4.0, 8.0)
    assert str(parse_numbers("-0")[0]) == "0.0"


def test_seeds_and_seed_ranges_are_parsed() -> None:
    assert parse_seeds("42") == (42,)
    assert parse_seeds("42:45,7") == (42, 43, 44, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", "unknown number 'abc'"),
        ("-60:60", "unknown number '-60:60'"),
        ("nan", "unknown number 'nan'"),
        ("1:inf:1", "unknown number '1:inf:1'"),
        ("60:-60:15", "empty range '60:-60:15'"),
        ("0:1:0", "empty range '0:1:0'"),
        ("0:1e9:1e-3", "range '0:1e9:1e-3' is too long"),
        ("", "no number in ''"),
        ("1,,2", "no number in '1,,2'"),
    ],
)
def test_invalid_numbers_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_numbers(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "unknown seed 'x': give whole numbers such as 42,43 or a range 42:92"),
        ("1.5", "unknown seed '1.5'"),
        ("1:2:3", "unknown seed '1:2:3'"),
        ("9:9", "empty range of seeds '9:9'"),
        ("-1", "seed -1 is negative"),
        ("0:99999999999", "too long"),
        (",", "no seed in ','"),
    ],
)
def test_invalid_seeds_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_seeds(text)
    assert message in str(caught.value)


def test_tasks_by_key_range_or_group() -> None:
    assert _tasks("-30, 45", "pusht", None) == ("-30", "+45")
    assert _tasks("0:15:7.5,60", "pusht", None) == ("0", "+7.5", "+15", "+60")
    assert _tasks("lift_pot,grab_roller", "dualarm", None) == ("lift_pot", "grab_roller")
    seen = _tasks("seen", "dualarm", None)
    assert _tasks(f"{seen[1]},seen", "dualarm", None) == (seen[1], seen[0], *seen[2:]), "each task once"


def test_equal_goal_angles_are_one_task() -> None:
    assert _tasks("405,-315", "pusht", None) == ("+45",)
    assert _tasks("180,-180,181", "pusht", None) == ("+180", "-179")


@pytest.mark.parametrize(
    ("text", "env"), [("abc", "pusht"), ("", "pusht"), ("1,,2", "pusht"), ("", "dualarm")]
)
def test_invalid_tasks_are_refused(text: str, env: str) -> None:
    with pytest.raises(InputError, match=r"''|'abc'"):
        _tasks(text, env, None)

from __future__ import annotations

import pytest

from recap.cli import evaluate as commands
from recap.cli.ranges import parse_angles, parse_seeds
from recap.envs.pusht.tasks import ANGLES, EVALUATION_SEEDS
from recap.errors import InputError


def test_the_defaults_are_the_protocol() -> None:
    assert parse_angles(commands.ANGLES) == ANGLES
    assert parse_seeds(commands.SEEDS) == EVALUATION_SEEDS


def test_angles() -> None:
    assert parse_angles("-60, 0,7.5") == (-60.0, 0.0, 7.5)
    assert parse_angles("0:0.3:0.1,45") == pytest.approx((0.0, 0.1, 0.2, 0.3, 45.0))
    assert parse_angles("0:10:4") == (0.0, 4.0, 8.0)
    assert str(parse_angles("-0")[0]) == "0.0"


def test_seeds() -> None:
    assert parse_seeds("42") == (42,)
    assert parse_seeds("42:45,7") == (42, 43, 44, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", "unknown angle 'abc': give degrees such as -30, or a range -60:60:15"),
        ("-60:60", "unknown angle '-60:60': give degrees such as -30, or a range -60:60:15"),
        ("nan", "unknown angle 'nan'"),
        ("1:inf:1", "unknown angle '1:inf:1'"),
        ("60:-60:15", "empty range of angles '60:-60:15'"),
        ("0:1:0", "empty range of angles"),
        ("0:1e9:1e-3", "too long"),
        ("", "no angle in ''"),
        ("1,,2", "no angle in '1,,2'"),
    ],
)
def test_bad_angles(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_angles(text)
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
def test_bad_seeds(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_seeds(text)
    assert message in str(caught.value)


def test_equal_goals_are_one_goal() -> None:
    assert parse_angles("405,-315") == (45.0, 45.0)
    assert parse_angles("180,-180,181") == (180.0, 180.0, -179.0)

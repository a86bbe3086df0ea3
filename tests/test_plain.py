"""What a JSON file may say for a field of a type."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from recap.plain import plain_value


@pytest.mark.parametrize(
    ("kind", "written", "read"),
    [
        (bool, False, False),
        (int, 3, 3),
        (float, 3, 3.0),
        (str, "", ""),
        (Literal["I", "S"], "S", "S"),
        (int | None, None, None),
        (int | None, 0, 0),
        (tuple[float, ...], [1, 2.5], (1.0, 2.5)),
        (tuple[int, int], [1, 2], (1, 2)),
        (tuple[str, ...], [], ()),
    ],
)
def test_a_value_of_its_kind_is_read(kind: Any, written: Any, read: Any) -> None:
    found = plain_value(kind, written)
    assert found == read
    assert type(found) is type(read)


@pytest.mark.parametrize(
    ("kind", "written", "wanted"),
    [
        (bool, 0, "bool"),
        (bool, "false", "bool"),
        (int, True, "int"),
        (int, 1.0, "int"),
        (float, "1", "float"),
        (str, None, "str"),
        (Literal["I", "S"], 1, "str"),
        (int | None, "none", "int"),
        (tuple[int, ...], 3, "a list of int"),
        (tuple[float, ...], [1.0, None], "a list of float"),
        (tuple[str, ...], "top", "a list of str"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_what_was_wanted(kind: Any, written: Any, wanted: str) -> None:
    with pytest.raises(TypeError) as refused:
        plain_value(kind, written)
    assert str(refused.value) == wanted

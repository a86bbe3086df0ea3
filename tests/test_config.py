"""Configurations: read from plain values, written to files, and changed by `key=value`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.config import load_file, plain, read, save_file, with_changes
from recap.errors import InputError


@dataclass(frozen=True)
class Wheel:
    """A nested config."""

    radius: float = 0.5
    spokes: int = 12


@dataclass(frozen=True)
class Bell:
    """An optional nested config."""

    tone: str
    loud: bool = False


@dataclass(frozen=True)
class Bicycle:
    """A config with a field of every type; two settings must agree."""

    name: str
    kind: Literal["city", "race"] = "city"
    gears: int = 3
    price: float = 100.0
    sold: bool = False
    wheel: Wheel = field(default_factory=Wheel)
    wheels: tuple[Wheel, ...] = ()
    spare: Mapping[str, Wheel] = field(default_factory=dict)
    bell: Bell | None = None
    owner: str | None = None
    sizes: tuple[float, ...] = ()
    box: tuple[int, int] = (0, 1)
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "race" and self.gears < 10:
            raise InputError(f"a race bicycle of {self.gears} gears: give 10 or more")


WHOLE = Bicycle(
    "a",
    "race",
    11,
    2.5,
    True,
    Wheel(0.3, 4),
    (Wheel(), Wheel(1.0)),
    {"left": Wheel(0.1)},
    Bell("ding"),
    "me",
    (1.0, 2.5),
    (3, 4),
    ("new",),
)


@pytest.mark.parametrize("config", [Bicycle("bare"), WHOLE], ids=["bare", "whole"])
def test_a_saved_config_is_read_back(config: Bicycle, tmp_path: Path) -> None:
    values = json.loads(json.dumps(plain(config)))
    assert read(Bicycle, values, "it", complete=True) == config
    for name in ("it.json", "it.yaml", "deep/er/it.yml"):
        save_file(tmp_path / name, config)
        assert read(Bicycle, load_file(tmp_path / name), name, complete=True) == config


def test_plain_gives_json_types() -> None:
    for config in (Bicycle("bare"), WHOLE):
        assert plain(config) == json.loads(json.dumps(asdict(config))), "lists and dicts as in a file"


def test_a_missing_value_takes_its_default() -> None:
    assert read(Bicycle, {"name": "bare", "wheel": {"spokes": 3}}, "it") == Bicycle(
        "bare", wheel=Wheel(0.5, 3)
    )


@pytest.mark.parametrize(
    ("kind", "written", "found"),
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
def test_a_value_of_the_fields_type_is_read(kind: Any, written: Any, found: Any) -> None:
    value: Any = read(make_dataclass("One", [("x", kind)], frozen=True), {"x": written}, "it")
    assert value.x == found
    assert type(value.x) is type(found)


@pytest.mark.parametrize(
    ("key", "written", "wanted"),
    [
        ("sold", 0, "`bool`"),
        ("sold", "false", "`bool`"),
        ("gears", True, "`int`"),
        ("gears", 1.5, "`int`"),
        ("gears", "3", "`int`"),
        ("gears", None, "`int`"),
        ("price", "1", "`float`"),
        ("price", True, "`float`"),
        ("name", None, "`str`"),
        ("name", 5, "`str`"),
        ("kind", 1, "`str`"),
        ("kind", "boat", "'boat'"),
        ("owner", 3, "`str | null`"),
        ("wheel", 3, "`object`"),
        ("wheel", None, "`object`"),
        ("bell", "ding", "`object | null`"),
        ("sizes", 3, "`array`"),
        ("sizes", [1.0, None], "`float`"),
        ("box", [1], "length 2"),
        ("labels", "new", "`array`"),
        ("spare", [], "`object`"),
        ("wheel.spokes", "many", "`int`"),
        ("bell.loud", 1, "`bool`"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_path_and_the_expected_type(
    key: str, written: Any, wanted: str
) -> None:
    outer, _, inner = key.partition(".")
    value = {inner: written, **({"tone": "ding"} if outer == "bell" else {})} if inner else written
    with pytest.raises(InputError) as refused:
        read(Bicycle, {"name": "a", outer: value}, "shop.yaml")
    said = str(refused.value)
    assert said.startswith("shop.yaml ")
    assert f"'{key}" in said
    assert wanted in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"name": "a", "gear": 3}, "'gear': did you mean 'gears'?"),
        ({"name": "a", "zzz": 3}, "'zzz': choose one of name, kind, gears"),
        ({"name": "a", "wheel": {"spoke": 3}}, "'wheel.spoke'"),
        ({"name": "a", "wheels": [{}, {"spoke": 3}]}, "'wheels.1.spoke'"),
        ({"name": "a", "spare": {"left": {"spoke": 3}}}, "'spare.left.spoke'"),
        ({"name": "a", "bell": {"tone": "ding", "lout": True}}, "'bell.lout'"),
        ({"name": "a", 5: 3}, "'5'"),
    ],
)
def test_an_unknown_key_is_refused_at_any_depth(values: Any, key: str) -> None:
    with pytest.raises(InputError) as refused:
        read(Bicycle, values, "shop.yaml")
    assert f"unknown key {key}" in str(refused.value)


@pytest.mark.parametrize(
    ("cut", "key"),
    [
        (("price",), "price"),
        (("wheel", "spokes"), "wheel.spokes"),
        (("wheels", 1, "radius"), "wheels.1.radius"),
        (("spare", "left", "spokes"), "spare.left.spokes"),
        (("bell", "loud"), "bell.loud"),
    ],
)
def test_a_missing_key_is_refused_if_the_config_must_be_complete(
    cut: tuple[str | int, ...], key: str
) -> None:
    values = json.loads(json.dumps(plain(WHOLE)))
    at = values
    for step in cut[:-1]:
        at = at[step]
    del at[cut[-1]]
    assert isinstance(read(Bicycle, values, "shop.yaml"), Bicycle), "otherwise the default is taken"
    with pytest.raises(InputError, match=f"shop.yaml lacks '{key}'"):
        read(Bicycle, values, "shop.yaml", complete=True)


def test_a_missing_key_without_a_default_is_named() -> None:
    with pytest.raises(InputError, match="missing required field `name`"):
        read(Bicycle, {}, "shop.yaml")


@pytest.mark.parametrize("values", [None, [], "text", 3])
def test_values_that_are_not_a_mapping_are_refused(values: Any) -> None:
    with pytest.raises(InputError, match=r"shop\.yaml is missing"):
        read(Bicycle, values, "shop.yaml")


def test_the_error_of_a_configs_own_check_is_unchanged() -> None:
    with pytest.raises(InputError, match="a race bicycle of 3 gears"):
        read(Bicycle, {"name": "a", "kind": "race"}, "shop.yaml")


def test_a_nested_config_object_is_accepted() -> None:
    assert read(Bicycle, {"name": "a", "wheel": Wheel(1.0)}, "it").wheel == Wheel(1.0)


# --- key=value ---


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("name=b", "name", "b"),
        ("name=", "name", ""),
        ("name=a=b", "name", "a=b"),
        ("kind=city", "kind", "city"),
        ("gears=7", "gears", 7),
        ("gears=-7", "gears", -7),
        ("price=1e-3", "price", 1e-3),
        ("price=3", "price", 3.0),
        ("sold=true", "sold", True),
        ("sold=False", "sold", False),
        ("wheel.radius=2", "wheel", Wheel(2.0)),
        ("owner=me", "owner", "me"),
        ("owner=none", "owner", None),
        ("owner=Null", "owner", None),
        ("sizes=1,2.5", "sizes", (1.0, 2.5)),
        ("sizes=(1, 2.5)", "sizes", (1.0, 2.5)),
        ("sizes=[3]", "sizes", (3.0,)),
        ("sizes=", "sizes", ()),
        ("box=3,4", "box", (3, 4)),
        ("labels=a=1,b=2", "labels", ("a=1", "b=2")),
    ],
)
def test_a_change_is_parsed_by_the_settings_type(change: str, key: str, value: Any) -> None:
    base = Bicycle("a", owner="you", sizes=(9.0,))
    found = with_changes(base, [change])
    assert found == replace(base, **{key: value})
    assert type(getattr(found, key)) is type(value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("gears", "cannot read 'gears': give key=value"),
        ("=3", "cannot read '=3'"),
        ("gear=3", "there is no setting 'gear': did you mean 'gears'?"),
        ("wheel.spoke=3", "there is no setting 'wheel.spoke': did you mean 'spokes'?"),
        ("wheel=big", "setting 'wheel' has parts"),
        ("bell=none", "setting 'bell' has parts"),
        ("bell.tone=dong", "setting 'bell' has no parts"),
        ("gears.x=3", "setting 'gears' has no parts"),
        ("gears=many", "setting 'gears' is 'many'"),
        ("gears=2.5", "setting 'gears' is '2.5'"),
        ("gears=none", "setting 'gears' is 'none'"),
        ("price=much", "setting 'price' is 'much'"),
        ("sold=maybe", "setting 'sold' is 'maybe'"),
        ("kind=boat", "setting 'kind' is 'boat'"),
        ("sizes=a,b", "setting 'sizes' is 'a,b'"),
        ("box=1,2,3", "setting 'box' is '1,2,3'"),
    ],
)
def test_an_invalid_change_is_refused(change: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        with_changes(Bicycle("a"), [change])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "inf", "-inf", "infinity", "Infinity", "1e999"])
@pytest.mark.parametrize("setting", ["price", "wheel.radius", "sizes"])
def test_a_number_that_is_not_finite_is_refused(setting: str, text: str) -> None:
    with pytest.raises(InputError, match=f"setting '{setting}' is"):
        with_changes(Bicycle("a"), [f"{setting}={text}"])
    if setting == "sizes":
        with pytest.raises(InputError, match="setting 'sizes' is"):
            with_changes(Bicycle("a"), [f"sizes=1,{text}"])


def test_changes_are_validated_after_all_are_applied() -> None:
    for changes in (["kind=race", "gears=12"], ["gears=12", "kind=race"]):
        found = with_changes(Bicycle("a"), changes)
        assert (found.kind, found.gears) == ("race", 12)
    with pytest.raises(InputError, match="race bicycle of 3 gears"):
        with_changes(Bicycle("a"), ["kind=race"])


def test_changes_of_a_nested_config_are_combined_and_the_last_value_counts() -> None:
    found = with_changes(Bicycle("a"), ["wheel.radius=1", "gears=4", "wheel.spokes=5", "gears=6"])
    assert found == Bicycle("a", gears=6, wheel=Wheel(1.0, 5))
    with pytest.raises(InputError, match="as a whole and in part"):
        with_changes(Bicycle("a"), ["wheel=3", "wheel.radius=1"])


def test_with_changes_does_not_modify_the_config() -> None:
    base = Bicycle("a")
    with_changes(base, ["gears=9", "wheel.radius=2"])
    assert base == Bicycle("a")
    assert with_changes(base, []) == base


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**53), 2**53),
    st.booleans(),
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=4),
)
def test_numbers_as_text_are_read_back_exactly(
    price: float, gears: int, sold: bool, sizes: list[float]
) -> None:
    changes = [f"price={price!r}", f"gears={gears}", f"sold={sold}", f"sizes={','.join(map(repr, sizes))}"]
    found = with_changes(Bicycle("a"), changes)
    assert math.isclose(found.price, price, rel_tol=0)
    assert (found.gears, found.sold, found.sizes) == (gears, sold, tuple(sizes))


# --- files ---


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{torn"),
        ("a.yaml", "a: [1, 2"),
        ("a.yaml", "a: !!python/object:os.system {}"),
        ("a.yaml", "\t"),
    ],
)
def test_a_malformed_file_is_a_one_line_error(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(InputError, match=f"{name} cannot be read") as refused:
        load_file(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_a_missing_or_binary_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_file(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        load_file(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match="not text"):
        load_file(tmp_path / "bytes.yaml")


def test_yaml_and_json_give_equal_configs(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: ä\nwheel: {radius: 2}\nsizes: [1, 2]\n", "utf-8")
    (tmp_path / "a.json").write_text('{"name": "ä", "wheel": {"radius": 2}, "sizes": [1, 2]}', "utf-8")
    one, other = (read(Bicycle, load_file(tmp_path / f"a.{end}"), "it") for end in ("yaml", "json"))
    assert one == other == Bicycle("ä", wheel=Wheel(2.0), sizes=(1.0, 2.0))

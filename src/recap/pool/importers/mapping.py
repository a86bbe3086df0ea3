"""Maps keys of a source to our fields, in the notation `proprio=obs/pos+obs/quat@xyzw`.

field   proprio, action, goal, object:NAME, image:NAME; task, embodiment and action_space are plain text
value   KEY, KEY[3], KEY[0:3], KEY@wxyz or KEY@xyzw (a quaternion, or xyz + quaternion, as 6-D rotation);
        joined by +; the prefix `next:` takes values of the next frame, for sources without actions
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from recap.errors import DatasetError, InputError, did_you_mean
from recap.geometry3 import quaternion_to_rotation6
from recap.types import F64

WORDS = ("task", "embodiment", "action_space")
FIELDS = ("proprio", "action", "goal", *WORDS)
OBJECT = "object:"
IMAGE = "image:"
NEXT = "next:"
MAX_TEXT = 2000  # characters of a task; longer text is no instruction
MAX_NAME = 64

Kind: TypeAlias = Literal["numbers", "images", "other"]

_PART = re.compile(r"(?P<key>.+?)(?:\[(?P<first>\d+)(?::(?P<end>\d+))?\])?(?:@(?P<order>wxyz|xyzw))?")


@dataclass(frozen=True, slots=True)
class SourceKey:
    """One key of a source, with values for each frame of an episode."""

    name: str
    shape: tuple[int, ...]  # of the first episode; the first dimension is frames
    dtype: str
    kind: Kind
    names: tuple[str, ...] = ()  # of its columns, such as shoulder_pan.pos, if the source has them

    @property
    def width(self) -> int:
        """Numbers per frame."""
        return int(np.prod(self.shape[1:], dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Part:
    """Some columns of one key."""

    key: str
    columns: slice
    order: str = ""  # order of a quaternion that becomes a 6-D rotation: wxyz or xyzw

    def read(self, values: F64) -> F64:
        """The selected columns of the values (t, d) of the key."""
        chosen = values[:, self.columns]
        if not self.order:
            return chosen
        quaternion = chosen[:, -4:]
        if self.order == "xyzw":
            quaternion = quaternion[:, [3, 0, 1, 2]]
        return np.concatenate([chosen[:, :-4], quaternion_to_rotation6(quaternion)], axis=1)


@dataclass(frozen=True, slots=True)
class Selection:
    """The source of one of our fields."""

    text: str
    parts: tuple[Part, ...]
    ahead: bool = False  # use the next frame; the last frame is repeated

    def read(self, numbers: Mapping[str, F64]) -> F64:
        """The values (t, d) of the field."""
        columns = [part.read(numbers[part.key]) for part in self.parts]
        lengths = {len(values) for values in columns}
        if len(lengths) > 1:
            raise DatasetError(f"'{self.text}' joins keys of different lengths: {sorted(lengths)} frames")
        joined = np.concatenate(columns, axis=1)
        return np.concatenate([joined[1:], joined[-1:]]) if self.ahead else joined


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole mapping, checked against the keys of a source."""

    numbers: Mapping[str, Selection]  # proprio, action, goal, object:NAME
    images: Mapping[str, str]  # camera -> key
    words: Mapping[str, str]

    def keys(self) -> set[str]:
        """The numeric keys that must be read."""
        return {part.key for selection in self.numbers.values() for part in selection.parts}


def make_plan(given: Mapping[str, str], default: Mapping[str, str], keys: Mapping[str, SourceKey]) -> Plan:
    """The given mapping, completed by the source's default for each kind of field that is not given."""
    for name in given:
        named = name.startswith((OBJECT, IMAGE)) and not name.endswith(":")
        if name not in FIELDS and not named:
            choices = (*FIELDS, f"{OBJECT}NAME", f"{IMAGE}NAME")
            raise InputError(f"unknown field {shorten(repr(name))}: {did_you_mean(name, choices)}")
    kinds = {_kind(name) for name in given}
    chosen = {name: value for name, value in default.items() if _kind(name) not in kinds} | dict(given)
    numbers: dict[str, Selection] = {}
    images: dict[str, str] = {}
    words: dict[str, str] = {}
    for name, value in chosen.items():
        if name in WORDS:
            quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
            words[name] = one_line(name, value[1:-1] if quoted else value)
        elif name.startswith(IMAGE):
            images[check_name("camera", name.removeprefix(IMAGE))] = _image_key(name, value, keys)
        else:
            if name.startswith(OBJECT):
                check_name("object", name.removeprefix(OBJECT))
            numbers[name] = parse_selection(name, value, keys)
    for name in ("proprio", "action"):
        if name not in numbers:
            known = ", ".join(key for key, info in keys.items() if info.kind == "numbers")
            raise InputError(
                f"no key is known to be the {name}: name one, as in --map {name}=KEY, "
                f"of {shorten(known or 'which there are none')}"
            )
    return Plan(numbers, images, words)


def parse_selection(field: str, text: str, keys: Mapping[str, SourceKey]) -> Selection:
    """Parse `next:KEY[0:3]+KEY@wxyz` and check it against the source's keys."""
    ahead = text.startswith(NEXT)
    body = text.removeprefix(NEXT).strip()
    pieces = [body] if body in keys else [piece.strip() for piece in body.split("+")]
    return Selection(text, tuple(_parse_part(field, piece, keys) for piece in pieces), ahead)


def check_name(what: str, name: str) -> str:
    """A camera or object name that is safe as a folder, a column or a line of text."""
    odd = not name or len(name) > MAX_NAME or not name.isprintable() or name != name.strip()
    if odd or name.startswith(".") or any(c in name for c in '/\\:*?"<>|'):
        raise InputError(f"{what} {shorten(repr(name))} is no plain name: use letters, digits, - and _")
    return name


def one_line(what: str, text: str) -> str:
    """Text on one line, without control characters and of limited length."""
    line = " ".join(text.split())
    if len(line) > MAX_TEXT or not line.isprintable():
        raise InputError(f"the {what} {shorten(repr(line))} is no line of text: give one sentence")
    return line


def shorten(text: str, limit: int = 200) -> str:
    """Text shortened to fit into a message."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def _parse_part(field: str, text: str, keys: Mapping[str, SourceKey]) -> Part:
    if text in keys:
        _check_numbers(field, keys[text])
        return Part(text, slice(0, keys[text].width))
    match = _PART.fullmatch(text)
    key = match["key"] if match else text
    if match is None or key not in keys:
        known = [name for name, info in keys.items() if info.kind == "numbers"]
        hint = did_you_mean(key, known) if known else "the source holds no numbers"
        raise InputError(f"unknown key {shorten(repr(key))} for {field}: {shorten(hint)}")
    _check_numbers(field, keys[key])
    width = keys[key].width
    first = int(match["first"] or 0)
    end = int(match["end"]) if match["end"] else first + 1 if match["first"] else width
    if not first < end <= width:
        raise InputError(f"'{text}' for {field} is out of range: {key} has columns 0 to {width - 1}")
    if match["order"] and end - first not in (4, 7):
        raise InputError(f"'{text}' for {field}: @{match['order']} needs 4 columns, or 7 with xyz before")
    return Part(key, slice(first, end), match["order"] or "")


def _check_numbers(field: str, key: SourceKey) -> None:
    if key.kind != "numbers":
        raise InputError(f"{key.name} is {key.dtype} {key.shape}, no numbers for {field}: choose another key")


def _image_key(field: str, text: str, keys: Mapping[str, SourceKey]) -> str:
    cameras = [name for name, info in keys.items() if info.kind == "images"]
    if text not in cameras:
        hint = did_you_mean(text, cameras) if cameras else "the source holds no images"
        raise InputError(f"unknown images {shorten(repr(text))} for {field}: {shorten(hint)}")
    return text


def _kind(name: str) -> str:
    return name.split(":")[0]

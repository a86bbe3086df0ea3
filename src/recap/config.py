"""Reads and writes configurations: frozen dataclasses from JSON, YAML and `key=value`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from recap.errors import InputError, cause, did_you_mean

T = TypeVar("T")


def read(kind: type[T], values: object, what: str, complete: bool = False) -> T:
    """A dataclass from plain values; an error names an unknown key or a value of the wrong type.

    Args:
        kind: a dataclass; its fields may be dataclasses, tuples, mappings and literals.
        what: the source in error messages, such as "robot.yaml".
        complete: require every key, as `plain` writes them.
    """
    if not isinstance(values, dict):
        raise InputError(f"{what} is missing, or holds no settings")
    _check_keys(kind, values, what, "", complete)
    try:
        return msgspec.convert(values, kind, strict=True, dec_hook=_as_it_is)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        key = path.rstrip("`").lstrip(".")
        at = f" at '{key}'" if key else ""
        raise InputError(f"{what} cannot be read{at}: {message[0].lower()}{message[1:]}") from None


def _as_it_is(kind: type[Any], value: Any) -> Any:
    """Accept a nested value that was already converted to its dataclass."""
    if isinstance(value, kind):
        return value
    raise NotImplementedError


def plain(value: Any) -> Any:
    """The inverse of `read`: only dicts, lists, numbers and strings."""
    if is_dataclass(value) and not isinstance(value, type):
        # Field by field, because msgspec omits the defaults of objects that it has read.
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (tuple, list)) else value


def load_file(path: Path) -> Any:
    """The plain values of a JSON or YAML file."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InputError(f"{path} cannot be read ({why}): give a .yaml or .json file") from None
    try:
        if path.suffix.lower() == ".json":
            return json.loads(text)
        import yaml

        return yaml.safe_load(text)
    except Exception as error:  # yaml raises many types
        raise InputError(f"{path} cannot be read ({cause(error)})") from None


def save_file(path: Path, value: object) -> None:
    """Write a configuration as JSON if the suffix is .json, else as YAML."""
    if path.suffix.lower() == ".json":
        text = json.dumps(plain(value), indent=1) + "\n"
    else:
        import yaml

        text = yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def with_changes(config: T, changes: Sequence[str]) -> T:
    """The config with all changes `key.inner=value` applied at once, so that only the result is validated."""
    nested: dict[str, Any] = {}
    for change in changes:
        key, sign, value = change.partition("=")
        if not sign or not key:
            raise InputError(f"cannot read '{change}': give key=value, such as batch_size=64")
        *outer, last = key.strip().split(".")
        at = nested
        for name in outer:
            at = at.setdefault(name, {})
            if not isinstance(at, dict):
                raise InputError(f"'{key}' is set as a whole and in part: give one of the two")
        at[last] = value
    changed: T = _changed(config, nested, "")
    return changed


def _changed(config: Any, changes: Mapping[str, Any], prefix: str) -> Any:
    hints = get_type_hints(type(config))
    known = [f.name for f in fields(config)]
    values = {}
    for key, value in changes.items():
        if key not in known:
            raise InputError(f"there is no setting '{prefix}{key}': {did_you_mean(key, known)}")
        now = getattr(config, key)
        if isinstance(value, dict):
            if not is_dataclass(now):
                raise InputError(f"setting '{prefix}{key}' has no parts: give {prefix}{key}=value")
            values[key] = _changed(now, value, f"{prefix}{key}.")
        else:
            values[key] = _parsed(f"{prefix}{key}", hints[key], value)
    return replace(config, **values)


def _parsed(key: str, kind: Any, text: str) -> Any:
    """Parse text as a value of that type."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if any(is_dataclass(option) for option in options):
        raise InputError(f"setting '{key}' has parts: give {key}.NAME=value")
    if NoneType in options and text.lower() in ("none", "null"):
        return None
    (base, *_) = [option for option in options if option is not NoneType]
    value: Any = text
    if get_origin(base) is tuple:
        value = [part.strip() for part in text.strip("()[]").split(",") if part.strip()]
    elif base is bool:
        value = text.lower()
    try:
        # A nested config with several kinds is given by the name of a kind, and has that kind's defaults.
        found = msgspec.convert(value, base, strict=False, dec_hook=lambda kind, name: kind.named(name))
    except msgspec.ValidationError as error:
        message = str(error).partition(" - at")[0]
        raise InputError(f"setting '{key}' is '{text}': {message[0].lower()}{message[1:]}") from None
    numbers = found if isinstance(found, tuple) else (found,)
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        raise InputError(f"setting '{key}' is {text}: give a finite number")
    return found


def _check_keys(kind: Any, values: object, what: str, prefix: str, complete: bool) -> None:
    """Refuse unknown keys, such as misspelt ones; msgspec would ignore them."""
    if get_origin(kind) in (Union, UnionType):
        inner = [option for option in get_args(kind) if is_dataclass(option)]
        if len(inner) == 1:
            _check_keys(inner[0], values, what, prefix, complete)
    elif get_origin(kind) is tuple and isinstance(values, list):
        for number, value in enumerate(values):
            _check_keys(get_args(kind)[0], value, what, f"{prefix}{number}.", complete)
    elif isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping):
        for key, value in values.items() if isinstance(values, dict) else ():
            _check_keys(get_args(kind)[1], value, what, f"{prefix}{key}.", complete)
    elif is_dataclass(kind) and isinstance(values, dict):
        hints = get_type_hints(kind)
        known = [f.name for f in fields(kind)]
        for key in known if complete else ():
            if key not in values:
                raise InputError(f"{what} lacks '{prefix}{key}': it is of another version of recap")
        for key, value in values.items():
            if key not in known:
                raise InputError(
                    f"{what} has an unknown key '{prefix}{key}': {did_you_mean(str(key), known)}"
                )
            _check_keys(hints[key], value, what, f"{prefix}{key}.", complete)

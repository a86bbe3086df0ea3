"""openpi's wire format: msgpack with numpy arrays, checked strictly; a violation raises a WireError."""

from __future__ import annotations

import math
import re
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from recap_client.errors import WireError, in_short

MAX_DEPTH = 8
MAX_ITEMS = 4096  # values, including keys; an array counts as several
MAX_DIMS = 6
_DTYPE = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248])")
_ARRAY = frozenset((b"__ndarray__", b"data", b"dtype", b"shape"))
_SCALAR = frozenset((b"__npgeneric__", b"data", b"dtype"))
# First byte -> size of the value. First byte -> width of the count, and values per counted item (0: bytes).
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_COUNTED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}
_COUNTED |= {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_PLAIN = (str, bytes, bool, int, float, type(None))


def encode(message: object) -> bytes:
    """Encode a message: values of msgpack, and arrays of numbers and booleans."""
    try:
        data: bytes = msgpack.packb(message, default=_pack)
    except WireError:
        raise
    except Exception as error:  # msgpack raises many types
        raise WireError(
            f"a message cannot be written ({in_short(error)}): send maps, lists, numbers and text"
        ) from error
    return data


def decode(data: bytes | bytearray | memoryview, max_bytes: int) -> Any:
    """Decode a message; arrays are read-only views of `data`."""
    if len(data) > max_bytes:
        raise WireError(f"a message of {len(data)} bytes is too large: send at most {max_bytes}")
    _check_structure(data)
    try:
        message = msgpack.unpackb(data, strict_map_key=False)
    except Exception as error:  # msgpack raises many types
        raise WireError(
            f"a message is no msgpack ({in_short(error)}): send one whole message a frame"
        ) from error
    return _restore(message, 0)


def decode_map(data: bytes | bytearray | memoryview, max_bytes: int) -> dict[str, Any]:
    """Decode a message that must be a map with text keys."""
    message = decode(data, max_bytes)
    if not isinstance(message, dict):
        raise WireError(f"a message is a {type(message).__name__}, not a map: send key and value pairs")
    return message


def _check_structure(data: bytes | bytearray | memoryview) -> None:
    """Check the size of a message before it is decoded, since a few bytes can expand to many objects."""
    at, n_items, open_ends = 0, 0, [1]  # values that each open map or list still needs
    while open_ends:
        if not open_ends[-1]:
            open_ends.pop()
            continue
        open_ends[-1] -= 1
        n_items += 1
        if n_items > MAX_ITEMS or len(open_ends) > MAX_DEPTH + 2:  # an array is a map with a list in it
            raise WireError(f"a message holds more than {MAX_ITEMS} values or is nested too deep: send less")
        size, n_inner, at = _head(data, at)
        at += size
        if at > len(data):
            raise WireError("a message ends before it is whole: send one whole message a frame")
        if n_inner:
            open_ends.append(n_inner)
    if at != len(data):
        raise WireError(f"a message has {len(data) - at} bytes after its end: send one message a frame")


def _head(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int, int]:
    """Parse the head of a value: bytes of its content, number of values inside, position after the head."""
    if at >= len(data):
        raise WireError("a message ends before it is whole: send one whole message a frame")
    first, at = data[at], at + 1
    if first < 0x80 or first >= 0xE0 or first in (0xC0, 0xC2, 0xC3):
        return 0, 0, at
    if first < 0x90:
        return 0, 2 * (first & 0x0F), at
    if first < 0xA0:
        return 0, first & 0x0F, at
    if first < 0xC0:
        return first & 0x1F, 0, at
    if first in _FIXED:
        return _FIXED[first], 0, at
    if first not in _COUNTED:
        raise WireError("a message holds a value of an extended type: send maps, lists, numbers and text")
    width, inner = _COUNTED[first]
    n = int.from_bytes(data[at : at + width], "big")
    return (n, 0, at + width) if not inner else (0, inner * n, at + width)


def _pack(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        if _DTYPE.fullmatch(value.dtype.str) is None:
            raise WireError(f"an array of {value.dtype} cannot be sent: send numbers or bools")
        if isinstance(value, np.ndarray):
            parts = {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str}
            return {**parts, b"shape": list(value.shape)}
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    raise WireError(f"a {type(value).__name__} cannot be sent: send maps, lists, numbers, text and arrays")


def _restore(value: Any, depth: int) -> Any:
    """Convert decoded values: maps that represent arrays become arrays."""
    if depth > MAX_DEPTH:
        raise WireError(f"a message is nested more than {MAX_DEPTH} deep: send it flat")
    if isinstance(value, dict):
        if b"__ndarray__" in value:
            return _array(value)
        if b"__npgeneric__" in value:
            return _scalar(value)
        return {_key(key): _restore(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_restore(item, depth + 1) for item in value]
    if not isinstance(value, _PLAIN):
        raise WireError(f"a message holds a {type(value).__name__}: send maps, lists, numbers and text")
    return value


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise WireError(f"a map has a {type(key).__name__} as a key: use text")
    return key


def _array(parts: dict[Any, Any]) -> NDArray[Any]:
    if set(parts) != _ARRAY or parts[b"__ndarray__"] is not True:
        raise WireError("an array has other parts than data, dtype and shape: send those three")
    dtype, data, shape = _dtype(parts[b"dtype"]), parts[b"data"], parts[b"shape"]
    if not isinstance(shape, list) or len(shape) > MAX_DIMS:
        raise WireError(f"an array's shape is no list of up to {MAX_DIMS} numbers: send one")
    if any(type(n) is not int or not 0 <= n < 2**32 for n in shape):
        raise WireError(
            "an array's shape holds something else than whole numbers from 0 up: send its lengths"
        )
    if not isinstance(data, bytes) or len(data) != math.prod(shape) * dtype.itemsize:
        raise WireError(f"an array of shape {tuple(shape)} and {dtype} has the wrong number of bytes")
    return np.frombuffer(data, dtype).reshape(shape)


def _scalar(parts: dict[Any, Any]) -> Any:
    if set(parts) != _SCALAR or parts[b"__npgeneric__"] is not True:
        raise WireError("a number has other parts than data and dtype: send those two")
    dtype, data = _dtype(parts[b"dtype"]), parts[b"data"]
    if type(data) not in (bool, int, float):
        raise WireError("a number's data is no number: send its value")
    try:
        with np.errstate(all="ignore"):
            return dtype.type(data)
    except (OverflowError, ValueError) as error:
        raise WireError(f"a number does not fit {dtype}: send a wider type") from error


def _dtype(name: object) -> np.dtype[Any]:
    text = name.decode("ascii", "replace") if isinstance(name, bytes) else name
    if not isinstance(text, str) or _DTYPE.fullmatch(text) is None:
        raise WireError(f"an array's type {str(name)[:40]!a} is not allowed: send numbers or bools")
    return np.dtype(text)

"""Values of JSON files as the fields of dataclasses have them."""

from __future__ import annotations

from types import NoneType
from typing import Any, Literal, get_args, get_origin


def plain_value(kind: Any, value: Any) -> Any:
    """A value of a JSON file as a field of that type has it: lists are tuples, whole numbers may be floats.

    Args:
        kind: `bool`, `int`, `float`, `str` or a literal of texts; tuples of these; each of them or None.

    Raises:
        TypeError: it is of another kind; the message says of which it should be.
    """
    options = get_args(kind)
    if NoneType in options:
        (kind,) = set(options) - {NoneType}
        return None if value is None else plain_value(kind, value)
    several = get_origin(kind) is tuple
    base = options[0] if several else str if get_origin(kind) is Literal else kind
    found = value if several else [value]
    # By its very type: true is no number, and no text is true or false.
    allowed = (int, float) if base is float else (base,)
    if not isinstance(found, (list, tuple)) or any(type(one) not in allowed for one in found):
        raise TypeError(f"a list of {base.__name__}" if several else base.__name__)
    read = tuple(base(one) for one in found)
    return read if several else read[0]

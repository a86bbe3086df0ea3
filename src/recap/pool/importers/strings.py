"""Texts of variable length in HDF5 files, read by a process of its own.

The HDF5 library keeps such texts in a heap and trusts what the file says about it: a few damaged bytes there
made it crash, or loop for ever. So these texts are read in a process that may die.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from recap.errors import DatasetError
from recap.pool.importers.source import MAX_TEXT_BYTES

_CHILD = Path(__file__).with_name("strings_child.py")
_TIMEOUT_S = 20.0
_TIMEOUT_EACH_S = 0.1


@dataclass(frozen=True, slots=True)
class TextPlace:
    """Where a text is: the value of a dataset, or an attribute of an object."""

    path: Path
    place: str
    attribute: str | None = None


def read_strings(places: Sequence[TextPlace]) -> list[str | None]:
    """The texts in order, None for what is no text; a file on which the library dies is named."""
    if not places:
        return []
    requests = [[str(text.path.absolute()), text.place, text.attribute] for text in places]
    try:
        child = subprocess.run(
            [sys.executable, "-I", str(_CHILD)],
            input=json.dumps([MAX_TEXT_BYTES, requests]).encode(),
            capture_output=True,
            timeout=_TIMEOUT_S + _TIMEOUT_EACH_S * len(places),
            check=False,
        )
        output = child.stdout
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    lines = output.splitlines()
    if len(lines) < len(places):
        guilty = places[len(lines)]
        raise DatasetError(
            f"{guilty.path} cannot be read: the HDF5 library fails on the text of "
            f"'{guilty.attribute or guilty.place}'; restore the file or leave it out"
        )
    return [json.loads(line) for line in lines]

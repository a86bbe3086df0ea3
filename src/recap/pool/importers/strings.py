"""Texts of variable length in HDF5 files, read by a process of their own: this file, run as a script.

The HDF5 library keeps such texts in a heap and trusts what the file says about it: a few damaged bytes there
make it crash, or loop for ever. So these texts are read in a process that may die.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_TEXT_BYTES = 1024**2  # of a JSON file or string

_CHILD = Path(__file__)
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
            input=json.dumps(requests).encode(),
            capture_output=True,
            timeout=_TIMEOUT_S + _TIMEOUT_EACH_S * len(places),
            check=False,
        )
        output = child.stdout
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    lines = output.splitlines()
    if len(lines) < len(places):
        from recap.errors import DatasetError  # here, for the child does not import recap

        failed = places[len(lines)]
        raise DatasetError(
            f"{failed.path} cannot be read: the HDF5 library fails on the text of "
            f"'{failed.attribute or failed.place}'; restore the file or leave it out"
        )
    return [json.loads(line) for line in lines]


def _answer() -> None:
    """The child: for each `[path, object, attribute or null]` on stdin a line with a JSON text or null."""
    import h5py  # type: ignore[import-untyped]

    for path, place, attribute in json.load(sys.stdin):
        text = None
        try:
            with h5py.File(path, "r") as file:
                node = file[place]
                value = node.attrs[attribute] if attribute else node[()]
            text = value.decode("utf-8") if isinstance(value, bytes) else value
        except Exception as error:  # whatever it is, the parent only has to know that there is no text
            print(type(error).__name__, file=sys.stderr)
        whole = isinstance(text, str) and len(text) <= MAX_TEXT_BYTES
        print(json.dumps(text if whole else None), flush=True)


if __name__ == "__main__":
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (4 * 1024**3, 4 * 1024**3))
    except (ImportError, ValueError, OSError):  # not every system has it; the time limit remains
        pass
    _answer()

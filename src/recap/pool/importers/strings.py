"""Reads variable-length texts of HDF5 files in a child process, which runs this file as a script.

The HDF5 library stores such texts in a heap and trusts its contents. A few damaged bytes there make the
library crash or loop forever, so a child process reads them.
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
    """Location of a text: the value of a dataset, or an attribute of an object."""

    path: Path
    place: str
    attribute: str | None = None


def read_strings(places: Sequence[TextPlace]) -> list[str | None]:
    """The texts in order, None if not a text; raises an error that names the file on which HDF5 fails."""
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
        from recap.errors import DatasetError  # here, because the child does not import recap

        failed = places[len(lines)]
        raise DatasetError(
            f"{failed.path} cannot be read: the HDF5 library fails on the text of "
            f"'{failed.attribute or failed.place}'; restore the file or leave it out"
        )
    return [json.loads(line) for line in lines]


def _answer() -> None:
    """In the child process: print a JSON text or null per `[path, object, attribute or null]` on stdin."""
    import h5py  # type: ignore[import-untyped]

    for path, place, attribute in json.load(sys.stdin):
        text = None
        try:
            with h5py.File(path, "r") as file:
                node = file[place]
                value = node.attrs[attribute] if attribute else node[()]
            text = value.decode("utf-8") if isinstance(value, bytes) else value
        except Exception as error:  # for any error the answer is null
            print(type(error).__name__, file=sys.stderr)
        whole = isinstance(text, str) and len(text) <= MAX_TEXT_BYTES
        print(json.dumps(text if whole else None), flush=True)


if __name__ == "__main__":
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (4 * 1024**3, 4 * 1024**3))
    except (ImportError, ValueError, OSError):  # not available on every system; the timeout remains
        pass
    _answer()

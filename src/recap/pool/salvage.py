"""Recovers rows of a damaged pool from other files: seals list the rows, and any intact file may hold them.

Old versions are kept, so an episode that was ever compacted is in more than one file. Changed files are
read in a child process, because some make Lance abort.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from recap.pool.files import Files, open_files, sha256
from recap.pool.schema import ArrowRows, Row
from recap.pool.seals import Seal, rows_by_file
from recap.pool.table import Damage, reading, stored

_TIMEOUT_S = 60
_N_DEATHS = 64  # crashes of child processes after which a file is given up


def find_rows(
    files: Files, seals: Mapping[int, Seal], wanted: Mapping[str, str], data_files: tuple[str, ...] = ()
) -> dict[str, tuple[Row, int]]:
    """Intact rows for id -> hash, with their sequence numbers; `data_files` are always read."""
    found: dict[str, tuple[Row, int]] = {}
    held = rows_by_file(seals)
    digests = {name: digest for seal in seals.values() for name, digest in seal.files.items()}
    intact: list[str] = []  # read first, because damaged files are slow to read
    for name in held:
        with suppress(FileNotFoundError):
            intact += [name] if sha256(files.read(name)) == digests.get(name) else []
    for name in dict.fromkeys([*intact, *data_files, *held]):
        rows = held.get(name, wanted)
        missing = {i for i, digest in wanted.items() if i not in found and rows.get(i) == digest}
        if not missing:
            continue
        for row, seq in _stored_rows(files, name, name in intact):
            if row.id in missing and wanted[row.id] == row.sha256 and row.intact:
                found[row.id] = row, seq
    return found


def _stored_rows(files: Files, name: str, intact: bool) -> list[tuple[Row, int]]:
    """Every row of a data file that can be decoded, with its sequence number."""
    tables: list[Any] = []
    if intact:
        tables = [stored(files, name).read_all().to_table()]
    elif files.exists(name):
        tables = _read_apart(files, name)
    return [pair for t in tables for pair in zip(ArrowRows(t), t["seq"].to_pylist(), strict=True)]


def _read_apart(files: Files, name: str) -> list[Any]:
    """One table per row of a damaged file, read by child processes, which may crash."""
    import pyarrow as pa

    with tempfile.TemporaryDirectory() as folder:
        copy = open_files(folder)
        copy.write(name, files.read(name))  # a copy, so that the child needs no storage options
        start = 0
        for _ in range(_N_DEATHS):
            command = [sys.executable, "-m", "recap.pool.salvage", folder, name, str(start)]
            try:
                subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True)
                break
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
                begun = Path(folder, "begun")
                if not begun.exists() or int(begun.read_text()) < start:
                    break
                start = int(begun.read_text()) + 1
        return [pa.ipc.open_file(path).read_all() for path in sorted(Path(folder).glob("*.arrow"))]


def _read_here(folder: Path, name: str, start: int) -> None:
    """In the child process: write each intact row to its own file."""
    import pyarrow as pa

    files = open_files(str(folder))
    for row in range(start, stored(files, name).num_rows()):
        (folder / "begun").write_text(str(row))
        with suppress(Damage), reading(name):
            table = stored(files, name).take_rows([row]).to_table()
            if ArrowRows(table)[0].intact:
                partial = folder / f".{row:08d}"
                with pa.ipc.new_file(partial, table.schema) as out:
                    out.write_table(table)
                partial.rename(folder / f"{row:08d}.arrow")


if __name__ == "__main__":
    _read_here(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))

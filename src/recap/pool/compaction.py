"""Merges small fragments of a pool's newest version and drops deleted rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recap.pool.keys import Key
from recap.pool.schema import Row, table_of, with_attribute
from recap.pool.table import Damage, Table
from recap.types import Scalar

N_SMALL = 64  # number of small fragments at which the next add merges them
SMALL = 1024  # rows below which a fragment is small
DELETED = 0.1  # share of deleted rows above which a fragment is merged too


def is_due(dataset: Any) -> bool:
    """True if so many fragments are small that reading is slow."""
    small = [f for f in dataset.get_fragments() if f.metadata.num_rows < SMALL]
    return len(small) >= N_SMALL


def compact(table: Table, dataset: Any) -> Any:
    """Commit the longest run of adjacent small fragments as one; damaged fragments are never copied."""
    run = max(_small_runs(table, dataset), key=len)
    if len(run) < 2 and not any(meta.num_deletions for meta, _ in run):
        return dataset
    pairs = sorted((pair for _, pairs in run for pair in pairs), key=lambda pair: pair[1])
    new = table.write(dataset, table_of([row for row, _ in pairs], [seq for _, seq in pairs]))
    return table.rewrite(dataset, [meta for meta, _ in run], new)


def rewrite(
    table: Table, dataset: Any, numbers: Sequence[int], change: Callable[[Row], Row | None], what: str
) -> Any:
    """Commit some fragments as one with other rows; None leaves a row out."""
    index = table.index(dataset)
    seqs = {key.id: key.seq for number in numbers for key in index.of_fragment(number).keys}
    rows = [change(row) for number in numbers for row in table.fragment_rows(dataset, number)]
    kept = sorted((row for row in rows if row is not None), key=lambda row: seqs[row.id])
    new = table.write(dataset, table_of(kept, [seqs[row.id] for row in kept])) if kept else None
    return table.replace(dataset, numbers, new, (), what)


def set_attribute(table: Table, dataset: Any, keys: Sequence[Key], name: str, value: Scalar | None) -> Any:
    """Commit rows with a new value of an attribute; None removes it."""
    rows = {key.id: table.row(dataset, key) for key in keys}
    new = {episode: with_attribute(row, name, value) for episode, row in rows.items()}
    numbers = sorted({key.fragment for key in keys if new[key.id] is not rows[key.id]})
    if not numbers:
        return dataset
    return rewrite(table, dataset, numbers, lambda row: new.get(row.id, row), name)


def _small_runs(table: Table, dataset: Any) -> list[list[tuple[Any, list[tuple[Row, int]]]]]:
    """Runs of adjacent fragments to merge, each with its rows and their sequence numbers."""
    run: list[tuple[Any, list[tuple[Row, int]]]] = []
    runs = [run]
    for fragment in dataset.get_fragments():
        meta = fragment.metadata
        rows = None
        if meta.num_rows < SMALL or meta.num_deletions > DELETED * meta.physical_rows:
            rows = _whole_rows(table, dataset, meta.id)
        if rows is None:  # large enough, or damaged
            run = []
            runs.append(run)
        else:
            run.append((meta, rows))
    return runs


def _whole_rows(table: Table, dataset: Any, fragment: int) -> list[tuple[Row, int]] | None:
    """The rows of a fragment, if every one is intact."""
    seqs = {key.id: key.seq for key in table.index(dataset).of_fragment(fragment).keys}
    try:
        rows = table.fragment_rows(dataset, fragment)
    except Damage:
        return None
    if len(rows) != len(seqs) or any(row.id not in seqs or not row.intact for row in rows):
        return None
    return [(row, seqs[row.id]) for row in rows]

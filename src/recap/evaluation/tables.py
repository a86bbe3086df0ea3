"""Numbers in a table, for a terminal or a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def number_table(heads: Sequence[str], rows: Iterable[Sequence[str]], space: int = 2) -> Table:
    """Names on the left and numbers on the right; an empty row is a gap."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, space, 0, 0))
    for number, name in enumerate(heads):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table

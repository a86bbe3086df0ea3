"""What the commands show on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with an estimate on a terminal's stderr; nothing when stderr is a file."""
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    with Progress(
        *Progress.get_default_columns(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show(what: object) -> None:
    """Print something rich can render, also when piped."""
    from rich.console import Console

    Console(highlight=False, soft_wrap=False).print(what)

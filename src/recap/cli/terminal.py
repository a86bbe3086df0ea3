"""What the commands show on a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

LINE_EVERY_S = 5.0  # without a terminal, at first
N_LINES = 20  # of what takes long: a line whenever it has gone on for another twentieth
WIDTH = 160  # columns without a terminal: a table is read whole in a file


class Progress(Protocol):
    """Told how far something is."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """So many of all; the note is shown beside."""


def plain(text: object) -> str:
    """Words of others without what would drive a terminal: control characters become \\x1b and the like."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def say(text: str) -> None:
    """A line on stderr at once: what a long command is doing."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """A bar with an estimate on a terminal's stderr; a line every few seconds where stderr is none."""
    if not sys.stderr.isatty():
        yield _lines(what)
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (*rich.Progress.get_default_columns(), rich.TimeElapsedColumn())
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def report(done: int, total: int, note: str = "") -> None:
            bar.update(task, completed=done, total=total or None, description=f"{what} {note}".strip())

        yield report


def _lines(what: str) -> Progress:
    begun = last = time.monotonic()
    first: int | None = None

    def report(done: int, total: int, note: str = "") -> None:
        nonlocal last, first
        first = done if first is None else first
        now = time.monotonic()
        if now - last < max(LINE_EVERY_S, (now - begun) / N_LINES) or (last == begun and done == total > 0):
            return
        last = now
        parts, rate = [f"{what}: {done} of {total}"], (done - first) / (now - begun)
        if rate > 0:
            parts.append(f"{rate:.1f} a second" if rate >= 0.1 else f"{1 / rate:.0f} s each")
        if rate > 0 and total > done:
            parts.append(f"{_span((total - done) / rate)} left")
        say(", ".join([*parts, note] if note else parts))

    return report


def _span(seconds: float) -> str:
    """Such as 75 s, 12 min or 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def show(what: object) -> None:
    """Print something rich can render, also when piped."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH
    Console(highlight=False, soft_wrap=False, width=width).print(what)

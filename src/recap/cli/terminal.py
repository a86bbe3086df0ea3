"""Terminal output of the commands."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

LINE_EVERY_S = 5.0  # minimum interval of progress lines without a terminal
N_LINES = 20  # later the interval is this fraction of the elapsed time: 1/20
WIDTH = 160  # columns without a terminal, so that tables in files are complete


class Progress(Protocol):
    """A callback for progress."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Report that `done` of `total` are done; the note is shown next to it."""


def plain(text: object) -> str:
    """Escape control characters of untrusted text, such as \\x1b, so that it cannot control the terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def say(text: str) -> None:
    """Print a status line to stderr at once."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """A progress bar with an estimate on stderr; without a terminal, a line every few seconds."""
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
    """Format a duration, such as 75 s, 12 min or 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def show(what: object) -> None:
    """Print a rich renderable, also into a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH
    Console(highlight=False, soft_wrap=False, width=width).print(what)

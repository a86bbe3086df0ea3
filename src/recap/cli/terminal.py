"""What the commands show on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINE_EVERY_S = 5.0  # without a terminal


def plain(text: object) -> str:
    """Words of others without what would drive a terminal: control characters become \\x1b and the like."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def say(text: str) -> None:
    """A line on stderr at once: what a long command is doing."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with an estimate on a terminal's stderr; a line every few seconds where stderr is none."""
    if not sys.stderr.isatty():
        yield _lines(what)
        return
    from rich.console import Console
    from rich.progress import Progress, TimeElapsedColumn

    with Progress(
        *Progress.get_default_columns(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(what: str) -> Callable[[int, int], None]:
    begun = last = time.monotonic()
    first: int | None = None

    def report(done: int, total: int) -> None:
        nonlocal last, first
        first = done if first is None else first
        now = time.monotonic()
        if now - last < LINE_EVERY_S:
            return
        last = now
        rate = (done - first) / (now - begun)
        left = f", {(total - done) / rate:.0f} s left" if rate > 0 and total >= done else ""
        say(f"{what}: {done} of {total}, {rate:.1f} a second{left}")

    return report


def show(what: object) -> None:
    """Print something rich can render, also when piped."""
    from rich.console import Console

    Console(highlight=False, soft_wrap=False).print(what)

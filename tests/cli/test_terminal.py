"""Progress display, with a terminal and without."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recap.cli import terminal
from recap.cli.train import _bars


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(terminal, "time", made)
    return made


def at(clock: Clock, report: Callable[[int, int], None], seconds: float, done: int, total: int = 20) -> None:
    clock.now = 100.0 + seconds
    report(done, total)


def test_without_a_terminal_progress_is_a_line_every_few_seconds(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal.progress_bar("episodes") as report:
        for seconds, done in ((0, 0), (1, 2), (4.9, 3)):
            at(clock, report, seconds, done)
        assert capsys.readouterr() == ("", "")
        at(clock, report, 5, 5)
        assert capsys.readouterr() == ("", "episodes: 5 of 20, 1.0 a second, 15 s left\n")
        at(clock, report, 9.9, 6)
        assert capsys.readouterr().err == ""
        at(clock, report, 20, 10)
        assert capsys.readouterr() == ("", "episodes: 10 of 20, 0.5 a second, 20 s left\n")


def test_items_done_before_the_start_do_not_count_for_the_rate(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal.progress_bar("episodes") as report:
        at(clock, report, 0, 10)
        at(clock, report, 5, 10)
        at(clock, report, 10, 15)
    assert capsys.readouterr().err.splitlines() == [
        "episodes: 10 of 20",
        "episodes: 15 of 20, 0.5 a second, 10 s left",
    ]


def test_long_jobs_print_fewer_lines_in_larger_units(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal.progress_bar("demonstrations") as report:
        for seconds in range(0, 36_001, 5):
            at(clock, report, seconds, seconds // 50, 1440)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 150
    assert lines[0] == "demonstrations: 0 of 1440"
    assert all(line.endswith(" h left") and " s each, " in line for line in lines[60:])
    clock.now = 100.0
    with terminal.progress_bar("rows") as report:
        for seconds, done in ((0, 0), (10, 10)):
            at(clock, report, seconds, done, 610)
    assert capsys.readouterr().err.endswith(", 10 min left\n")


def test_short_jobs_print_no_progress(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.progress_bar("episodes") as report:
        at(clock, report, 1, 20)
    with terminal.progress_bar("films") as report:
        at(clock, report, 9, 1, 1)
    assert capsys.readouterr() == ("", ""), "only the result is printed"


def test_each_stage_of_training_has_its_own_estimate(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with _bars(True) as report:
        assert report is not None
        report("moments", 0, 0, "")
        for seconds, what, done in ((0, "moments", 0), (6, "moments", 6), (50, "iterations", 0)):
            clock.now = 100.0 + seconds
            report(what, done, 20, "")
        clock.now = 155.0
        report("iterations", 10, 20, "loss action 0.5")
    assert capsys.readouterr().err.splitlines() == [
        "moments …",
        "moments: 6 of 20, 1.0 a second, 14 s left",
        "iterations: 10 of 20, 2.0 a second, 5 s left, loss action 0.5",
    ]
    with _bars(False) as report:
        assert report is None, "only the main process shows anything"


def test_on_a_terminal_progress_is_a_bar_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with terminal.progress_bar("episodes") as report:
        report(3, 20)
        report(20, 20, "loss 0.5")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "a second" not in captured.err


def test_say_prints_a_line_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say("Loading …")
    assert capsys.readouterr() == ("", "Loading …\n")

"""Error messages and exit codes of commands and scripts."""

from __future__ import annotations

import errno
import sys

import pytest

from recap.cli.one_line import in_one_line, run_script
from recap.errors import InputError


def caused(error: BaseException) -> BaseException:
    """The error that numba or torch raises when Ctrl-C interrupts it."""
    error.__cause__ = KeyboardInterrupt()
    return error


def raises(error: BaseException) -> object:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (InputError("no such\n goal: give one"), 2, "who: no such goal: give one"),
        (OSError(errno.ENOSPC, "No space left on device", "x.bin"), 2, "(x.bin): free some space"),
        (OSError("LanceError(IO): full (os error 28), /lance/src/writer.rs:190:9"), 2, "device: free some"),
        (KeyboardInterrupt(), 130, "who: stopped"),
        (KeyboardInterrupt("kept 3 of 5"), 130, "who: kept 3 of 5"),
        (caused(SystemError("compiled code returned a result with an exception set")), 130, "who: stopped"),
        (caused(ImportError("cannot load a library")), 130, "who: stopped"),
    ],
)
def test_user_errors_and_interrupts_are_one_line(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_one_line(lambda: raises(error), "who") == code
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1


def test_internal_errors_are_raised_with_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        in_one_line(lambda: 1 // 0)
    with pytest.raises(SystemError):
        in_one_line(lambda: raises(SystemError("not stopped by anyone")))
    with pytest.raises(InputError):
        in_one_line(lambda: raises(InputError("x")), debug=True)


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (1, 1), ("done", 0)])
def test_a_scripts_exit_code_is_what_its_main_returns(
    result: object, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["research/benchmarks/some.py"])
    with pytest.raises(SystemExit) as ended:
        run_script(lambda: result)
    assert ended.value.code == code

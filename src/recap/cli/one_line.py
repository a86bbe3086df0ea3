"""Prints user errors as one line: what, why, what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from recap.errors import RecapError, explain_os_error
from recap.extras import extra_of

STOPPED = "stopped; the same command begins again or resumes"


def in_one_line(run: Callable[[], object], who: str = "recap", *, debug: bool = False) -> int:
    """Call `run` and return an exit code: its own, 2 after a user error, 130 after Ctrl-C.

    Args:
        who: the program's name before the message.
        debug: raise user errors instead.
    """
    try:
        code = run()
    except RecapError as error:
        if debug:
            raise
        return _tell(who, f"{error} [{error.code}]", 2)
    except OSError as error:
        if debug:
            raise
        return _tell(who, _of_the_system(error), 2)
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if debug or extra is None:
            raise
        return _tell(who, f"'{error.name}' is not installed: pip install 'recap-robot[{extra}]'", 2)
    except KeyboardInterrupt as stop:
        return _tell(who, str(stop) or STOPPED, 130)
    except (SystemError, ImportError) as error:
        # Ctrl-C inside compiled code, or while a library is loading, can become another error.
        if not _was_stopped(error):
            raise
        return _tell(who, STOPPED, 130)
    return code if isinstance(code, int) else 0


def _was_stopped(error: BaseException | None) -> bool:
    """True if Ctrl-C is in the chain of causes of an error."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def run_script(main: Callable[[], object]) -> NoReturn:
    """Run a script and exit, with errors as on the command line under the script's name."""
    sys.exit(in_one_line(main, Path(sys.argv[0]).name))


def _tell(who: str, message: str, code: int) -> int:
    print(f"{who}: " + " ".join(message.split()), file=sys.stderr)
    return code


def _of_the_system(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    what, remedy = explain_os_error(error)
    return f"{what}{where}: {remedy}" if remedy else f"{what}{where}"

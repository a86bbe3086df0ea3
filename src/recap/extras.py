"""Finds the extra of this distribution that installs a missing package."""

from __future__ import annotations

import importlib
import re
import signal
import threading
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, requires

from recap.errors import InputError

DISTRIBUTION = "recap-robot"
NAMED_OTHERWISE = {"cv2": "opencv-python"}  # module -> distribution


def extra_of(module: str) -> str | None:
    """The smallest extra that installs a module, or None."""
    top = module.partition(".")[0]
    name = NAMED_OTHERWISE.get(top, top).replace("_", "-").lower()
    extras = _extras()
    bringing = [extra for extra, names in extras.items() if name in names]
    return min(bringing, key=lambda extra: len(extras[extra]), default=None)


def require_extra(extra: str, what: str) -> None:
    """Raise an InputError of one line if a package of an extra is not installed."""
    lacking = [name for name in _packages(extra) if not _installed(name)]
    if lacking:
        shown = ", ".join(lacking)
        raise InputError(
            f"{what} needs packages that are not installed ({shown}): pip install '{DISTRIBUTION}[{extra}]'",
            code="not-installed",
        )


def load_torch() -> None:
    """Import torch and defer Ctrl-C meanwhile, which can abort the process while compiled code is loading."""
    stopped: list[int] = []
    can = threading.current_thread() is threading.main_thread()
    is_ours = can and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, lambda number, _: stopped.append(number))
    try:
        importlib.import_module("torch")
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if stopped:
        raise KeyboardInterrupt


def _packages(extra: str) -> Iterator[str]:
    """The packages of an extra and of the extras that it includes."""
    for name in _extras().get(extra, []):
        inner = re.fullmatch(rf"{DISTRIBUTION}\[([\w,-]+)\]", name)
        if inner is None:
            yield name
        else:
            for each in inner[1].split(","):
                yield from _packages(each)


def _extras() -> dict[str, list[str]]:
    """Extra -> its packages; an included extra is listed as `recap-robot[name]`."""
    try:
        needed = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return {}
    extras: dict[str, list[str]] = {}
    for line in needed:
        found = re.match(r"([\w.-]+(?:\[[\w,-]+\])?).*extra == ['\"]([\w-]+)['\"]", line)
        if found:
            extras.setdefault(found[2], []).append(found[1].lower())
    return extras


def _installed(name: str) -> bool:
    names = (name, "opencv-python-headless") if name == "opencv-python" else (name,)
    for each in names:
        try:
            distribution(each)
        except PackageNotFoundError:
            continue
        return True
    return False

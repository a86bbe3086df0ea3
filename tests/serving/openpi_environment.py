"""PyPI's `openpi-client` and its dependencies in a folder of their own, installed once and cached."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "0.1.2"
# It requires numpy < 2, which has no wheels for newer Pythons. It also runs on numpy 2.
NUMPY = "numpy<2" if sys.version_info < (3, 13) else "numpy"
PACKAGES = (
    NUMPY,
    "dm-tree",
    "msgpack",
    "websockets",
    "pillow",
    "absl-py",
    "attrs",
    "wrapt",
    "typing_extensions",
)


def openpi_folder() -> Path:
    """The folder of the installation; a one-line error if it cannot be installed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recap"
    tag = f"openpi-client-{VERSION}-py{sys.version_info.major}{sys.version_info.minor}"
    folder, partial = cache / tag, cache / f".{tag}.{os.getpid()}"
    if folder.is_dir():
        return folder
    pip = [sys.executable, "-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        pip = [shutil.which("python3", path=os.defpath) or "python3", "-m", "pip", "--python", sys.executable]
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    packages = [f"openpi-client=={VERSION}", *PACKAGES]
    done = subprocess.run(
        [*pip, "install", *options, "--target", str(partial), *packages], capture_output=True, text=True
    )
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        why = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise AssertionError(
            f"openpi-client {VERSION} cannot be installed (is the registry reachable?): {why}"
        )
    partial.rename(folder)
    return folder


def run_with_openpi(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code that can import openpi-client but not recap."""
    start = f"import sys; sys.path.insert(0, {str(openpi_folder())!r})\n"
    command = [sys.executable, "-I", "-S", "-c", start + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)

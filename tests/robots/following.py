"""Pages whose shell commands are carried out as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """In which a command finds the robots of the tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}


def follow(page: Path, place: Path, changes: Mapping[str, str] = MappingProxyType({})) -> None:
    """Run the shell commands of a page in a folder, some words replaced; a server beside the rest."""
    text = "".join(re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
    for old, new in changes.items():
        assert old in text, f"{page.name} has no '{old}' any more"
        text = text.replace(old, new)
    follow_lines(text.splitlines(), place)


def follow_lines(lines: Sequence[str], place: Path) -> None:
    """Run commands in a folder; one server at a time, at a port that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**environment(), "PATH": path}
    server: subprocess.Popen[str] | None = None
    try:
        for line in lines:
            words = shlex.split(line.replace("8000", str(port)), comments=True)
            if not words or words[0] == "source":  # the environment is there
                continue
            known = {"recap": [sys.executable, "-m", "recap"], "python": [sys.executable]}
            words = known.get(words[0], words[:1]) + words[1:]
            if "serve" in words:
                if server is not None:
                    server.terminate()
                    server.wait()
                words += [] if "--port" in words else ["--port", str(port)]
                server = subprocess.Popen(words, cwd=place, env=env, text=True)
                wait_for(port)
                continue
            done = subprocess.run(words, cwd=place, env=env, capture_output=True, text=True)
            allowed = (0, 1) if "check" in words else (0,)  # its verdict on a toy is not the point
            assert done.returncode in allowed, f"{line}\n{done.stdout}\n{done.stderr}"
    finally:
        if server is not None:
            server.terminate()
            server.wait()


def wait_for(port: int) -> None:
    """Until a server listens there."""
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"nothing listens on {port}")

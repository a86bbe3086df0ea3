"""Pages whose shell commands are carried out as a reader would."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[2]
PORTS = ("8000", "8001", "8002")  # of the pages; each becomes one that is free
SERVES = re.compile(r"\s*(?:\w+=\S+ )?(?:recap serve|recap studio|haproxy|nginx)\b")
COMMENT = re.compile(r"\s+#.*$")
# A server runs beside the rest, instead of what was at its port; what ends before it listens has failed.
PRELUDE = """set -ex
declare -A at
listen() {
    { local port=$1; shift; } 2>/dev/null
    if [ -n "${at[$port]}" ]; then kill ${at[$port]}; wait ${at[$port]} || true; fi
    env "$@" & at[$port]=$!
    { until (: < /dev/tcp/127.0.0.1/$port); do kill -0 ${at[$port]} || exit 3; sleep 0.1; done; } 2>/dev/null
}
"""


def environment() -> dict[str, str]:
    """In which a command finds the robots of the tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}


def follow(
    page: Path, place: Path, changes: Mapping[str, str] = MappingProxyType({}), before: str = ""
) -> None:
    """Run the shell commands of a page in a folder after others, patterns of its own replaced."""
    text = "".join(re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
    for old, new in changes.items():
        text, found = re.subn(old, new, text)
        assert found, f"{page.name} has no '{old}' any more"
    follow_lines([*before.splitlines(), *text.splitlines()], place)


def follow_lines(lines: Iterable[str], place: Path) -> None:
    """Run commands in a folder by one shell, which ends at the first that fails; no server outlives it."""
    with ExitStack() as held:
        free = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in PORTS]
        ports = dict(zip(PORTS, (str(each.getsockname()[1]) for each in free), strict=True))
    text = re.sub("|".join(PORTS), lambda found: ports[found[0]], "\n".join(commands(lines)))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    log = place / "followed.log"
    with log.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-c", PRELUDE + text],
            cwd=place,
            env={**environment(), "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait()
        finally:
            with suppress(ProcessLookupError):  # no server is left
                os.killpg(shell.pid, signal.SIGTERM)
    assert code == 0, log.read_text("utf-8", "replace")[-6000:]


def commands(lines: Iterable[str]) -> Iterator[str]:
    """As the shell takes them: servers beside the rest; the verdict of a check on a toy is not the point."""
    for line in lines:
        if SERVES.match(line):
            bare = COMMENT.sub("", line).rstrip(" &")
            port = re.search(r"--port (\d+)", bare)
            default = "" if port or "recap" not in bare else f" --port {PORTS[0]}"
            yield f"listen {port[1] if port else PORTS[0]} {bare}{default}"
        elif line.startswith("recap run") and "--url" not in line:
            yield f"{COMMENT.sub('', line)} --url ws://127.0.0.1:{PORTS[0]}"
        elif "recap check" in line:
            yield COMMENT.sub("", line) + " || [ $? = 1 ]"
        elif not line.startswith("source "):  # the environment is there
            yield line

"""The command `recap serve`."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest

from episodes import random_episode
from recap.cli import main
from recap.pool.store import Pool

ENV = {key: value for key, value in os.environ.items() if key != "RECAP_TOKEN"}
STEPS = ("Loading", "Opening", "Preparing")  # the progress lines before the server is ready
Captured: TypeAlias = pytest.CaptureFixture[str]


def refused(capsys: Captured, *options: str) -> list[str]:
    """The lines on stderr of a command that exits with 2."""
    with pytest.raises(SystemExit) as caught:
        main(["serve", *options])
    assert caught.value.code == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_its_address_answers_and_stops_on_a_signal(tmp_path: Path, stop: signal.Signals) -> None:
    Pool.create(tmp_path / "pool").add([random_episode("demo", 1)])
    command = [sys.executable, "-m", "recap", "serve", "replay", "--pool", str(tmp_path / "pool")]
    with subprocess.Popen(
        [*command, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENV, "PYTHONUNBUFFERED": "1"},
    ) as server:
        try:
            assert server.stdout is not None
            shown = dict(server.stdout.readline().split(": ", 1) for _ in range(5))
            assert re.match(r"replay, fingerprint [0-9a-f]{12}\n", shown["Serving"])
            assert shown["Pool"].startswith("version 2, 1 demonstrations ")
            assert all(word in shown["Robot"] for word in ("disc", "2-D", "10 Hz")), "inferred from the pool"
            assert "Next" in shown
            port = re.match(r"ws://127\.0\.0\.1:(\d+)", shown["Robots"])
            assert port is not None
            with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/healthz", timeout=60) as answer:
                assert answer.read() == b"ok\n"
            server.send_signal(stop)
            rest, errors = server.communicate(timeout=120)
        finally:
            server.kill()
    assert (server.returncode, rest) == (0, "Stopped.\n")
    assert [line.partition(" ")[0] for line in errors.splitlines()] == list(STEPS)


def test_serve_prints_loading_before_heavy_imports() -> None:
    code = (
        "import sys, recap.cli.terminal as t\n"
        "heavy = {'lance', 'torch', 'numba'}\n"
        "t.say = lambda text: (print(text, sorted(heavy & set(sys.modules))), 1 / 0)\n"
        "from recap.cli import main\n"
        "main(['serve', 'replay', '--pool', 'x'])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENV).stdout
    assert told == "Loading replay … []\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["pusht-nanno"], "did you mean 'pusht-nano'"),
        (["replay", "--host", "0.0.0.0"], "--token"),
        (["replay", "--pool", "nowhere/pool"], "recap pool create"),
        (["pusht-nano", "--env.block", "tea"], "did you mean 'tee'"),
        (["pusht-nano", "--env.blok", "tee"], "'blok': did you mean 'block'"),
    ],
)
def test_a_wrong_option_is_a_one_line_error(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RECAP_TOKEN", raising=False)
    *loading, error = refused(capsys, *options)
    assert [line.partition(" ")[0] for line in loading] == list(STEPS[: len(loading)])
    assert error.startswith("recap: ")
    assert words in error


def test_a_port_in_use_is_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(
        sys, "setswitchinterval", lambda seconds: None
    )  # must not change in this process, which continues
    Pool.create(tmp_path / "pool").add([random_episode("demo", 1)])
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        *loading, error = refused(capsys, "replay", "--pool", str(tmp_path / "pool"), "--port", port)
    assert [line.partition(" ")[0] for line in loading] == list(STEPS)
    assert port in error
    assert "--port" in error

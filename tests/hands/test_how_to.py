"""The commands of docs/how-to/teach-with-your-hands.md on a stored video; `make test-long` runs it."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from board_views import view
from click.testing import CliRunner

from recap.cli import cli
from recap.pictures import write_png
from recap.pool.store import Pool

pytestmark = pytest.mark.long
if "mediapipe" not in os.environ.get("RECAP_NEEDS", ""):
    pytest.importorskip("mediapipe", reason="no mediapipe: make hands installs it")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/teach-with-your-hands.md"


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    for number in range(10):
        write_png(tmp_path / f"views/{number}.jpg", view(number))  # PNG content, which OpenCV recognises
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    commands = [line for block in blocks for line in block.splitlines() if line.startswith("recap ")]
    assert len(commands) == 6
    for command in commands:
        words = shlex.split(command)[1:]
        words = [str(p) for w in words for p in (sorted(tmp_path.glob(w)) if "*" in w else [w])]
        result = CliRunner().invoke(cli, words)
        assert result.exception is None, f"{command}: {result.output} {result.exception}"
        print(f"$ {command}\n{result.output}")
    assert (tmp_path / "calibration-front.png").is_file()
    assert (tmp_path / "board.pdf").is_file()
    (episode,) = Pool.open("pools/hands")
    assert (len(episode), episode.task) == (621, "show a hand")
    assert (tmp_path / "data/hands/0/preview.mp4").is_file()

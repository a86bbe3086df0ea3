"""`recap retrieve`: the matches for one frame of a demonstration, and why."""

from pathlib import Path

import pytest

from recap.cli import main

AT = "pusht/tee/-60/100000/disc:40"


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(["retrieve", *arguments])
    return caught.value.code


def test_retrieve_explains_matches_in_text_and_an_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "why.png"
    assert run("pusht-9x100", "--at", AT, "--explain", "--matches", "3", "--out", str(picture)) == 0
    shown = capsys.readouterr().out
    rows = [line for line in shown.splitlines() if line.startswith("pusht/") and "lost" not in line]
    assert len(rows) == 3
    assert "100000" not in "".join(rows), "the query's own scene is left out"
    assert "lost mostly by" in shown
    assert "Confidence 0." in shown
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pusht-9x100", "--at", "nowhere"], "give EPISODE:T"),
        (["pusht-9x100", "--at", "nowhere:3"], "has no episode 'nowhere'"),
        (["pusht-9x100", "--at", AT + "99"], "frame 4099 does not exist"),
        (["pusht-9x10", "--at", AT], "did you mean 'pusht-9x100'"),
        (["pusht-9x100", "--at", AT, "--retrieval", "pusht-objct"], "did you mean 'pusht-object'"),
    ],
)
def test_wrong_arguments_are_errors_that_name_the_mistake(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert words in capsys.readouterr().err

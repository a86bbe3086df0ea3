"""README, docs, help and errors use the field's words, and no words private to this project."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Measurements keep the names under which they were recorded; the list of decisions translates them.
RECORDS = ("docs/results/measured/", "docs/log.md", "docs/decisions/README.md")
# Private word -> replacement.
PRIVATE = {
    r"hindsight": "sub-trajectories",
    r"premise(?!\.json)": "recap check",
    r"half[- ]at": "--residual-halflife",
    r"look_alike": "symmetry_index",
    r"told": "said, given, named",
    r"handed on": "passed",
    r"steps?[_ ]aside": "contact_offsets",
    r"looking[_ ]after": "scale_for_replan_interval",
    r"objects_from_now": "relative_object_poses",
    r"NOBODY": "TaskContext",
    r"Eyes": "PixelPoses",
    r"Gaze": "PoseTracker",
    r"Blur": "PoseNoise",
    r"strangers?": "user",
    r"crowd": "many clients",
    r"rehears\w*": "debug",
    r"foresees?": "predict",
    r"helping|house": "plain words",
    r"--checkpoint": "POLICY",
    # Unusual phrases.
    r"is carried|carri(?:es|ed) (?:out|over)": "executes, transforms",
    r"stands? beside": "is compared with, is listed next to",
    r"looks? alike": "is similar",
    r"what the \w+ is worth": "effect, gain",
    r"by the same command": "repeat the command",
    r"goes on where": "resumes",
    r"(?:begins?|starts?|runs?|begun|draws?) anew": "again",
    r"begin alike": "start from the same scene",
    r"an? \w+ of (?:ours|yours)|of (?:ours|yours) alone": "our, your",
    r"acts? out": "executes",
    r"as far as it goes": "so far",
}
PATTERN = re.compile("|".join(rf"(?<![\w/-])(?:{word})(?![\w-])" for word in PRIVATE))


def pages() -> list[Path]:
    found = [ROOT / "README.md", *ROOT.glob("examples/*/README.md"), *ROOT.glob("docs/**/*.md")]
    return sorted(p for p in found if not p.relative_to(ROOT).as_posix().startswith(RECORDS))


def private(text: str) -> list[str]:
    """The private words in a text; link targets are ignored."""
    return PATTERN.findall(re.sub(r"\]\([^)]*\)", "]", text))


def messages(file: Path) -> Iterator[tuple[int, str]]:
    """The lines and texts of a module's error messages."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Raise) and node.exc is not None:
            for part in ast.walk(node.exc):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_have_no_private_words(page: Path) -> None:
    """This covers the commands' help too, as docs/reference is generated from it."""
    found = [
        f"{number}: {words}"
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1)
        if (words := private(line))
    ]
    assert not found, f"say it in the field's words: {found}"


@pytest.mark.parametrize("folder", ["src", "client", "apps", "integrations"])
def test_errors_have_no_private_words(folder: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {words}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line, text in messages(file)
        if (words := private(text))
    ]
    assert not found, f"say it in the field's words: {found}"


def test_a_private_word_would_be_found() -> None:
    assert private("replay with hindsight") == ["hindsight"]
    assert private("[load tests](crowd.md), warehouse") == []

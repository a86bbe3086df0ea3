"""The docs: valid commands, links and figures."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from recap.cli import cli

ROOT = Path(__file__).parents[1]
HOW_TOS = sorted(
    page for part in ("how-to", "start", "tutorials") for page in (ROOT / "docs" / part).glob("*.md")
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "examples").glob("*/README.md")), *HOW_TOS]


def commands(page: Path) -> list[str]:
    """The `recap` commands in shell blocks, with continued lines joined."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    text = "\n".join(blocks).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip().startswith("recap ")]


def parse(words: list[str]) -> None:
    """Parses the words as the command line does, without running anything."""
    command: click.Command = cli
    context = click.Context(cli, info_name="recap")
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"there is no command '{words[0]}'"
        command, words = found, words[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    command.make_context(command.name, list(words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_the_command_line_accepts_every_command_of_a_page(page: Path) -> None:
    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        end = next((i for i, word in enumerate(words) if word in ("&", ">")), len(words))
        words = words[:end]
        if not words or words == ["--version"] or any(word.startswith("$") or word == "…" for word in words):
            continue
        try:
            parse(words)
        except click.ClickException as error:
            pytest.fail(f"{line}\n{error.format_message()}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_no_two_runs_of_a_page_share_a_directory(page: Path) -> None:
    """A directory that holds a run with other settings is refused; --record continues a finished one."""
    writes_none = {"--dry-run", "--list", "--show-config", "--record"}
    runs: dict[str, set[str]] = {}
    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        if words[0] in ("train", "eval") and not writes_none & set(words):
            own = words.index("--out") + 1 if "--out" in words else 0
            size = words[words.index("--size") + 1] if "--size" in words else ""
            runs.setdefault(words[own] if own else f"{words[:2]} {size}", set()).add(" ".join(words))
    assert [lines for lines in runs.values() if len(lines) > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_the_python_blocks_of_a_page_parse(page: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        ast.parse(block)


def test_the_docs_have_commands() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 50


def test_a_wrong_option_in_the_docs_would_be_found() -> None:
    with pytest.raises(click.ClickException, match="--pusher"):
        parse(["eval", "replay", "--env", "pusht", "--pusher", "disc"])


def test_links_of_the_readme_point_to_existing_files_and_headings() -> None:
    """The site's own links are checked by `make docs`."""
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text("utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = ROOT / path
        assert file.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads]
            assert anchor in slugs, target


def test_figures_of_the_short_pages_are_those_of_the_measured_ones() -> None:
    """A figure with its interval is quoted exactly as it was measured."""

    def plain(*pages: str) -> str:
        text = "\n".join((ROOT / page).read_text("utf-8") for page in pages)
        return text.replace("−", "-").replace(" %", "")

    found = [
        page
        for part in ("results/measured", "how-to", "worlds")
        for page in (ROOT / "docs" / part).glob("*.md")
    ]
    long = [page.relative_to(ROOT).as_posix() for page in found]
    measured = plain("docs/log.md", *long)
    short = [
        "README.md",
        "docs/start/demo.md",
        "docs/concepts/alignment.md",
        *(
            f"docs/results/{name}.md"
            for name in ("index", "hands", "pusht", "two-arms", "other-worlds", "seeing-ahead", "speed")
        ),
    ]
    quoted = {page: re.findall(r"[+-]?\d+(?:\.\d+)? \[[^\]\[]*\d\]", plain(page)) for page in short}
    assert sum(map(len, quoted.values())) > 80
    assert [
        (page, figure) for page, all_ in quoted.items() for figure in all_ if figure not in measured
    ] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs/results").glob("*.md")), ids=lambda page: page.stem)
def test_a_results_page_has_at_most_800_words_and_20_table_rows(page: Path) -> None:
    """About two screens of 1440 by 900; the long tables are in docs/results/measured."""
    lines = [line for line in page.read_text("utf-8").splitlines() if not line.startswith("|--")]
    assert sum(line.startswith("|") for line in lines) <= 20
    assert len(re.findall(r"\w+", " ".join(lines))) <= 800


@pytest.mark.parametrize("listing", ["results/measured/index.md", "decisions/README.md"])
def test_every_page_of_a_folder_is_in_its_index(listing: str) -> None:
    page = ROOT / "docs" / listing
    listed = set(re.findall(r"\]\(([^)#/]+\.md)\)", page.read_text("utf-8")))
    assert listed == {other.name for other in page.parent.glob("*.md")} - {page.name}

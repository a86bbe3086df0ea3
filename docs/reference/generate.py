"""Write one page for each command from its own help; `--check` fails when a page is out of date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from recap.cli import cli

HERE = Path(__file__).parent


def commands(
    command: click.Command, path: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """Each command's full name and help, groups first."""
    context = click.Context(
        command, info_name=path.split()[-1], parent=parent, max_content_width=100, terminal_width=100
    )
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, f"{path} {name}", context)


def pages() -> dict[str, str]:
    """File name to text."""
    found = {
        f"{path.replace(' ', '-')}.md": f"# `{path}`\n\n```text\n{text.rstrip()}\n```\n"
        for path, text in commands(cli, "recap")
    }
    links = "\n".join(f"- [`{name[:-3].replace('-', ' ')}`]({name})" for name in found)
    found["README.md"] = (
        f"# Command reference\n\nMade from each command's `--help` by `make reference`.\n\n{links}\n"
    )
    return found


def main() -> int:
    """Write, or check, every page."""
    wanted = pages()
    there = {file.name: file.read_text("utf-8") for file in HERE.glob("*.md")}
    stale = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
    if "--check" in sys.argv[1:]:
        if stale:
            print(f"reference pages out of date: {', '.join(stale)}; run make reference")
        return int(bool(stale))
    for name in stale:
        if name in wanted:
            (HERE / name).write_text(wanted[name], "utf-8")
        else:
            (HERE / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())

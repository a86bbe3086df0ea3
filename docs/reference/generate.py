"""Write a page for each command from its help, and one of all settings; `--check` fails when one is stale."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from recap.agent_config import AgentConfig
from recap.cli import cli
from recap.evaluation.spec import EvalSpec
from recap.policies.config import PolicyConfig
from recap.retrieval.config import RetrievalConfig
from recap.robot import RobotSpec
from recap.training.config import AugmentConfig, PairsConfig, TrainConfig

HERE = Path(__file__).parent
WRITTEN = {"python.md", "wire.md", "formats.md"}  # by hand
SETTINGS = (
    AgentConfig,
    RetrievalConfig,
    EvalSpec,
    TrainConfig,
    PairsConfig,
    AugmentConfig,
    PolicyConfig,
    RobotSpec,
)


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
    found["configuration.md"] = configuration()
    return found


def configuration() -> str:
    """Every field of the settings, with the comment that stands at it."""
    parts = [
        "# Configuration\n\nEvery field of the dataclasses that say what is done, from their source. "
        "`recap train RECIPE --show-config` prints those of a training; `--set NAME=VALUE` changes one."
    ]
    for cls in SETTINGS:
        head = (inspect.getdoc(cls) or "").splitlines()[0]
        rows = "\n".join(
            f"| `{name}` | `{kind}` | {default} | {why} |" for name, kind, default, why in fields(cls)
        )
        table = f"| field | type | default | |\n|---|---|---|---|\n{rows}"
        parts.append(f"## {cls.__name__}\n\n{head}\n\n{table}")
    return "\n\n".join(parts) + "\n"


def fields(cls: type) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and comment of each."""
    source = textwrap.dedent(inspect.getsource(cls))
    lines = source.splitlines()
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        said = [line.partition("  # ")[2] for line in lines[node.lineno - 1 : node.end_lineno]]
        why = " ".join(filter(None, said)).replace("|", "\\|")
        default = "" if node.value is None else ast.unparse(node.value)
        kind = ast.unparse(node.annotation).replace(" | ", " or ")
        shown = (
            f"`{default}`" if default and not default.startswith("field(") else "" if not default else "empty"
        )
        yield node.target.id, kind, shown, why


def main() -> int:
    """Write, or check, every page."""
    wanted = pages()
    there = {file.name: file.read_text("utf-8") for file in HERE.glob("*.md") if file.name not in WRITTEN}
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

"""The command line as a whole: fast help, complete documentation, one-line errors."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from recap.cli import COMMANDS, cli, main, plugins
from recap.cli.settings import DottedCommand
from recap.errors import RecapError

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
HEAVY = ("torch", "numba", "numpy", "gymnasium", "pymunk", "pyarrow", "av", "rich", "ray")


def walk(command: click.Command, path: str, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from walk(child, f"{path} {name}", context)


EVERY_COMMAND = dict(walk(cli, "recap", click.Context(cli)))


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from recap.cli import cli; cli(['--help'], standalone_mode=False); "
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip().endswith("[]"), shown.splitlines()[-1]
    for name in COMMANDS:
        assert name in shown
    unbroken = " ".join(shown.split())
    for entry in plugins().values():
        assert entry.load().get_short_help_str(70) in unbroken


def test_light_modules_import_no_torch() -> None:
    for_each = "__import__(name); assert 'torch' not in sys.modules, name"
    names = ["recap", "recap.types", "recap_worlds.pusht.tasks", "recap.evaluation.agents"]
    code = f"import sys\nfor name in {names}: {for_each}"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("path", EVERY_COMMAND)
def test_every_command_has_help_with_an_example_and_a_page(path: str) -> None:
    command = EVERY_COMMAND[path]
    assert command.help is not None
    assert "Example:" in command.help
    page = REFERENCE / f"{path.replace(' ', '-')}.md"
    assert page.exists(), "run make reference"
    for option in command.params:
        if isinstance(option, click.Option) and path != "recap":
            assert option.opts[0] in page.read_text("utf-8")


@pytest.mark.parametrize("path", [p for p in EVERY_COMMAND if p != "recap"])
def test_the_help_examples_use_existing_options(path: str) -> None:
    command = EVERY_COMMAND[path]
    known = {opt for param in command.params for opt in param.opts}
    lines = (command.help or "").split("Example:")[1].splitlines()
    for line in (line.strip() for line in lines):
        if line.startswith(path + " ") and not isinstance(command, click.Group):
            given = {word.split("=")[0] for word in line.split() if word.startswith("--")}
            if isinstance(command, DottedCommand):
                given = {word for word in given if not word.startswith(f"--{command.prefix}.")}
            assert given <= known, line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evla"], "did you mean 'eval'"),
        (["eval", "exprt"], "did you mean 'expert'"),
        (["eval", "expert", "--env=pusht", "--env.pusher", "square"], "choose one of disc, triangle"),
        (["eval", "expert", "--env=pusht", "--tasks", "abc"], "'abc'"),
        (["eval", "expert"], "no env is given"),
        (["eval", "hold", "--env=pusht", "--pusher=disc"], "--pusher"),
        (["serve", "replay", "--robot.angle", "3"], "--robot.angle"),
        (["run", "--robot", "pusht-sim", "--env.pusher", "disc"], "--env.pusher"),
        (["train"], "recap train --list"),
        (["collect", "pusht", "--out", "x", "--seed", "42"], "kept for evaluation"),
        (["collect", "pusht", "--out", "x", "--stlye", "2"], "--style"),
        (["collect", "pusht"], "--out"),
        (["compare", "nowhere", "nowhere"], "does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("recap: ")
    assert shown.count("\n") == 1
    assert words in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("debug", [True, False])
def test_debug_shows_the_traceback(debug: bool) -> None:
    command = [sys.executable, "-m", "recap", "eval", "exprt", *(["--debug"] if debug else [])]
    shown = subprocess.run(command, capture_output=True, text=True).stderr
    assert ("Traceback" in shown) == debug


def test_a_full_disk_is_a_one_line_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device", "out/eval_info.json")

    monkeypatch.setattr(cli, "main", lambda *_, **__: full())
    with pytest.raises(SystemExit) as caught:
        main(["demo"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith(
        "recap: No space left on device (out/eval_info.json): free some"
    )


def test_error_classes_derive_from_recap_error() -> None:
    assert {kind.__name__ for kind in RecapError.__subclasses__()} >= {
        "DatasetError",
        "InputError",
        "RunDirectoryError",
    }


@pytest.mark.parametrize("words", [[], ["pool"]])
def test_a_bare_command_prints_readable_help(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "recap", *words], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: recap")
    assert len(done.stdout.splitlines()) > 10

"""The command line: one file per command group, without logic of its own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import click

from recap import __version__
from recap.cli.one_line import in_one_line
from recap.errors import InputError, did_you_mean

# A command's module is imported only when it is called, so that `recap --help` is fast.
COMMANDS = {
    "check": ("recap.cli.check:check", "See before training whether a pool is worth retrieving from."),
    "compare": ("recap.cli.evaluate:compare", "Compare two evaluations, paired by start."),
    "eval": ("recap.cli.evaluate:evaluate", "Roll out an agent and count its successes."),
    "init": ("recap.cli.init:init", "Describe the robot of a dataset: write robot.yaml."),
    "pool": ("recap.cli.pool:pool", "Keep demonstrations: add, list, tag, roll back, verify, pack."),
    "retrieve": ("recap.cli.retrieve:retrieve", "See which moment of a pool fits, and why."),
    "run": ("recap.cli.run:run", "Drive a robot by a policy server, at a fixed rate."),
    "serve": ("recap.cli.serving:serve", "Serve a policy to robots on the openpi wire."),
    "train": ("recap.cli.train:train", "Train a policy on pairs of demonstrations."),
    "verify": ("recap.cli.verify:verify", "Check a checkpoint, snapshot or dataset by SHA-256."),
}


@cache
def plugins() -> dict[str, EntryPoint]:
    """Commands of installed packages, by the entry point group `recap.commands`."""
    found = entry_points(group="recap.commands")
    return {entry.name: entry for entry in found if entry.name not in COMMANDS and _is_there(entry)}


def _is_there(entry: EntryPoint) -> bool:
    """False for commands of the repository that are declared by the wheel but not part of it."""
    return importlib.util.find_spec(entry.module.partition(".")[0]) is not None


class LazyGroup(click.Group):
    """A group that imports a command when it is called, and suggests names for unknown ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, without importing them."""
        return sorted([*COMMANDS, *plugins()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name in plugins():
            found: click.Command = plugins()[cmd_name].load()
            return found
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a suggestion for an unknown command."""
        names = self.list_commands(ctx)
        if args and args[0] not in names:
            raise click.UsageError(f"unknown command '{args[0]}': {did_you_mean(args[0], names)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; only those of other packages are imported for their help."""
        lines = {name: line for name, (_, line) in COMMANDS.items()}
        for name, entry in plugins().items():
            lines[name] = entry.load().get_short_help_str(70)
        with formatter.section("Commands"):
            formatter.write_dl(sorted(lines.items()))


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="recap")
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
def cli(debug: bool) -> None:
    """ReCAP: give a frozen robot policy a new task by adding demonstrations.

    \b
    Example:
      recap eval expert --env pusht --env.pusher triangle --tasks=-30,45 --seeds 500:505 --out runs/first
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; user errors are printed as one line with exit code 2."""
    arguments = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]

    def run() -> object:
        try:
            return cli.main(arguments, prog_name="recap", standalone_mode=False)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())  # `recap` alone prints the help
            return 0
        except click.ClickException as error:
            raise InputError(error.format_message()) from error
        except click.Abort:
            raise KeyboardInterrupt from None

    sys.exit(in_one_line(run, debug=debug))

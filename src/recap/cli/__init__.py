"""The command line: one file a command group, no logic of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from recap import __version__
from recap.cli.one_line import in_one_line
from recap.errors import InputError, did_you_mean

# Loaded only when asked for, so that `recap --help` stays quick.
COMMANDS = {
    "collect": ("recap.cli.collect:collect", "Collect demonstrations from a scripted expert."),
    "compare": ("recap.cli.evaluate:compare", "Compare two evaluations, paired by start."),
    "demo": ("recap.cli.demo:demo", "See it work: a table and a video in a few minutes."),
    "eval": ("recap.cli.evaluate:evaluate", "Roll out an agent and count its successes."),
    "pool": ("recap.cli.pool:pool", "Keep demonstrations: add, list, tag, roll back, verify, pack."),
    "premise": ("recap.cli.premise:premise", "See before training whether a pool is worth retrieving from."),
    "report": ("recap.cli.report:report", "Write one page from evaluations and analyses."),
    "retrieve": ("recap.cli.retrieve:retrieve", "See which moment of a pool fits, and why."),
    "robotwin": ("recap.cli.robotwin:robotwin", "Evaluate in a RoboTwin 2.0 checkout of your own."),
    "run": ("recap.cli.run:run", "Drive a robot by a policy server, at a fixed rate."),
    "serve": ("recap.cli.serving:serve", "Serve a policy to robots on the openpi wire."),
    "studio": ("recap.cli.studio:studio", "Teach by dragging, and watch the frozen policy use it."),
    "train": ("recap.cli.train:train", "Train a policy on pairs of demonstrations."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is called, and suggests names for unknown ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, without importing anything."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a better word for an unknown command."""
        if args and args[0] not in COMMANDS:
            raise click.UsageError(f"unknown command '{args[0]}': {did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, again without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="recap")
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
def cli(debug: bool) -> None:
    """ReCAP: give a frozen robot policy a new task by appending demonstrations.

    \b
    Example:
      recap eval expert --pusher triangle --angles=-30,45 --seeds 500:505 --out runs/first
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; an error of the user's is one line and exit code 2."""
    arguments = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]

    def run() -> object:
        try:
            return cli.main(arguments, prog_name="recap", standalone_mode=False)
        except click.ClickException as error:
            raise InputError(error.format_message()) from error
        except click.Abort:
            raise KeyboardInterrupt from None

    sys.exit(in_one_line(run, debug=debug))

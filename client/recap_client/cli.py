"""`recap-client`: drive a robot from a computer without torch and without a pool."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from recap_client.driving import RunSpec, drive
from recap_client.errors import RecapError
from recap_client.options import RUN_OPTIONS, take_dotted

ROBOT = "lerobot:TYPE, a name of an installed package, or package.module:factory."


def parser() -> argparse.ArgumentParser:
    """The argument parser, from the table of options that `recap run` also uses."""
    top = argparse.ArgumentParser("recap-client", description="The robot's side of a ReCAP policy server.")
    run = top.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "run",
        help="drive a robot by a policy server, at a fixed rate",
        description="Drive a robot by a policy server, at a fixed rate. "
        "Options of the robot are given as --robot.NAME VALUE, as LeRobot has them.",
    )
    run.add_argument("--robot", required=True, metavar="NAME", help=ROBOT)
    for option in RUN_OPTIONS:
        text = option.text.replace("%", "%%")
        if option.kind is bool:
            run.add_argument(f"--{option.flag}", action="store_true", help=text)
        elif option.kind is tuple:
            run.add_argument(f"--{option.flag}", action="append", metavar=option.metavar, help=text)
        else:
            kind = option.kind
            run.add_argument(
                f"--{option.flag}", type=kind, default=option.default, metavar=option.metavar, help=text
            )
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; a user error is printed as one line and returns 2."""
    try:
        left, options = take_dotted(sys.argv[1:] if words is None else words, "robot")
        given = vars(parser().parse_args(left))
        drive(RunSpec.of_options(given.pop("robot"), options, given))
    except RecapError as error:
        print("recap-client: " + " ".join(f"{error} [{error.code}]".split()), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0

"""The agent in a separate process, for a RoboTwin with another Python: see `deploy_policy.Remote`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, BinaryIO

import numpy as np

from recap.errors import RecapError
from recap_robotwin.deploy_policy import read_message, write_message
from recap_robotwin.pilot import Pilot


def main() -> None:
    """Serve a pilot with the settings in the first argument until standard input ends."""
    asked = sys.stdin.buffer
    # Messages keep the pipe of stdout. What libraries print goes to stderr.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        pilot = Pilot.open(json.loads(sys.argv[1]))
    except RecapError as error:
        write_message(answers, {"error": np.asarray(" ".join(str(error).split()))})
        return
    write_message(
        answers, {"n_action_steps": np.asarray(pilot.n_action_steps), "cameras": np.asarray(pilot.cameras)}
    )
    serve(pilot, asked, answers)


def serve(pilot: Pilot, asked: BinaryIO, answers: BinaryIO) -> None:
    """Answer messages; user errors are sent as replies, other errors end the process."""
    while (message := read_message(asked)) is not None:
        reply: dict[str, Any] = {}
        try:
            if "reset" in message:
                pilot.reset()
            else:
                reply["action"] = pilot.act(message)
        except RecapError as error:
            reply["error"] = np.asarray(" ".join(str(error).split()))
        write_message(answers, reply)


if __name__ == "__main__":
    main()

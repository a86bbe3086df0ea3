"""ReCAP as a policy of RoboTwin 2.0: `get_model`, `eval` and `reset_model`, which its evaluation calls.

`recap robotwin init` copies this file into RoboTwin's `policy` folder. It needs only numpy. With
`python: PATH` in deploy_policy.yml, ReCAP runs as a separate process in that interpreter, so that RoboTwin
can use an older Python. Without it, ReCAP is imported here.
"""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Mapping
from typing import Any

import numpy as np

OURS = "recap_robotwin"


class Model:
    """An agent, here or in a separate process, and the objects to add to RoboTwin's observation."""

    def __init__(self, agent: Any, objects: Mapping[str, str]) -> None:
        self.agent = agent
        self.objects = objects  # our name -> attribute of the task


def get_model(usr_args: Mapping[str, Any]) -> Model:
    """The agent of the settings in deploy_policy.yml."""
    objects = read_objects(usr_args.get("objects"))
    if usr_args.get("python"):
        return Model(Remote(str(usr_args["python"]), usr_args), objects)
    try:
        from recap_robotwin.pilot import Pilot
    except ImportError as error:
        raise RuntimeError(
            f"recap cannot be imported here ({error}): install it, or name the interpreter that has it as "
            "python: in deploy_policy.yml"
        ) from error
    return Model(Pilot.open(usr_args), objects)


def eval(TASK_ENV: Any, model: Model, observation: Mapping[str, Any]) -> None:  # noqa: N803
    """Execute a chunk and observe after each action, until the task says that it is done."""
    for step in range(model.agent.n_action_steps):
        if step:
            observation = TASK_ENV.get_obs()
        message = flatten(observation, model.agent.cameras)
        message["instruction"] = np.asarray(str(TASK_ENV.get_instruction() or ""))
        for name, attribute in model.objects.items():
            message["objects/" + name] = pose_of(TASK_ENV, attribute)
        TASK_ENV.take_action(model.agent.act(message), action_type="ee")
        if TASK_ENV.eval_success or TASK_ENV.take_action_cnt >= TASK_ENV.step_lim:
            return


def reset_model(model: Model) -> None:
    """A new episode begins."""
    model.agent.reset()


def flatten(observation: Mapping[str, Any], cameras: tuple[str, ...]) -> dict[str, Any]:
    """The parts of RoboTwin's observation that an agent uses, by path."""
    message = {f"endpose/{key}": np.asarray(value) for key, value in observation.get("endpose", {}).items()}
    for camera in cameras:
        picture = observation["observation"].get(camera, {}).get("rgb")
        if picture is not None:
            message[f"observation/{camera}/rgb"] = np.asarray(picture)
    return message


def read_objects(setting: Any) -> dict[str, str]:
    """Parse `can,pot=pot_actor`, or a mapping: our name -> attribute of the task."""
    if not setting:
        return {}
    if isinstance(setting, Mapping):
        return {str(name): str(attribute) for name, attribute in setting.items()}
    pairs = [part.strip().partition("=") for part in str(setting).split(",") if part.strip()]
    return {name.strip(): (attribute or name).strip() for name, _, attribute in pairs}


def pose_of(task: Any, attribute: str) -> Any:
    """The pose of an actor of the task: xyz and quaternion, w first."""
    actor: Any = getattr(task, attribute, None)
    if not hasattr(actor, "get_pose"):
        raise RuntimeError(
            f"the task has no actor '{attribute}': name one that it keeps, in objects: of deploy_policy.yml"
        )
    pose = actor.get_pose()
    return np.concatenate([np.asarray(pose.p, np.float64), np.asarray(pose.q, np.float64)])


class Remote:
    """An agent in another interpreter; messages go through its standard input and output."""

    def __init__(self, python: str, usr_args: Mapping[str, Any]) -> None:
        plain = {key: value for key, value in usr_args.items() if isinstance(value, (str, int, float))}
        try:
            self._process = subprocess.Popen(
                [python, "-P", "-m", OURS + ".child", json.dumps(plain)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        except OSError as error:
            raise RuntimeError(
                f"python: {python} in deploy_policy.yml cannot be started ({error})"
            ) from error
        try:
            about = self._read()
        except RuntimeError:
            self.close()
            raise
        self.n_action_steps = int(about["n_action_steps"])
        self.cameras = tuple(str(name) for name in about["cameras"])

    def act(self, message: Mapping[str, Any]) -> Any:
        """The next action, (16,)."""
        self._write(message)
        return self._read()["action"]

    def reset(self) -> None:
        """A new episode begins."""
        self._write({"reset": np.asarray(True)})
        self._read()

    def close(self) -> None:
        """End the process; otherwise it ends with this process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def _write(self, message: Mapping[str, Any]) -> None:
        try:
            write_message(self._process.stdin, message)
        except OSError:
            raise self._gone() from None

    def _read(self) -> dict[str, Any]:
        reply = read_message(self._process.stdout)
        if reply is None:
            raise self._gone()
        if "error" in reply:
            raise RuntimeError("recap: " + str(reply["error"]))
        return reply

    def _gone(self) -> RuntimeError:
        return RuntimeError(f"recap's process ended (code {self._process.wait()}): see what it wrote above")


def write_message(stream: Any, message: Mapping[str, Any]) -> None:
    """Write arrays by name: the length in eight bytes, then an npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **message)
    stream.write(len(buffer.getvalue()).to_bytes(8, "big") + buffer.getvalue())
    stream.flush()


def read_message(stream: Any) -> dict[str, Any] | None:
    """The inverse of `write_message`; None if the other side has ended."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    data = stream.read(int.from_bytes(head, "big"))
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}

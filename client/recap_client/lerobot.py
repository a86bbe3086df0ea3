"""Adapts any LeRobot robot to the control loop, by the names and units in the server's metadata."""

from __future__ import annotations

import importlib
import io
import math
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from recap_client.errors import InputError, did_you_mean, in_short
from recap_client.limits import F64
from recap_client.messages import IMAGES, STATE

DEGREES, CENTRED, PERCENT = "degrees", "range_m100_100", "range_0_100"  # LeRobot's position normalisations
ANGLES = {"deg": 1.0, "degrees": 1.0, "°": 1.0, "rad": math.pi / 180}  # unit -> factor from degrees


@dataclass(frozen=True)
class Channel:
    """A number of the policy and its motor."""

    motor: str  # key in the robot's dictionaries
    scale: float = 1.0  # policy's number / robot's number


def connect_lerobot(
    kind: str,
    said: Mapping[str, Any],
    options: Mapping[str, str],
    rename: Mapping[str, str],
    same_units: bool = False,
) -> LeRobotRobot:
    """Make a LeRobot robot, match it with the server's description, and connect it."""
    robot = build(kind, options)
    driven = LeRobotRobot(robot, said, rename, same_units)
    try:
        robot.connect()
    except Exception as error:
        raise InputError(
            f"robot 'lerobot:{kind}' does not connect ({in_short(error)}): check --robot.port and its cable",
            code="robot.connect",
        ) from error
    return driven


def build(kind: str, options: Mapping[str, str]) -> Any:
    """Make a LeRobot robot of that type and config options, not yet connected."""
    try:
        import draccus
        from lerobot.robots import RobotConfig, make_robot_from_config
        from lerobot.utils.import_utils import register_third_party_plugins
    except ImportError as error:
        raise InputError(
            f"LeRobot is not installed here ({in_short(error)}): pip install lerobot recap-client",
            code="robot.lerobot",
        ) from error
    register_third_party_plugins()
    _import_own(kind, RobotConfig)
    known = RobotConfig.get_known_choices()
    if kind not in known:
        raise InputError(f"LeRobot has no robot '{kind}': {did_you_mean(kind, known)}", code="input.unknown")
    complaint = io.StringIO()  # LeRobot's parser prints an error and exits
    try:
        with redirect_stderr(complaint):
            config = draccus.parse(known[kind], args=[f"--{name}={value}" for name, value in options.items()])
        return make_robot_from_config(config)
    except (Exception, SystemExit) as error:
        why = (complaint.getvalue().strip().splitlines() or [in_short(error)])[-1].rpartition("error: ")[2]
        given = ", ".join(f"--robot.{name}" for name in options) or "none"
        raise InputError(
            f"robot 'lerobot:{kind}' cannot be made of {given} ({why}): see its config in LeRobot",
            code="robot.options",
        ) from error


def _import_own(kind: str, registry: Any) -> None:
    """Import LeRobot's cameras and robots, which register themselves on import."""
    for package in ("lerobot.cameras", "lerobot.robots"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            if module.ispkg and (package.endswith("cameras") or kind not in registry.get_known_choices()):
                with suppress(Exception):  # its driver may not be installed
                    importlib.import_module(module.name)


class LeRobotRobot:
    """A LeRobot robot with the interface of the control loop.

    Args:
        robot: a robot with LeRobot's interface.
        said: the server's metadata.
        rename: the robot's name of a motor or camera -> the policy's name.
        same_units: do not convert units.
    """

    def __init__(
        self, robot: Any, said: Mapping[str, Any], rename: Mapping[str, str], same_units: bool = False
    ) -> None:
        self.robot = robot
        described = said.get("robot") or {}
        if not described.get("proprio") or not described.get("action"):
            raise InputError("the server does not describe its robot: is it `recap serve`?", code="server")
        seen, taken = robot.observation_features, robot.action_features
        motors = [key for key, shape in seen.items() if not isinstance(shape, tuple)]
        if said.get("action_mode") == "delta" and any(key.endswith(".pos") for key in taken):
            raise InputError(
                "the policy's actions are changes and the robot takes positions: train with absolute actions",
                code="robot.mode",
            )
        self._state = match(robot, described["proprio"], motors, rename, same_units)
        self._action = match(robot, described["action"], list(taken), rename, same_units)
        self._cameras = _cameras(seen, said, rename)
        self._last: Mapping[str, Any] = {}
        self._is_lost = False

    def observe(self) -> dict[str, Any]:
        """The robot's observation as a message."""
        with self._answering():
            self._last = seen = self.robot.get_observation()
        state = [float(seen[channel.motor]) * channel.scale for channel in self._state]
        images = {IMAGES + ours: np.ascontiguousarray(seen[theirs]) for theirs, ours in self._cameras.items()}
        return {STATE: np.array(state, np.float32), **images}

    def act(self, action: F64) -> None:
        """Send targets to the motors."""
        pairs = zip(self._action, action, strict=True)
        with self._answering():
            self.robot.send_action({channel.motor: float(value) / channel.scale for channel, value in pairs})

    @property
    def done(self) -> bool:
        """True if a simulated robot says that its episode is over."""
        return bool(getattr(self.robot, "done", False))

    def status(self) -> Mapping[str, float]:
        """The status of a simulated robot, else empty."""
        status = getattr(self.robot, "status", None)
        return dict(status()) if callable(status) else {}

    def picture(self) -> Any:
        """The last image of the first camera."""
        return next((self._last[name] for name in self._cameras if name in self._last), None)

    def close(self) -> None:
        """Disconnect; errors are ignored if the robot was lost."""
        with suppress(*((Exception,) if self._is_lost else ())):
            if self.robot.is_connected:
                self.robot.disconnect()

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn errors of a bus or a camera into one line."""
        try:
            yield
        except Exception as error:
            self._is_lost = True
            raise InputError(
                f"the robot does not answer ({in_short(error)}): check its power and cables",
                code="robot.lost",
            ) from error


def match(
    robot: Any,
    features: Sequence[Mapping[str, Any]],
    motors: Sequence[str],
    rename: Mapping[str, str],
    same_units: bool = False,
) -> list[Channel]:
    """The motor of each number of the policy, in the policy's order.

    A feature of one number is matched by name. The numbers of larger features have no names: they get the
    remaining motors in the robot's order, which is the order in datasets that it records.
    """
    named = {_bare(_renamed(motor, rename)): motor for motor in motors}
    single = [str(f["name"]) for f in features if int(f["size"]) == 1]
    missing = [name for name in single if _bare(name) not in named]
    if missing:
        raise InputError(
            f"the robot has no motor '{missing[0]}', which the policy knows: it has {', '.join(motors)}; "
            f"give --rename THEIRS={missing[0]}",
            code="robot.motors",
        )
    left = [motor for motor in motors if motor not in {named[_bare(name)] for name in single}]
    several = sum(int(f["size"]) for f in features if int(f["size"]) > 1)
    if several and several != len(left):
        names = ", ".join(f"{f['name']} ({f['size']})" for f in features)
        raise InputError(
            f"the policy's {names} do not fit the robot's {len(motors)} motors ({', '.join(motors)}): "
            "drive the robot that it was trained for",
            code="robot.motors",
        )
    found = []
    for feature in features:
        size = int(feature["size"])
        theirs = [named[_bare(str(feature["name"]))]] if size == 1 else [left.pop(0) for _ in range(size)]
        for motor in theirs:
            found.append(Channel(motor, 1.0 if same_units else _scale(_mode(robot, motor), motor, feature)))
    return found


def _scale(mode: str, motor: str, feature: Mapping[str, Any]) -> float:
    """The factor from the motor's unit to the policy's; 1 if the motor's unit is unknown."""
    unit, limits = str(feature.get("unit") or ""), feature.get("limits")
    if mode == DEGREES and unit:
        if unit not in ANGLES:
            raise InputError(
                f"motor '{motor}' is in degrees and '{feature['name']}' in {unit}: give --same-units if the "
                "demonstrations were recorded so",
                code="robot.units",
            )
        return ANGLES[unit]
    if mode == PERCENT and feature["kind"] == "gripper" and limits and max(map(abs, limits)) <= 1:
        return 0.01
    if mode in (CENTRED, PERCENT) and unit in ANGLES:
        raise InputError(
            f"motor '{motor}' is in percent of its range and '{feature['name']}' in {unit}: give "
            "--robot.use_degrees true, or --same-units if the demonstrations were recorded so",
            code="robot.units",
        )
    return 1.0


def _mode(robot: Any, motor: str) -> str:
    """The normalisation of a motor's position, or empty without a LeRobot bus."""
    arms = (("", robot), *((f"{side}_", getattr(robot, f"{side}_arm", None)) for side in ("left", "right")))
    for prefix, arm in arms:
        motors = getattr(getattr(arm, "bus", None), "motors", None) or {}
        found = motors.get(motor.removesuffix(".pos").removeprefix(prefix))
        if found is not None:
            mode = getattr(found, "norm_mode", "")
            return str(getattr(mode, "value", mode))
    return ""


def _cameras(seen: Mapping[str, Any], said: Mapping[str, Any], rename: Mapping[str, str]) -> dict[str, str]:
    """The robot's name -> the policy's name, for cameras that the policy knows."""
    theirs = [key for key, shape in seen.items() if isinstance(shape, tuple) and shape[-1] == 3]
    known = said.get("cameras") or {}
    found = {key: _renamed(key, rename) for key in theirs if _renamed(key, rename) in known}
    missing = [name for name in said.get("cameras_required", ()) if name not in found.values()]
    if not missing and said.get("poses_from_images") and not found:
        missing = list(known)[:1]
    if missing:
        raise InputError(
            f"the robot has no camera '{missing[0]}', which the policy needs: it has "
            f"{', '.join(theirs) or 'none'}; give --robot.cameras, or --rename THEIRS={missing[0]}",
            code="robot.cameras",
        )
    return found


def _renamed(key: str, rename: Mapping[str, str]) -> str:
    return rename.get(key, rename.get(_bare(key), key))


def _bare(name: str) -> str:
    return name.removesuffix(".pos")

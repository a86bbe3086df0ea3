"""Modules of LeRobot's names with as much in them as a robot needs, where LeRobot is not installed."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest


class Registry:
    """As `draccus.ChoiceRegistry`."""

    known: ClassVar[dict[str, type]] = {}

    @classmethod
    def get_known_choices(cls) -> dict[str, type]:
        return cls.known


@dataclass
class Motor:
    norm_mode: str


@dataclass
class ArmConfig:
    port: str
    use_degrees: bool = True
    cameras: dict[str, tuple[int, int, int]] = field(default_factory=lambda: {"front": (48, 64, 3)})


class Arm:
    """A joint-space arm as LeRobot has them: degrees, and percent for the gripper."""

    joints = ("shoulder_pan", "elbow_flex", "gripper")

    def __init__(self, config: ArmConfig) -> None:
        self.config = config
        body = "degrees" if config.use_degrees else "range_m100_100"
        self.bus = types.SimpleNamespace(
            motors={name: Motor("range_0_100" if name == "gripper" else body) for name in self.joints}
        )
        self.at = {f"{name}.pos": 50.0 if name == "gripper" else 90.0 for name in self.joints}
        self.sent: list[dict[str, float]] = []
        self.is_connected = False

    @property
    def observation_features(self) -> dict[str, Any]:
        return {**dict.fromkeys(self.at, float), **self.config.cameras}

    @property
    def action_features(self) -> dict[str, Any]:
        return dict.fromkeys(self.at, float)

    def connect(self, calibrate: bool = True) -> None:
        if self.config.port == "/dev/none":
            raise ConnectionError("no such port")
        self.is_connected = True

    def disconnect(self) -> None:
        self.is_connected = False

    def get_observation(self) -> dict[str, Any]:
        assert self.is_connected
        images = {name: np.zeros(shape, np.uint8) for name, shape in self.config.cameras.items()}
        return {**self.at, **images}

    def send_action(self, action: dict[str, float]) -> dict[str, float]:
        assert self.is_connected
        assert set(action) == set(self.at)
        self.sent.append(action)
        self.at = dict(action)
        return action


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the fake modules in place for one test."""
    made: dict[str, types.ModuleType] = {}
    for name in ("draccus", "lerobot", "lerobot.robots", "lerobot.cameras", "lerobot.utils"):
        made[name] = types.ModuleType(name)
        made[name].__path__ = []
    made["lerobot.utils.import_utils"] = types.ModuleType("lerobot.utils.import_utils")

    def parse(config: type, args: list[str]) -> Any:
        given = dict(word.removeprefix("--").split("=", 1) for word in args)
        return config(
            **{key: value == "true" if value in ("true", "false") else value for key, value in given.items()}
        )

    made["draccus"].parse = parse  # type: ignore[attr-defined]
    made["lerobot.robots"].RobotConfig = Registry  # type: ignore[attr-defined]
    made["lerobot.robots"].make_robot_from_config = Arm  # type: ignore[attr-defined]
    made["lerobot.utils.import_utils"].register_third_party_plugins = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(Registry, "known", {"arm_follower": ArmConfig})
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)

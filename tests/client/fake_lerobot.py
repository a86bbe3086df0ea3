"""Fake LeRobot modules with the parts that a robot and the plugins need; LeRobot is not installed."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest


class Registry:
    """The part of `draccus.ChoiceRegistry` that is used."""

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
    """A joint-space arm with LeRobot's units: degrees, and percent for the gripper."""

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
    """Installs the fake modules for one test."""
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


class Steps:
    """A processor step or pipeline that records its arguments."""

    def __init__(self, **given: Any) -> None:
        self.given = given


def install_plugin_api(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, type]]:
    """Installs what LeRobot's plugins import; returns the registered classes by registry."""
    import torch

    registered: dict[str, dict[str, type]] = {"policy": {}, "robot": {}}

    def registry(kind: str) -> type:
        class Config:
            id: str | None = None
            action_feature: Any = None

            @classmethod
            def register_subclass(cls, name: str) -> Any:
                return lambda config: registered[kind].setdefault(name, config)

        return Config

    class Policy(torch.nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.config = config

    class Robot:
        def __init__(self, config: Any) -> None:
            self.id = config.id

    constants = {f"POLICY_{kind}PROCESSOR_DEFAULT_NAME": kind.lower() for kind in ("PRE", "POST")}
    steps = ("AddBatchDimension", "Device", "RenameObservations")
    parts: dict[str, dict[str, Any]] = {
        "lerobot": {},
        "lerobot.configs": {},
        "lerobot.configs.policies": {"PreTrainedConfig": registry("policy")},
        "lerobot.policies": {},
        "lerobot.policies.pretrained": {"PreTrainedPolicy": Policy},
        "lerobot.processor": {"PolicyProcessorPipeline": Steps}
        | {f"{name}ProcessorStep": type(name, (Steps,), {}) for name in steps},
        "lerobot.processor.converters": {
            "policy_action_to_transition": None,
            "transition_to_policy_action": None,
        },
        "lerobot.robots": {},
        "lerobot.robots.config": {"RobotConfig": registry("robot")},
        "lerobot.robots.robot": {"Robot": Robot},
        "lerobot.utils": {},
        "lerobot.utils.constants": constants,
    }
    for name, values in parts.items():
        module = types.ModuleType(name)
        module.__path__ = []
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    for package in ("lerobot_policy_recap", "lerobot_robot_recap_sim"):
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
    return registered

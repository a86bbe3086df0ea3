"""Options of the simulated robot."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lerobot.robots.config import RobotConfig


@RobotConfig.register_subclass("recap_sim")
@dataclass
class RecapSimConfig(RobotConfig):  # type: ignore[misc]
    """A Gymnasium environment with LeRobot's robot interface; by default gym-pusht.

    Args:
        env: the id of a Gymnasium environment, or `package.module:factory`.
        env_options: keyword arguments to make it.
        reset_options: options of its reset, such as {task: press}.
        motors: names of the numbers of its state and of an action.
        state: key of its state in an observation; nested keys are separated by dots.
        images: camera -> key in an observation.
        metrics: keys of its info to show, numbers or booleans; the first is success.
        seed: seed of its reset.
        report: a file to which a line of JSON is appended at the end of an episode.
    """

    env: str = "gym_pusht:gym_pusht/PushT-v0"
    env_options: dict[str, str] = field(default_factory=lambda: {"obs_type": "pixels_agent_pos"})
    reset_options: dict[str, str] = field(default_factory=dict)
    motors: list[str] = field(default_factory=lambda: ["x", "y"])
    state: str = "agent_pos"
    images: dict[str, str] = field(default_factory=lambda: {"top": "pixels"})
    metrics: list[str] = field(default_factory=lambda: ["is_success", "coverage"])
    seed: int = 500
    report: Path | None = None

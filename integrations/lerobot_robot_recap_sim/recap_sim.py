"""The simulated robot behind LeRobot's interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lerobot.robots.robot import Robot

from .config_recap_sim import RecapSimConfig
from .simulation import Simulation, make_env


class RecapSim(Robot):  # type: ignore[misc]
    """A robot in a simulator; every action sent is one control period of it."""

    config_class = RecapSimConfig
    name = "recap_sim"

    def __init__(self, config: RecapSimConfig) -> None:
        super().__init__(config)
        self.config = config
        env = make_env(config.env, config.env_options)
        self.simulation = Simulation(env, config.motors, config.state, config.images, config.metrics)
        self.simulation.reset(config.seed, config.reset_options)
        self.cameras = dict(config.images)
        self._is_connected = False

    @property
    def observation_features(self) -> dict[str, Any]:
        """A float a motor, a shape a camera."""
        return {**self.action_features, **self.simulation.shapes()}

    @property
    def action_features(self) -> dict[str, Any]:
        """A float a motor."""
        return {f"{motor}.pos": float for motor in self.config.motors}

    @property
    def is_connected(self) -> bool:
        """Whether an episode runs."""
        return self._is_connected

    @property
    def is_calibrated(self) -> bool:
        """There is nothing to calibrate."""
        return True

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.simulation.done

    def status(self) -> Mapping[str, float]:
        """The best of each metric so far."""
        return dict(self.simulation.best)

    def connect(self, calibrate: bool = True) -> None:
        """Begin the episode."""
        self.simulation.reset(self.config.seed, self.config.reset_options)
        self._is_connected = True

    def calibrate(self) -> None:
        """Nothing to do."""

    def configure(self) -> None:
        """Nothing to do."""

    def get_observation(self) -> dict[str, Any]:
        """What motors and cameras say now."""
        return self.simulation.observation()

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """One control period."""
        self.simulation.act(action)
        return action

    def disconnect(self) -> None:
        """End the episode and write how it went."""
        if self._is_connected and self.config.report is not None:
            self.simulation.write(self.config.report, env=self.config.env, seed=self.config.seed)
        self._is_connected = False
        self.simulation.env.close()

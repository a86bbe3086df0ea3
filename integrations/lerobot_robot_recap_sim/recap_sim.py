"""The simulated robot, with LeRobot's robot interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lerobot.robots.robot import Robot

from .config_recap_sim import RecapSimConfig
from .simulation import Simulation, make_env


class RecapSim(Robot):  # type: ignore[misc]
    """A simulated robot; each action that is sent runs one control period."""

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
        """A float for each motor, a shape for each camera."""
        return {**self.action_features, **self.simulation.shapes()}

    @property
    def action_features(self) -> dict[str, Any]:
        """A float for each motor."""
        return {f"{motor}.pos": float for motor in self.config.motors}

    @property
    def is_connected(self) -> bool:
        """True while an episode is running."""
        return self._is_connected

    @property
    def is_calibrated(self) -> bool:
        """Always true, since there is nothing to calibrate."""
        return True

    @property
    def done(self) -> bool:
        """True if the episode is over."""
        return self.simulation.done

    def status(self) -> Mapping[str, float]:
        """The best value of each metric so far."""
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
        """The current state and images."""
        return self.simulation.observation()

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """Run one control period."""
        self.simulation.act(action)
        return action

    def disconnect(self) -> None:
        """End the episode and write its report."""
        if self._is_connected and self.config.report is not None:
            self.simulation.write(self.config.report, env=self.config.env, seed=self.config.seed)
        self._is_connected = False
        self.simulation.env.close()

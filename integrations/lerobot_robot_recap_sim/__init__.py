"""A simulated robot for LeRobot: `--robot.type=recap_sim`."""

from .config_recap_sim import RecapSimConfig
from .recap_sim import RecapSim

__all__ = ["RecapSim", "RecapSimConfig"]

"""A ReCAP policy in LeRobot: `--policy.path` of a folder that `lerobot-policy-recap` wrote."""

from .configuration_recap import RecapConfig

__all__ = ["RecapConfig"]

"""A ReCAP policy in LeRobot: use a folder that `lerobot-policy-recap` wrote as `--policy.path`."""

from .configuration_recap import RecapConfig

__all__ = ["RecapConfig"]

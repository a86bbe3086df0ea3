"""ReCAP: retrieve, don't retrain. Give a frozen robot policy a new task by appending demonstrations.

    policy = recap.load_policy("pusht-nano")
    pool = recap.open_pool("pools/mine")
    agent = recap.Agent(policy, pool)
    agent.reset(seed=1)
    action = agent.act(observation)  # a gym dict, a LeRobot dict or a recap.Observation

Names are imported on first use, so `import recap` loads neither torch nor a simulator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from recap.api import Agent as Agent
    from recap.api import evaluate as evaluate
    from recap.api import load_policy as load_policy
    from recap.api import train as train
    from recap.assembly import AgentConfig as AgentConfig
    from recap.body import Feature as Feature
    from recap.errors import DatasetError as DatasetError
    from recap.errors import InputError as InputError
    from recap.errors import RecapError as RecapError
    from recap.evaluation.spec import EvalSpec as EvalSpec
    from recap.pool.opening import open_pool as open_pool
    from recap.pool.store import Pool as Pool
    from recap.robot import CameraSpec as CameraSpec
    from recap.robot import ObjectSpec as ObjectSpec
    from recap.robot import RobotSpec as RobotSpec
    from recap.robot import load_robot as load_robot
    from recap.suites import PoseEstimator as PoseEstimator
    from recap.suites import Suite as Suite
    from recap.suites import World as World
    from recap.training.config import TrainConfig as TrainConfig
    from recap.types import ActionChunk as ActionChunk
    from recap.types import Episode as Episode
    from recap.types import Match as Match
    from recap.types import Observation as Observation
    from recap.types import Retrieval as Retrieval
    from recap.types import TaskContext as TaskContext
    from recap_client.client import PolicyClient as PolicyClient

_PLACES = {
    "recap.api": ("Agent", "evaluate", "load_policy", "train"),
    "recap.assembly": ("AgentConfig",),
    "recap.errors": ("DatasetError", "InputError", "RecapError"),
    "recap.evaluation.spec": ("EvalSpec",),
    "recap.pool.opening": ("open_pool",),
    "recap.pool.store": ("Pool",),
    "recap.body": ("Feature",),
    "recap.robot": ("CameraSpec", "ObjectSpec", "RobotSpec", "load_robot"),
    "recap_client.client": ("PolicyClient",),
    "recap.suites": ("PoseEstimator", "Suite", "World"),
    "recap.training.config": ("TrainConfig",),
    "recap.types": ("ActionChunk", "Episode", "Match", "Observation", "Retrieval", "TaskContext"),
}
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names}
__all__ = sorted(_PLACE_OF)


def __getattr__(name: str) -> Any:
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'recap' has no attribute '{name}'")
    return getattr(importlib.import_module(_PLACE_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

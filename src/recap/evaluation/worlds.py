"""Environments of an evaluation: installed suites, a user's factory, or any Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from recap import config as configs
from recap.errors import InputError, RecapError, did_you_mean
from recap.robot import RobotSpec
from recap.suites import Options, Suite, suites
from recap.types import F64, U8, Observation
from recap_client.plugins import import_factory

SUCCESS = 0.5  # threshold of a metric that is 0 or 1
STATES = ("observation.state", "state", "proprio", "agent_pos", "qpos")  # usual names of proprioception


@lru_cache(maxsize=64)
def find_suite(env: str, env_map: str | None = None) -> Suite:
    """The suite of a name, a `package.module:factory`, or a Gymnasium id (`module:id` if needed)."""
    known = suites().get(env)
    if known is None:
        return ForeignSuite(env, env_map)
    if env_map is not None:
        raise InputError(f"env '{env}' describes its own observations: leave --map out")
    return known


def _make(env: str) -> Any:
    """The result of a factory, or a Gymnasium environment."""
    try:
        if env.partition(":")[2].isidentifier():  # `module:Name-v0` is a Gymnasium id
            return import_factory(env, "env")()
        import gymnasium as gym

        try:
            return gym.make(env)
        except gym.error.UnregisteredEnv as error:
            raise InputError(
                f"unknown env '{env}': {did_you_mean(env, suites())}, or give package.module:factory or a "
                f"Gymnasium id ({' '.join(str(error).split())[:120]})"
            ) from None
    except RecapError:
        raise
    except Exception as error:
        raise InputError(f"env '{env}' could not be created ({type(error).__name__}: {error})") from error


@dataclass(frozen=True)
class EnvMap:
    """The meaning of a Gymnasium environment's observation; keys are paths such as `images.front`."""

    state: str = ""  # proprioception; empty: by its usual names
    images: Mapping[str, str] = field(default_factory=dict)  # camera -> key; empty: every image
    objects: Mapping[str, str] = field(default_factory=dict)  # name -> key in the observation or the info
    goal: str = ""
    task: str = "task"  # the instruction, in the info or the observation
    success: str = "is_success"  # in the info; without it, terminating with a reward is a success
    tasks: tuple[str, ...] = ("default",)  # keys, passed to reset as an option
    task_option: str = "task"  # that option of reset; empty: it is not passed
    max_steps: int = 0  # 0: as registered, or 1000
    control_hz: float = 0.0  # 0: from the environment's metadata


def read_map(path: Path) -> EnvMap:
    """Read it from a YAML or JSON file."""
    return configs.read(EnvMap, configs.load_file(path), str(path))


class ForeignSuite(Suite):
    """A suite that is not installed; it is created when it is needed.

    Results of a run contain the name of their env. Reading them must not run its code.
    """

    def __init__(self, env: str, env_map: str | None) -> None:
        self.env, self.env_map = env, env_map
        self._inner: Suite | None = None

    @property
    def inner(self) -> Suite:
        """The suite itself."""
        if self._inner is None:
            mapping = EnvMap() if self.env_map is None else read_map(Path(self.env_map))
            made = _make(self.env)
            if isinstance(made, Suite) and self.env_map is not None:
                raise InputError(f"env '{self.env}' describes its own observations: leave --map out")
            self._inner = made if isinstance(made, Suite) else GymSuite(self.env, made, mapping)
        return self._inner

    def __getattribute__(self, name: str) -> Any:
        """Attributes of a suite come from the inner one; some do not require that it is created."""
        if name in _NEED_NOT_BE_MADE and object.__getattribute__(self, "_inner") is None:
            return object.__getattribute__(self, name)
        if name in _OF_A_SUITE:
            return getattr(object.__getattribute__(self, "inner"), name)
        return object.__getattribute__(self, name)

    def check(self, options: Options) -> Options:
        """Unchanged until the suite is created."""
        return dict(options)

    def task_key(self, name: str) -> str:
        """Unchanged until the suite is created."""
        return name


def made(suite: Suite) -> Suite:
    """The suite itself; one that is not installed is created now."""
    return suite.inner if isinstance(suite, ForeignSuite) else suite


_NEED_NOT_BE_MADE = frozenset({"check", "task_key", "ordered", "title", "seen"})
_OF_A_SUITE = frozenset(name for name in dir(Suite) if not name.startswith("_"))


class GymSuite(Suite):
    """One Gymnasium environment as a suite of one world."""

    name: ClassVar[str] = "gym"
    thresholds: ClassVar[tuple[float, ...]] = (SUCCESS,)

    def __init__(self, env: str, made: Any, mapping: EnvMap) -> None:
        self._env_name, self._made, self._map = env, made, mapping
        if not (callable(getattr(made, "reset", None)) and callable(getattr(made, "step", None))):
            raise InputError(f"env '{env}' is a {type(made).__name__} without reset and step")
        self._max_steps = (
            mapping.max_steps or getattr(getattr(made, "spec", None), "max_episode_steps", None) or 1000
        )

    def tasks(self, options: Options) -> tuple[str, ...]:
        """The tasks of the mapping."""
        return self._map.tasks

    def task_key(self, name: str) -> str:
        """The name of a known task, or an error."""
        if name not in self._map.tasks:
            raise InputError(f"unknown task '{name}': {did_you_mean(name, self._map.tasks)}")
        return name

    def max_steps(self, task: str, options: Options) -> int:
        """From the mapping or the environment's registration."""
        return self._max_steps

    def make(self, options: Options) -> GymWorld:
        """The first world is the existing environment; others are created in the same way."""
        made, self._made = self._made, None
        return GymWorld(_make(self._env_name) if made is None else made, self._map)

    def robot(self, options: Options) -> RobotSpec:
        """Always an error: the environment does not describe its robot."""
        raise InputError(f"env '{self._env_name}' does not describe its robot: give --robot robot.yaml")


class GymWorld:
    """Adapts a Gymnasium environment to a world."""

    def __init__(self, env: Any, mapping: EnvMap) -> None:
        self.env, self._map = env, mapping
        self._seen: Any = None
        self._info: Mapping[str, Any] = {}
        self._steps = 0
        fps = getattr(env, "metadata", {}).get("render_fps", 0.0)
        self.control_hz = mapping.control_hz or float(fps or 0.0) or 10.0

    def reset(self, seed: int, task: str) -> Mapping[str, float]:
        """Start an episode."""
        options = {self._map.task_option: task} if self._map.task_option and task != "default" else None
        self._seen, self._info = self.env.reset(seed=seed, options=options)
        self._steps = 0
        return {"success": 0.0}

    def step(self, action: F64) -> tuple[Mapping[str, float], bool]:
        """Execute one action."""
        space = self.env.action_space
        self._seen, reward, terminated, truncated, self._info = self.env.step(
            np.asarray(action, getattr(space, "dtype", np.float64))
        )
        self._steps += 1
        done = self._info.get(self._map.success, bool(terminated) and float(reward) > 0)
        numbers = {k: float(v) for k, v in self._info.items() if isinstance(v, (int, float, np.number))}
        return {**numbers, "success": float(bool(done))}, bool(terminated or truncated)

    def observe(self, image_size: int | None) -> Observation:
        """The last observation; images have the environment's size."""
        return map_observation(self._seen, self._info, self._map, self._steps / self.control_hz)

    def render(self) -> U8:
        """A picture for a film: rendered by the environment, or of its first camera."""
        drawn = self.env.render() if getattr(self.env, "render_mode", None) else None
        if isinstance(drawn, np.ndarray):
            return drawn
        return next(iter(self.observe(None).images.values()))

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def map_observation(seen: Any, info: Mapping[str, Any], mapping: EnvMap, time_s: float) -> Observation:
    """Convert an observation of Gymnasium or LeRobot; an error names what is missing."""
    flat = flatten(seen if isinstance(seen, Mapping) else {"state": seen})
    key = mapping.state or next((name for name in STATES if name in flat), "")
    if key not in flat:
        known = ", ".join(flat) or "nothing"
        raise InputError(f"the observation has no state '{key or 'state'}': it has {known}; give --map")
    if mapping.images:
        images = {camera: _image(flat, name) for camera, name in mapping.images.items()}
    else:
        images = {camera: _image(flat, name) for camera, name in _cameras(flat).items()}
    both = {**flatten(info), **flat}
    objects = {name: _numbers(both, path) for name, path in mapping.objects.items()}
    return Observation(
        proprio=_numbers(flat, key).astype(np.float32),
        task=str(both.get(mapping.task, "")),
        time_s=time_s,
        images=images,
        objects=objects,
        goal=_numbers(both, mapping.goal) if mapping.goal else None,
    )


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings by path: `images.front`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _array(value: Any) -> Any:
    """A numpy array, also of a tensor."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def _cameras(flat: Mapping[str, Any]) -> dict[str, str]:
    """Camera -> key of every image; the camera is the last part of the key."""
    found: dict[str, str] = {}
    for key in (key for key, value in flat.items() if _is_image(value)):
        camera = key.rpartition(".")[2]
        if camera in found:
            raise InputError(f"images '{found[camera]}' and '{key}' are both '{camera}': name them in --map")
        found[camera] = key
    return found


def _is_image(value: Any) -> bool:
    shape: tuple[int, ...] = tuple(getattr(value, "shape", ()))
    return len(shape) == 3 and (shape[-1] == 3 or shape[0] == 3)


def _image(flat: Mapping[str, Any], key: str) -> U8:
    """(h, w, 3) bytes; channels may come first, and values may be 0 to 1, as in LeRobot."""
    if key not in flat:
        raise InputError(f"the observation has no image '{key}': it has {', '.join(flat)}; give --map")
    image = _array(flat[key])
    if image.ndim != 3:
        raise InputError(f"image '{key}' has shape {image.shape}: give (h, w, 3)")
    if image.shape[-1] != 3 and image.shape[0] == 3:
        image = np.moveaxis(image, 0, -1)
    if image.dtype.kind == "f":
        if not 0 <= image.min() <= image.max() <= 1.001:  # values from 0 to 255 would all become white
            raise InputError(f"image '{key}' has fractions outside 0 to 1: give values from 0 to 1, or bytes")
        image = np.rint(np.clip(image, 0, 1) * 255)
    return np.ascontiguousarray(image, np.uint8)


def _numbers(flat: Mapping[str, Any], key: str) -> F64:
    if key not in flat:
        raise InputError(f"the observation has no '{key}': it has {', '.join(flat)}; give --map")
    return np.asarray(_array(flat[key]), np.float64).ravel()

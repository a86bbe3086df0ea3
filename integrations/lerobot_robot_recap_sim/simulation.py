"""A Gymnasium environment as dictionaries of motors and cameras; does not need LeRobot."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class Simulation:
    """One episode of an environment; actions after its end have no effect.

    Args:
        env: a Gymnasium environment.
        motors: names of the numbers of its state and of an action.
        state: key of its state in an observation; nested keys are separated by dots.
        images: camera -> key in an observation.
        metrics: keys of its info; the first is success.
    """

    def __init__(
        self,
        env: Any,
        motors: Sequence[str],
        state: str,
        images: Mapping[str, str],
        metrics: Sequence[str] = ("is_success",),
    ) -> None:
        self.env, self.motors, self._state, self._images = env, list(motors), state, dict(images)
        self._metrics = list(metrics)
        self.steps, self.done = 0, False
        self.best: dict[str, float] = {}

    def reset(self, seed: int, options: Mapping[str, Any] | None = None) -> None:
        """Begin the episode."""
        self._seen, info = self.env.reset(seed=seed, options=dict(options) if options else None)
        self.steps, self.done, self.best = 0, False, {}
        state = np.asarray(self._pick(self._state))
        if state.shape != (len(self.motors),):
            raise ValueError(f"the state '{self._state}' has shape {state.shape}: name {state.size} motors")
        self._measure(info)

    def observation(self) -> dict[str, Any]:
        """A float for each motor, an image for each camera."""
        state = np.asarray(self._pick(self._state), np.float64)
        motors = {f"{name}.pos": float(value) for name, value in zip(self.motors, state, strict=True)}
        return {**motors, **{camera: np.asarray(self._pick(key)) for camera, key in self._images.items()}}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Camera -> height, width, channels."""
        return {camera: np.asarray(self._pick(key)).shape for camera, key in self._images.items()}

    def act(self, action: Mapping[str, float]) -> None:
        """Run one control period towards a target."""
        if self.done:
            return
        target = np.array([action[f"{name}.pos"] for name in self.motors], np.float32)
        self._seen, _, terminated, truncated, info = self.env.step(target)
        self.steps += 1
        self._measure(info)
        self.done = bool(terminated or truncated or self.best.get(self._metrics[0], 0.0))

    def write(self, report: Path, **more: Any) -> None:
        """Append the result of the episode to a file, as one line of JSON."""
        report.parent.mkdir(parents=True, exist_ok=True)
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**more, "steps": self.steps, **self.best}) + "\n")

    def _measure(self, info: Mapping[str, Any]) -> None:
        for name in self._metrics:
            self.best[name] = max(self.best.get(name, 0.0), float(info.get(name, 0.0)))

    def _pick(self, key: str) -> Any:
        found: Any = self._seen
        for part in key.split("."):
            if not isinstance(found, Mapping) or part not in found:
                raise ValueError(f"the environment's observation has no '{key}': see its observation space")
            found = found[part]
        return found


def make_env(name: str, options: Mapping[str, Any]) -> Any:
    """Make a Gymnasium environment by its id (`module:id` imports the module), or by a factory."""
    if re.search(r"-v\d+$", name):
        import gymnasium

        return gymnasium.make(name, **options)
    module, _, factory = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return getattr(importlib.import_module(module), factory)(**options)

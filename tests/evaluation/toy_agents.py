"""Cheap agents for the tests, found as `toy_agents:name`; worker processes import this file too."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recap.errors import InputError
from recap.evaluation.agents import Trial
from recap.evaluation.spec import EvalSpec
from recap.types import F64, Observation

GUILTY_SEED = 503


class Wanderer:
    """Moves to a new target every eight steps: a random place, or the block with probability one half."""

    def __init__(self, spec: EvalSpec) -> None:
        self.spec = spec

    def reset(self, seed: int) -> None:
        self.seed = seed
        self.n_acts = 0
        self.rng = np.random.default_rng(seed)

    def act(self, observation: Observation) -> F64:
        if self.n_acts % 8 == 0:
            block = observation.objects["block"][:2]
            self.target = self.rng.uniform(50, 450, 2) if self.rng.random() < 0.5 else block
        self.n_acts += 1
        return self.target


def where() -> str:
    """The Ray node (it may use several processes), or the process id without Ray."""
    ray = sys.modules.get("ray")
    on_node = ray is not None and ray.is_initialized()
    return str(ray.get_runtime_context().get_node_id() if on_node else os.getpid())


class Slow(Wanderer):
    """A slow agent, so that a test can stop it midway; it logs where each episode started."""

    def reset(self, seed: int) -> None:
        super().reset(seed)
        if log := os.environ.get("TOY_LOG"):
            with Path(log).open("a") as file:
                file.write(f"{where()} {seed}\n")

    def act(self, observation: Observation) -> F64:
        time.sleep(float(os.environ.get("TOY_DELAY_S", "0")))
        return super().act(observation)


class Fragile(Wanderer):
    """Raises in the middle of the episode of one seed."""

    def act(self, observation: Observation) -> F64:
        if self.seed == GUILTY_SEED and self.n_acts == 5:
            raise ZeroDivisionError("the toy broke")
        return super().act(observation)


class FragileAtReset(Wanderer):
    """Raises at the reset of one seed."""

    def reset(self, seed: int) -> None:
        if seed == GUILTY_SEED:
            raise KeyError("no such start")
        super().reset(seed)


class NotFinite(Wanderer):
    """Returns an action that is not finite for one seed."""

    def act(self, observation: Observation) -> F64:
        action = super().act(observation)
        return action * np.nan if self.seed == GUILTY_SEED and self.n_acts == 7 else action


class Deadly(Wanderer):
    """Kills its process at one seed."""

    def act(self, observation: Observation) -> F64:
        if self.seed == GUILTY_SEED:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().act(observation)


class Batched:
    """A batched agent that records its calls."""

    def __init__(self, spec: EvalSpec) -> None:
        self.image_size: int | None = 16
        self.calls: list[list[int]] = []
        self.resets: list[tuple[int, Trial]] = []
        self.last: Observation | None = None

    def reset(self, slot: int, trial: Trial) -> None:
        self.resets.append((slot, trial))

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        self.calls.append(list(slots))
        self.last = observations[0]
        return np.stack([o.objects["block"][:2] for o in observations])


def unmakable(spec: EvalSpec) -> Wanderer:
    raise OSError("no weights here")


def refused(spec: EvalSpec) -> Wanderer:
    raise InputError("this toy has no weights: train it first")


def not_an_agent(spec: EvalSpec) -> int:
    return 3

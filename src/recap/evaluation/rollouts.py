"""Episodes are rolled out in batches; each result is yielded when its episode ends."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from recap.errors import InputError
from recap.evaluation.agents import Agent, Trial, inner_agent
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.suites import World
from recap.types import EpisodeResult, Outcome

Watcher: TypeAlias = Callable[[Any], None]  # called with a world that has `render()`


def run_trials(
    agent: Agent, spec: EvalSpec, trials: Iterable[Trial], batch_size: int, watch: Watcher | None = None
) -> Iterator[EpisodeResult]:
    """Run the trials, up to `batch_size` in parallel, and yield each result when its episode ends.

    A result depends only on its trial, not on the rest of the batch. An exception of the agent or the
    environment makes an episode an "error". If several were running, each of them is run again alone.

    Args:
        watch: called with the environment at the start and after every step of each episode.
    """
    waiting = iter(trials)
    while trials_to_start := list(islice(waiting, batch_size)):
        with closing(_Batch(agent, spec, watch)) as batch:
            new_trials = dict(enumerate(trials_to_start))
            while new_trials or batch.running:
                failure: str | None = None
                try:
                    finished = batch.advance(new_trials)
                except ModuleNotFoundError:
                    raise  # a missing extra: no episode could run
                except Exception:
                    failure = traceback.format_exc()
                if failure is not None:
                    yield from _rerun_alone(agent, spec, list(batch.running.values()), failure, watch)
                    break  # the environments may be in an undefined state: the other trials get new ones
                new_trials = {}
                for slot, result in finished:
                    yield result
                    trial = next(waiting, None)
                    if trial is not None:
                        new_trials[slot] = trial


def _rerun_alone(
    agent: Agent, spec: EvalSpec, attempts: Sequence[_Attempt], failure: str, watch: Watcher | None
) -> Iterator[EpisodeResult]:
    """Results of the episodes that were running when an exception was raised; several are rerun alone."""
    if len(attempts) == 1:
        yield attempts[0].result("error", failure)
        return
    for attempt in attempts:
        yield from run_trials(agent, spec, [attempt.trial], 1, watch)


class _Attempt:
    """A running episode."""

    def __init__(self, trial: Trial, spec: EvalSpec) -> None:
        self.trial = trial
        self.steps = 0
        self.best: dict[str, float] = {}
        self.first_step: dict[str, int | None] = {threshold_key(t): None for t in spec.thresholds}
        self.max_steps = spec.steps_of(trial.task)
        self._thresholds, self._metric = spec.thresholds, spec.suite.metric

    def record(self, metrics: Mapping[str, float]) -> bool:
        """Record the metrics; returns whether the last threshold is passed."""
        for name, value in metrics.items():
            self.best[name] = max(self.best.get(name, value), value)
        reached = metrics[self._metric]
        for threshold in self._thresholds:
            key = threshold_key(threshold)
            if self.first_step[key] is None and reached > threshold:
                self.first_step[key] = self.steps
        return reached > self._thresholds[-1]

    def result(self, outcome: Outcome, error: str | None = None, held: int = 0) -> EpisodeResult:
        """The result so far."""
        trial = self.trial
        return EpisodeResult(
            trial.task, trial.seed, outcome, self.steps, dict(self.best), self.first_step, error, held
        )


class _Batch:
    """Worlds that run in parallel, each with its own episode."""

    def __init__(self, agent: Agent, spec: EvalSpec, watch: Watcher | None) -> None:
        self.agent = agent
        self.spec = spec
        self.watch = watch
        self.running: dict[int, _Attempt] = {}
        self._worlds: dict[int, World] = {}

    def advance(self, new_trials: Mapping[int, Trial]) -> list[tuple[int, EpisodeResult]]:
        """Start an episode in each slot of `new_trials`, then step all slots; returns the results by slot."""
        finished = self._start(new_trials) if new_trials else []
        # Episodes that end at the start are reported before a step can raise an exception.
        return finished or (self._step() if self.running else [])

    def close(self) -> None:
        """Close the worlds."""
        for world in self._worlds.values():
            close = getattr(world, "close", None)
            if close is not None:
                close()

    def _start(self, new_trials: Mapping[int, Trial]) -> list[tuple[int, EpisodeResult]]:
        self.running.update({slot: _Attempt(trial, self.spec) for slot, trial in new_trials.items()})
        for slot, trial in new_trials.items():
            self.agent.reset(slot, trial)
        metrics = {}
        for slot, trial in new_trials.items():
            if slot not in self._worlds:
                self._worlds[slot] = self.spec.suite.make(self.spec.options)
            metrics[slot] = self._worlds[slot].reset(trial.seed, trial.task)
        return self._record(metrics, {})

    def _step(self) -> list[tuple[int, EpisodeResult]]:
        slots = sorted(self.running)
        observations = [self._worlds[slot].observe(self._image_size(slot)) for slot in slots]
        actions = np.asarray(self.agent.act(slots, observations), np.float64)
        if actions.ndim != 2 or len(actions) != len(slots):
            raise InputError(f"the agent gave actions of shape {actions.shape}: expected ({len(slots)}, a)")
        metrics, ended = {}, {}
        for slot, action in zip(slots, actions, strict=True):
            metrics[slot], ended[slot] = self._worlds[slot].step(action)
            self.running[slot].steps += 1
        return self._record(metrics, ended)

    def _image_size(self, slot: int) -> int | None:
        """The camera size that the agent needs now; between plans it may need no images."""
        needs_images = getattr(self.agent, "needs_images", None)
        return self.agent.image_size if needs_images is None or needs_images(slot) else None

    def _record(
        self, metrics: Mapping[int, Mapping[str, float]], ended: Mapping[int, bool]
    ) -> list[tuple[int, EpisodeResult]]:
        finished: list[tuple[int, EpisodeResult]] = []
        for slot, reached in metrics.items():
            attempt = self.running[slot]
            if self.watch is not None:
                self.watch(self._worlds[slot])
            solved = attempt.record(reached)
            if solved or ended.get(slot, False) or attempt.steps >= attempt.max_steps:
                n_held = getattr(inner_agent(self.agent), "n_held", lambda _: 0)(slot)
                result = attempt.result("success" if solved else "failure", held=n_held)
                finished.append((slot, result))
        for slot, _ in finished:
            del self.running[slot]
        return finished

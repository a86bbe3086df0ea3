"""Episodes rolled out in batches, each result as its episode ends."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from recap.errors import InputError
from recap.evaluation.agents import Agent, Trial
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.worlds import make_world
from recap.types import EpisodeResult, Outcome

Watcher: TypeAlias = Callable[[Any], None]  # of what draws itself: `render()`


def run_trials(
    agent: Agent, spec: EvalSpec, trials: Iterable[Trial], batch_size: int, watch: Watcher | None = None
) -> Iterator[EpisodeResult]:
    """Run the trials, up to `batch_size` side by side, and yield each result as its episode ends.

    A result depends on its trial alone, not on its neighbours. Whatever the agent or the environment
    raises in an episode makes that one an "error": when several were under way, each is run again alone.

    Args:
        watch: called with the environment at the start and after every step of each episode.
    """
    waiting = iter(trials)
    while first := list(islice(waiting, batch_size)):
        batch = _Batch(agent, spec, len(first), watch)
        joining = dict(enumerate(first))
        while joining or batch.running:
            failure: str | None = None
            try:
                finished = batch.advance(joining)
            except Exception:
                failure = traceback.format_exc()
            if failure is not None:
                yield from _blame(agent, spec, list(batch.running.values()), failure, watch)
                break  # the environments may be torn in mid-step: the rest gets new ones
            joining = {}
            for slot, result in finished:
                yield result
                trial = next(waiting, None)
                if trial is not None:
                    joining[slot] = trial


def _blame(
    agent: Agent, spec: EvalSpec, attempts: Sequence[_Attempt], failure: str, watch: Watcher | None
) -> Iterator[EpisodeResult]:
    """Results of the episodes that were under way when something was raised: alone, each shows its own."""
    if len(attempts) == 1:
        yield attempts[0].result("error", failure)
        return
    for attempt in attempts:
        yield from run_trials(agent, spec, [attempt.trial], 1, watch)


class _Attempt:
    """An episode under way."""

    def __init__(self, trial: Trial, spec: EvalSpec) -> None:
        self.trial = trial
        self.steps = 0
        self.max_coverage = 0.0
        self.first_step: dict[str, int | None] = {threshold_key(t): None for t in spec.thresholds}
        self._thresholds = spec.thresholds

    def see(self, coverage: float) -> bool:
        """Note the coverage now; whether the last threshold is passed."""
        self.max_coverage = max(self.max_coverage, coverage)
        for threshold in self._thresholds:
            key = threshold_key(threshold)
            if self.first_step[key] is None and coverage > threshold:
                self.first_step[key] = self.steps
        return coverage > self._thresholds[-1]

    def result(self, outcome: Outcome, error: str | None = None) -> EpisodeResult:
        """What has come of it."""
        trial = self.trial
        return EpisodeResult(
            trial.task, trial.seed, outcome, self.steps, self.max_coverage, self.first_step, error
        )


class _Batch:
    """Environments side by side, each with an episode of its own."""

    def __init__(self, agent: Agent, spec: EvalSpec, n_slots: int, watch: Watcher | None) -> None:
        self.agent = agent
        self.spec = spec
        self.watch = watch
        self.running: dict[int, _Attempt] = {}
        self.world = make_world(spec, n_slots)

    def advance(self, joining: Mapping[int, Trial]) -> list[tuple[int, EpisodeResult]]:
        """Start an episode in each slot of `joining`, then take one step in all; what ended, by slot."""
        finished = self._start(joining) if joining else []
        # What ended at its start is told before anything else can be raised.
        return finished or (self._step() if self.running else [])

    def _start(self, joining: Mapping[int, Trial]) -> list[tuple[int, EpisodeResult]]:
        self.running.update({slot: _Attempt(trial, self.spec) for slot, trial in joining.items()})
        for slot, trial in joining.items():
            self.agent.reset(slot, trial)
        return self._note(list(joining), self.world.start(joining))

    def _step(self) -> list[tuple[int, EpisodeResult]]:
        slots = sorted(self.running)
        observations = [self.world.observe(slot, self._image_size(slot)) for slot in slots]
        chosen = np.asarray(self.agent.act(slots, observations), np.float64)
        width = self.world.action_dim
        if chosen.shape != (len(slots), width):
            raise InputError(
                f"the agent returned actions of shape {chosen.shape}: want ({len(slots)}, {width})"
            )
        progress = self.world.step(dict(zip(slots, chosen, strict=True)))
        for slot in slots:
            self.running[slot].steps += 1
        return self._note(slots, progress)

    def _image_size(self, slot: int) -> int | None:
        """The camera size the agent wants now; agents that look only when they plan have `wants_pictures`."""
        wants = getattr(self.agent, "wants_pictures", None)
        return self.agent.image_size if wants is None or wants(slot) else None

    def _note(self, slots: Iterable[int], progress: Mapping[int, float]) -> list[tuple[int, EpisodeResult]]:
        finished: list[tuple[int, EpisodeResult]] = []
        for slot in slots:
            attempt = self.running[slot]
            if self.watch is not None:
                self.watch(self.world.drawn(slot))
            if attempt.see(progress[slot]):
                finished.append((slot, attempt.result("success")))
            elif attempt.steps >= self.world.max_steps(slot):
                finished.append((slot, attempt.result("failure")))
        for slot, _ in finished:
            del self.running[slot]
        return finished

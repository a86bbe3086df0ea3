"""Traced episodes: at every look the match, its confidence, and the attention."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from recap.agent import RetrievalAgent
from recap.errors import InputError, RunDirectoryError
from recap.evaluation.agents import Agent, Trial, inner_agent, make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.run_directory import Key, open_run, read_info
from recap.evaluation.runner import provenance, with_pool_version
from recap.evaluation.spec import EvalSpec
from recap.evaluation.summary import Summary, summarise
from recap.geometry import transform_points
from recap.running_episode import Plan
from recap.types import F64, EpisodeResult, Observation, Retrieval
from recap.workers import run_in_workers
from recap_research.analysis.attention import (
    Figures,
    Reading,
    figures_of,
    mean_figures,
    reading_of,
    regions_of,
)
from recap_research.analysis.probe import WatchedPolicy
from recap_worlds.pusht.blocks import block_named
from recap_worlds.pusht.coverage import shared_area
from recap_worlds.pusht.suite import PushTWorld

TRACES = "traces.jsonl"


@dataclass(frozen=True)
class Look:
    """One retrieval during an episode."""

    step: int
    state: tuple[float, ...]  # (8) pusher x y, block x y angle, goal x y angle
    coverage: float
    distance: float | None  # to the match; None without one
    confidence: float | None  # None if the pool is too small
    match: str | None  # "episode:t"
    acted: bool  # True if a chunk was executed


@dataclass(frozen=True)
class Trace:
    """An episode's looks in order, and its attention if it was probed."""

    task: str
    seed: int
    looks: tuple[Look, ...]
    figures: Figures | None = None

    @property
    def abstained(self) -> bool:
        """True if the agent did not act at some look."""
        return any(not look.acted for look in self.looks)

    def to_json(self) -> dict[str, Any]:
        """One line of the file."""
        looks = [{**vars_of(look), "state": list(look.state)} for look in self.looks]
        probed = None if self.figures is None else self.figures.to_json()
        return {"task": self.task, "seed": self.seed, "looks": looks, "figures": probed}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Trace:
        """The inverse of `to_json`."""
        looks = tuple(Look(**{**look, "state": tuple(look["state"])}) for look in values["looks"])
        probed = None if values["figures"] is None else Figures.from_json(values["figures"])
        return cls(str(values["task"]), int(values["seed"]), looks, probed)


def vars_of(look: Look) -> dict[str, Any]:
    """The fields as a dict."""
    return {name: getattr(look, name) for name in Look.__dataclass_fields__}


def coverage_of(state: F64, block: str) -> float:
    """The coverage of the goal in a state (8,)."""
    shape = block_named(block)
    there, wanted = (transform_points(state[k : k + 3], shape.parts) for k in (2, 5))
    return float(shared_area(there, wanted)) / shape.area


class TracingAgent:
    """An agent that records its decisions, one episode at a time, and acts as without recording."""

    def __init__(self, agent: Agent, spec: EvalSpec, *, probe: bool = False) -> None:
        inner = inner_agent(agent)
        if not isinstance(inner, RetrievalAgent):
            raise InputError(
                f"agent '{spec.agent.policy}' retrieves nothing to trace: give replay or a policy"
            )
        self.agent, self.inner, self.block = agent, inner, str(spec.options["block"])
        self.image_size: int | None = agent.image_size
        self._probe: WatchedPolicy | None = None
        if probe:
            if inner.policy is None:
                raise InputError(f"agent '{spec.agent.policy}' has no network to look into: give a policy")
            masked = inner.policy._masks if isinstance(inner.policy, WatchedPolicy) else []
            self._probe = inner.predictor.policy = WatchedPolicy(inner.policy, note=True)
            self._probe._masks = masked
        self.board: PushTWorld | None = None
        self.keep: Callable[[Observation, Plan, Reading], None] | None = None
        self._begin()

    def _begin(self) -> None:
        self.looks: list[Look] = []
        self.figures: list[Figures] = []
        self._last: Retrieval | None = None
        self._plan: Plan | None = None

    def reset(self, slot: int, trial: Trial) -> None:
        """Start a new episode."""
        self._begin()
        self.agent.reset(slot, trial)

    def watch(self, board: PushTWorld) -> None:
        """Set the board whose state is recorded at the next look."""
        self.board = board

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """The actions of the agent; one slot only."""
        assert self.board is not None
        assert len(slots) == 1, "episodes are traced one at a time"
        state = self.board.state()
        step = round(observations[0].time_s * 10)
        actions = self.agent.act(slots, observations)
        found, plan = self.inner.retrieval(slots[0]), self.inner.plan(slots[0])
        if found is not None and found is not self._last:
            fresh = plan if plan is not self._plan else None
            self.looks.append(_look(found, state, step, self.block, fresh is not None))
            if fresh is not None and self._probe is not None:
                self._read(observations[0], fresh)
        self._last, self._plan = found, plan
        return actions

    def _read(self, observation: Observation, plan: Plan) -> None:
        assert self._probe is not None
        weights = next(weights for chunk, weights in self._probe.noted if chunk is plan.chunk)
        reading = reading_of(weights, self._probe.model.layout)
        grid = reading.maps.shape[-1]
        regions = regions_of(self._probe, observation, plan.conditioning, plan.chunk, self.block, grid)
        self.figures.append(figures_of(reading, regions))
        if self.keep is not None:
            self.keep(observation, plan, reading)


def _look(found: Retrieval, state: F64, step: int, block: str, acted: bool) -> Look:
    match = found.matches[0] if found.matches else None
    distance = None
    if match is not None and match.costs:  # without the penalties of used matches
        distance = round(float(np.sqrt(sum(match.costs.values()))), 4)
    return Look(
        step,
        tuple(round(float(x), 4) for x in state),
        round(coverage_of(state, block), 5),
        distance,
        None if np.isnan(found.confidence) else round(float(found.confidence), 5),
        None if match is None else f"{match.ref.episode_id}:{match.ref.t}",
        acted,
    )


def trace_episodes(
    agent: TracingAgent, spec: EvalSpec, trials: Iterator[Trial] | Sequence[Trial]
) -> Iterator[tuple[EpisodeResult, Trace]]:
    """Run the trials one after another."""
    for trial in trials:
        (result,) = run_trials(agent, spec, [trial], 1, agent.watch)
        probed = mean_figures(agent.figures) if agent.figures else None
        yield result, Trace(trial.task, trial.seed, tuple(agent.looks), probed)


def trace(
    spec: EvalSpec,
    out: Path,
    *,
    probe: bool = False,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """`recap eval` with traces: the same run directory plus `traces.jsonl`. Resumable."""
    spec = with_pool_version(spec)
    agent = make_agent(spec)
    started = time.monotonic()
    report = progress or (lambda done, total: None)
    with open_run(out, spec) as run:
        _check_probed(out, probe)
        _end_line(out / TRACES)
        trials, total = run.missing(), len(spec.trials())
        report(len(run.results), total)
        work = partial(_run, spec, probe)
        with closing(run_in_workers(work, trials, workers)) as episodes:
            for result, line in episodes:
                # The trace first: after a stop in between, the episode is run again; the later line counts.
                with (out / TRACES).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                run.append(result)
                report(len(run.results), total)
        summary = summarise(spec, run.sorted_results(), time.monotonic() - started, len(trials))
        run.write_info(summary.to_json(), provenance(agent))
    return summary


def _check_probed(out: Path, probe: bool) -> None:
    """A run that was started without the probe cannot be finished with it."""
    if probe and (out / TRACES).exists():
        with (out / TRACES).open(encoding="utf-8") as file:
            first = file.readline()
        if first and json.loads(first)["figures"] is None:
            raise RunDirectoryError(f"{out} was traced without the attention probe: give another directory")


def _end_line(file: Path) -> None:
    """End a line that was cut off by a stop, so that the next one is not lost."""
    if file.exists() and not file.read_bytes().endswith(b"\n"):
        with file.open("a", encoding="utf-8") as out:
            out.write("\n")


def _run(spec: EvalSpec, probe: bool, trials: Iterator[Trial]) -> Iterator[tuple[EpisodeResult, Any]]:
    agent = TracingAgent(make_agent(spec), spec, probe=probe)
    for result, found in trace_episodes(agent, spec, trials):
        yield result, found.to_json()


def read_traces(path: Path) -> tuple[EvalSpec, list[EpisodeResult], dict[Key, Trace]]:
    """The spec, results and traces of a traced run."""
    spec, results = read_info(path)
    file = path / TRACES
    if not file.exists():
        raise RunDirectoryError(
            f"{path} has no {TRACES}: run it with research/benchmarks/evidence.py, or trace()"
        )
    found: dict[Key, Trace] = {}
    for line in file.read_text("utf-8").splitlines():
        try:
            one = Trace.from_json(json.loads(line))
        except (ValueError, KeyError, TypeError):
            continue  # cut off by a stop; its episode was run again
        found[one.task, one.seed] = one
    missing = [f"{r.task}:{r.seed}" for r in results if (r.task, r.seed) not in found]
    if missing:
        raise RunDirectoryError(f"{file} lacks episode {missing[0]}: remove the directory and run it again")
    return spec, results, found

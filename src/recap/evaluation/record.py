"""Chosen episodes run again with a camera on: a film of each, and a still."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from recap.agent import RetrievalAgent
from recap.errors import InputError
from recap.evaluation.agents import inner_agent, make_agent
from recap.evaluation.film import Recorder, Reel, Shown, make_reel, write_film
from recap.evaluation.rollouts import run_trials
from recap.evaluation.run_directory import Key
from recap.evaluation.spec import EvalSpec
from recap.types import EpisodeResult

SAME_METRIC = 0.01
Choice = Callable[[EpisodeResult], bool]


@dataclass(frozen=True, slots=True)
class Recording:
    """What was written of one episode, and how the episode ended this time."""

    video: Path | None  # None when the agent could not even begin
    strip: Path | None
    recorded: EpisodeResult  # by the evaluation
    replayed: EpisodeResult  # in front of the camera

    @property
    def differs(self) -> bool:
        """Whether it went otherwise: the agent is not deterministic, or has changed since."""
        a, b = self.recorded, self.replayed
        # A network rounds otherwise on its own than in a batch.
        near = all(abs(a.metrics[k] - b.metrics.get(k, a.metrics[k])) <= SAME_METRIC for k in a.metrics)
        return (a.outcome, a.steps) != (b.outcome, b.steps) or not near


def parse_choice(text: str, spec: EvalSpec) -> Choice:
    """Which episodes: `3` (the first), `all`, `failures`, by task and seed (`+45:48`), or several."""
    ordered: list[Key] = [(task, seed) for task in spec.task_keys for seed in sorted(spec.seeds)]
    chosen: set[Key] = set()
    items = text.split(",")
    for item in items:
        if item == "all":
            chosen |= set(ordered)
        elif item.isdecimal() and int(item):
            chosen |= set(ordered[: int(item)])
        elif item != "failures":
            chosen.add(_parse_key(item, spec))
    for task, seed in sorted(chosen - set(ordered)):
        raise InputError(f"cannot record {task}:{seed}: this evaluation has no such episode")
    failures = "failures" in items
    return lambda result: (failures and result.outcome == "failure") or (result.task, result.seed) in chosen


def _parse_key(item: str, spec: EvalSpec) -> Key:
    goal, _, seed = item.partition(":")
    try:
        return spec.suite.task_key(goal), int(seed)
    except (ValueError, InputError):
        raise InputError(
            f"unknown episodes to record '{item}': give a number, failures, all, or task:seed such as "
            f"{spec.tasks[0]}:{spec.seeds[0]}, with commas between"
        ) from None


def record(spec: EvalSpec, results: Sequence[EpisodeResult], out: Path) -> Iterator[Recording]:
    """Run the episodes again, one by one, and write `<task>_<seed>_<outcome>` .mp4 and .png for each.

    Beside the world stand, where the agent has them, the future that it predicts and what it retrieved.
    """
    if not results:
        return
    agent = make_agent(spec)
    inner = inner_agent(agent)
    retrieving = inner if isinstance(inner, RetrievalAgent) else None
    trials = {(trial.task, trial.seed): trial for trial in spec.trials()}
    for result in results:
        recorder = Recorder(retrieving)
        (replayed,) = run_trials(agent, spec, [trials[result.task, result.seed]], 1, recorder)
        traces = recorder.traces()
        if not traces:
            yield Recording(None, None, result, replayed)
            continue
        stem = out / f"{result.task}_{result.seed}_{replayed.outcome}"
        shown = _shown(spec, replayed, make_reel(traces[0], retrieving))
        video, strip = write_film(stem, shown, traces[0].fps)
        yield Recording(video, strip, result, replayed)


def _shown(spec: EvalSpec, result: EpisodeResult, reel: Reel) -> Shown:
    """With words that the film's font has."""
    suite = spec.suite
    task = suite.title(result.task).encode("ascii", "ignore").decode()
    best = result.metrics.get(suite.metric, 0.0)
    ending = result.outcome if suite.metric == "success" else f"best {suite.metric} {best:.2f}"
    return Shown(f"{task}, seed {result.seed}", ending, result.outcome == "success", reel)

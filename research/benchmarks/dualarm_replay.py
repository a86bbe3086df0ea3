"""How far does retrieval alone get with two arms? The ViperX replays UR5e demonstrations.

    recap collect dualarm --task seen,unseen --embodiment ur5e --episodes 50 --image-size 0 --out data/ur5e
    recap pool create pools/ur5e; for task in data/ur5e/*; do recap pool add pools/ur5e $task; done
    python research/benchmarks/dualarm_replay.py --pool pools/ur5e --json docs/results/dualarm_replay.json

All ten tasks are in one pool. For each failure it reports whether anything was moved, and for each row the
number of chunks from a demonstration of another task.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from report import arguments, finish

from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig
from recap.cli.one_line import run_script
from recap.evaluation.agents import Trial
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.evaluation.statistics import wilson
from recap.pool.memory import MemoryPool
from recap.pool.opening import open_pool
from recap.retrieval.aligners import World
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.types import F64, Episode, EpisodeResult, Observation
from recap.workers import run_in_workers
from recap_worlds.dualarm.retrieval import N_ACTION_STEPS
from recap_worlds.dualarm.robot import TWO_ARMS

MOVED_M = 0.03
ALIGNERS = {"world": World()}
Told = tuple[EpisodeResult, dict[str, float]]


@dataclass(frozen=True)
class Row:
    """One evaluation."""

    name: str
    retrieval: str = "parts"
    per_task: int | None = None  # demonstrations of each task; None: all
    wording: str = "seen"
    n_action_steps: int = N_ACTION_STEPS
    changes: dict[str, Any] = field(default_factory=dict)  # to the retrieval's settings


class Watched:
    """Records what was moved, and which demonstrations were followed."""

    def __init__(self, agent: RetrievalAgent) -> None:
        self.agent, self.image_size = agent, agent.image_size
        self.told: dict[tuple[str, int], dict[str, float]] = {}
        self._running: dict[int, tuple[Trial, Observation | None, object]] = {}

    def reset(self, slot: int, trial: Trial) -> None:
        """Start a new episode."""
        self.agent.reset(slot, trial)
        self._running[slot] = (trial, None, None)
        self.told[trial.task, trial.seed] = {"chunks": 0, "other_task": 0, "moved_m": 0.0}

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        """Act, and record the matches."""
        actions = self.agent.act(slots, observations)
        for slot, seen in zip(slots, observations, strict=True):
            trial, first, before = self._running[slot]
            first = first or seen
            told, plan = self.told[trial.task, trial.seed], self.agent.plan(slot)
            far = [np.linalg.norm(seen.objects[n][:3] - first.objects[n][:3]) for n in seen.objects]
            told["moved_m"] = max(told["moved_m"], *map(float, far))
            if plan is not None and plan is not before and plan.retrieval.matches:
                told["chunks"] += 1
                told["other_task"] += f"/{trial.task}/" not in plan.retrieval.matches[0].ref.episode_id
            self._running[slot] = (trial, first, plan)
        return actions


def spec_of(row: Row, tasks: tuple[str, ...], seeds: range) -> EvalSpec:
    """The evaluation spec of a row."""
    agent = AgentConfig(retrieval=row.retrieval, n_action_steps=row.n_action_steps)
    return EvalSpec(agent, "dualarm", {"wording": row.wording}, tasks=tasks, seeds=tuple(seeds))


def play(
    row: Row, pool: str, tasks: tuple[str, ...], seeds: range, trials: Iterator[Trial]
) -> Iterator[Told]:
    """The work of one worker."""
    source: Any = open_pool(pool)
    if row.per_task is not None:
        view = source.view()
        kept: dict[str, list[Episode]] = {}
        for episode_id in view.episode_ids:
            kept.setdefault(episode_id.split("/")[1], []).append(view.episode(episode_id))
        source = MemoryPool([e for episodes in kept.values() for e in episodes[: row.per_task]])
    describer, config = find_retrieval(f"dualarm-{row.retrieval}", TWO_ARMS)
    changes: dict[str, Any] = {
        key: ALIGNERS[value] if key == "aligner" else value for key, value in row.changes.items()
    }
    retriever = Retriever(source, describer, replace(config, **changes))
    agent = Watched(RetrievalAgent(retriever, n_action_steps=row.n_action_steps, robot=TWO_ARMS))
    for result in run_trials(agent, spec_of(row, tasks, seeds), trials, 4):
        assert result.outcome != "error", result.error
        yield result, agent.told[result.task, result.seed]


def counted(found: Sequence[Told]) -> dict[str, Any]:
    """Successes with their interval, and facts about the failures."""
    won = sum(result.outcome == "success" for result, _ in found)
    lost = [told for result, told in found if result.outcome != "success"]
    chunks = sum(told["chunks"] for _, told in found)
    return {
        "successes": won,
        "n": len(found),
        "interval": list(wilson(won, len(found))),
        "steps": sum(result.steps for result, _ in found) / len(found),
        "failed_untouched": sum(told["moved_m"] < MOVED_M for told in lost),
        "failed_moved": sum(told["moved_m"] >= MOVED_M for told in lost),
        "failed_seeds": [result.seed for result, _ in found if result.outcome != "success"],
        "other_task": sum(told["other_task"] for _, told in found) / max(chunks, 1),
    }


ROWS = {
    "modes": [Row("single", "world"), Row("aligned")],
    "words": [Row("aligned, unseen words", wording="unseen")],
    "demonstrations": [Row(f"aligned, {n} of each task", per_task=n) for n in (1, 5, 20)],
    "choices": [
        Row("not moved", changes={"aligner": "world"}),
        Row("one candidate", changes={"n_candidates": 1}),
        Row("five candidates", changes={"n_candidates": 5}),
        Row("all candidates", changes={"n_candidates": None}),
        Row("nothing followed", changes={"follow_bonus": 0.0}),
        Row("no stall", changes={"stall_penalty": 0.0}),
        Row("four steps a chunk", n_action_steps=4),
        Row("sixteen steps a chunk", n_action_steps=16),
    ],
}


def main() -> None:
    """Run the rows one after another."""
    from recap_worlds.dualarm.tasks import SEEN, UNSEEN, tasks_named

    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--pool", required=True)
    parser.add_argument("--seeds", type=int, nargs=2, default=(500, 540), metavar=("FIRST", "END"))
    parser.add_argument("--tasks", default=",".join((*SEEN, *UNSEEN)))
    parser.add_argument("--only", nargs="*", help="these groups; the JSON file keeps its others")
    parser.add_argument("--rows", nargs="*", help="of those, these rows")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    result: dict[str, Any] = {}
    if options.json and options.json.exists():
        result = json.loads(options.json.read_text())
    tasks, seeds = tasks_named(options.tasks), range(*options.seeds)
    if options.quick:
        tasks, seeds = tasks[:2], seeds[:2]
    for group, rows in ROWS.items():
        if options.only and group not in options.only:
            continue
        for row in rows:
            if options.rows and row.name not in options.rows:
                continue
            began = time.perf_counter()
            trials = spec_of(row, tasks, seeds).trials()
            found = list(
                run_in_workers(partial(play, row, options.pool, tasks, seeds), trials, options.workers)
            )
            by_task = {task: counted([f for f in found if f[0].task == task]) for task in tasks}
            told = {"settings": asdict(row), "seeds": [seeds[0], seeds[-1]], "all": counted(found)}
            wall_s = time.perf_counter() - began
            result.setdefault(group, {})[row.name] = {**told, "tasks": by_task, "wall_s": wall_s}
            print(f"{row.name} ({wall_s:.0f} s)")
            for task, counts in by_task.items():
                print(
                    f"  {task:24s} {counts['successes']}/{counts['n']}, {counts['steps']:.0f} steps",
                    flush=True,
                )
            finish(result, options.json)  # written after each row, so a stopped run keeps its rows


if __name__ == "__main__":
    run_script(main)

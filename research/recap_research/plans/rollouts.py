"""Evaluations beside a training, in processes of their own; what is rolled out is kept as it comes."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass, replace
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any

from recap.evaluation.agents import Trial, make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.run_directory import INFO, open_run, read_info
from recap.evaluation.runner import provenance
from recap.evaluation.spec import EvalSpec
from recap.evaluation.summary import summarise
from recap.pool.opening import open_pool
from recap.types import EpisodeResult
from recap_research.plans.ledger import Ledger
from recap_research.plans.plan import EVALUATIONS, Evaluation, Log

N_PARALLEL = 35  # episodes that one process rolls out side by side
N_TABLES = 8  # at tables, where the physics of one is the most of it

Rolled = tuple[list[EpisodeResult], dict[str, Any], float]  # results, where they come from, seconds


def roll_out(spec: EvalSpec, trials: list[Trial]) -> Rolled:
    """Some of an evaluation's episodes."""
    import torch

    torch.set_num_threads(1)
    began = time.monotonic()
    agent = make_agent(spec)
    results = list(run_trials(agent, spec, trials, _n_parallel(spec)))
    return results, provenance(agent), time.monotonic() - began


def _n_parallel(spec: EvalSpec) -> int:
    return N_PARALLEL if spec.env == "pusht" else N_TABLES


def with_version(spec: EvalSpec) -> EvalSpec:
    """With its pool's version; the pool's address stays as given, so that a plan's folder can be moved."""
    return spec if spec.pool is None else replace(spec, pool_version=open_pool(spec.pool).view().version)


def is_finished(out: Path, evaluation: Evaluation) -> bool:
    """Whether all its episodes are there; a directory of another evaluation is refused when it is opened."""
    folder = out / EVALUATIONS / evaluation.name
    if not (folder / INFO).exists():
        return False
    spec, _ = read_info(folder)
    device = evaluation.spec.agent.device
    return replace(spec, pool_version=None).with_agent(device=device) == evaluation.spec


@dataclass
class _Waiting:
    """An evaluation under way."""

    spec: EvalSpec
    jobs: list[AsyncResult[Rolled]]
    began: float
    process_s: float = 0.0


class Rollouts:
    """Evaluations in processes of their own; with none, in this one. Each ends as a run directory."""

    def __init__(self, out: Path, n_workers: int, ledger: Ledger, log: Log) -> None:
        self.out, self.ledger, self.log = out, ledger, log
        self._pool = multiprocessing.get_context("spawn").Pool(n_workers) if n_workers else None
        self._waiting: dict[str, _Waiting] = {}
        self.failed: list[str] = []

    def __enter__(self) -> Rollouts:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()

    def start(self, evaluation: Evaluation) -> None:
        """Begin what of it is missing."""
        if is_finished(self.out, evaluation):
            return
        spec = with_version(evaluation.spec)
        with open_run(self._folder(evaluation.name), spec) as run:
            trials = run.missing()
        n = _n_parallel(spec)
        parts = [trials[i : i + n] for i in range(0, len(trials), n)]
        waiting = _Waiting(spec, [], time.monotonic())
        if self._pool is not None:
            waiting.jobs = [self._pool.apply_async(roll_out, (spec, part)) for part in parts]
            self._waiting[evaluation.name] = waiting
            return
        for part in parts:
            self._keep(evaluation.name, waiting, roll_out(spec, part))
        self._finish(evaluation.name, waiting)

    def gather(self, until: float) -> bool:
        """Keep what is done; whether all is, waiting until that time."""
        while True:
            for name, waiting in list(self._waiting.items()):
                self._gather_one(name, waiting)
            if not self._waiting or time.time() >= until:
                return not self._waiting
            time.sleep(0.2)

    def _gather_one(self, name: str, waiting: _Waiting) -> None:
        for job in [job for job in waiting.jobs if job.ready()]:
            waiting.jobs.remove(job)
            try:
                self._keep(name, waiting, job.get())
            except Exception as error:  # one evaluation that cannot be run is no reason to stop the others
                del self._waiting[name]
                self.failed.append(name)
                self.log("FAILED", name, f"{type(error).__name__}: {error}")
                return
        if not waiting.jobs:
            del self._waiting[name]
            self._finish(name, waiting)

    def _keep(self, name: str, waiting: _Waiting, rolled: Rolled) -> None:
        results, origin, seconds = rolled
        waiting.process_s += seconds
        with open_run(self._folder(name), waiting.spec) as run:
            for result in results:
                run.append(result)
            if not run.missing():
                run.write_info(summarise(waiting.spec, run.sorted_results()).to_json(), origin)

    def _finish(self, name: str, waiting: _Waiting) -> None:
        spec, results = read_info(self._folder(name))
        for group in summarise(spec, results).groups:
            self.log("EVALUATED", name, group.name, {key: str(rate) for key, rate in group.rates.items()})
        self.ledger.note(
            evaluation=name,
            episodes=len(results),
            evaluation_s=time.monotonic() - waiting.began,
            process_s=waiting.process_s,
        )

    def _folder(self, name: str) -> Path:
        return self.out / EVALUATIONS / name

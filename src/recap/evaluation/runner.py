"""An evaluation from spec to files: resumable, in one process, several, or on a Ray cluster."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from recap.assembly import EXPERT, HOLD
from recap.errors import InputError
from recap.evaluation.agents import Agent, Trial, inner_agent, make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.run_directory import INFO, open_run, read_info
from recap.evaluation.settings import SETTINGS, agent_settings
from recap.evaluation.spec import EvalSpec
from recap.evaluation.summary import Summary, summarise
from recap.evaluation.worlds import made
from recap.on_ray import run_on_ray
from recap.types import EpisodeResult
from recap.workers import WorkerLostError, run_in_workers

WITHOUT_POOL = (EXPERT, HOLD)
Progress: TypeAlias = Callable[[int, int], None]  # episodes done, total
Results: TypeAlias = Generator[EpisodeResult, None, None]


def evaluate(
    spec: EvalSpec,
    out: Path,
    *,
    workers: int = 1,
    batch_size: int = 8,
    ray_address: str | None = None,
    retry_errors: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Run the trials that have no result in `out`, then write its `eval_info.json`.

    Args:
        workers: processes on this machine; 1 uses this process. Not used with `ray_address`.
        batch_size: episodes in parallel in each process.
        retry_errors: rerun episodes that ended in an error.
    """
    for name, count in (("workers", workers), ("batch_size", batch_size)):
        if count < 1:
            raise InputError(f"{name} {count} is too few: give 1 or more")
    if made(spec.suite) is not spec.suite:
        spec = replace(spec)  # now that the suite is made, the spec is checked against it
    spec = with_pool_version(spec)
    elsewhere = None if retry_errors else _done_elsewhere(spec, out)
    if elsewhere is not None:
        return elsewhere
    agent = make_agent(spec)  # its errors are raised before anything is written
    started = time.monotonic()
    with open_run(out, spec, retry_errors=retry_errors) as run:
        trials = run.missing()
        total = len(spec.trials())
        report = progress or (lambda done, of: None)
        report(len(run.results), total)
        try:
            with closing(_results(spec, trials, workers, batch_size, ray_address)) as results:
                for result in results:
                    run.append(result)
                    report(len(run.results), total)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped: {_state(len(run.results), total)}") from None
        except WorkerLostError as error:
            raise WorkerLostError(f"{error}; {_state(len(run.results), total)}") from error
        summary = summarise(spec, run.sorted_results(), wall_s=time.monotonic() - started, n_run=len(trials))
        run.write_info(summary.to_json(), provenance(agent))
    return summary


def _done_elsewhere(spec: EvalSpec, out: Path) -> Summary | None:
    """The summary of a finished run that differs only in the device: filming it needs no GPU."""
    if not (out / INFO).exists():
        return None
    there, results = read_info(out)
    device = spec.agent.device
    if there.agent.device == device or there.with_agent(device=device) != spec:
        return None
    return summarise(there, results, n_run=0)


def provenance(agent: Agent) -> dict[str, Any]:
    """Facts that the spec does not contain: weights, number of demonstrations, and all settings by value."""
    from recap.agent import RetrievalAgent

    inner = inner_agent(agent)
    if not isinstance(inner, RetrievalAgent):
        return {}
    view = inner.retriever.source.view()
    whole = getattr(view, "inner", view)  # sub-trajectories are not counted as demonstrations
    found: dict[str, Any] = {"pool_version": view.version, "n_demonstrations": len(whole.episode_ids)}
    found[SETTINGS] = agent_settings(inner)
    return found if inner.policy is None else {**found, "checkpoint": inner.policy.fingerprint}


def with_pool_version(spec: EvalSpec) -> EvalSpec:
    """The spec with its pool's absolute path and version, so that a run never mixes two."""
    if spec.pool is None or spec.agent.policy in WITHOUT_POOL:
        return spec
    from recap.pool.opening import open_pool, pool_names

    version = open_pool(spec.pool).view().version
    local = "://" not in spec.pool and spec.pool not in pool_names()
    return replace(spec, pool=str(Path(spec.pool).resolve()) if local else spec.pool, pool_version=version)


def _results(
    spec: EvalSpec, trials: list[Trial], workers: int, batch_size: int, ray_address: str | None
) -> Results:
    """The results as they come; closing the generator stops the work."""
    if not trials:
        return
    if ray_address is not None:
        work = partial(_run_chunk, spec, batch_size)
        for chunk in run_on_ray(work, trials, 2 * batch_size, ray_address):
            yield from chunk
    else:
        batch_size = min(batch_size, math.ceil(len(trials) / workers))  # the first worker must not take all
        yield from run_in_workers(partial(_run, spec, batch_size), trials, workers)


def _run(spec: EvalSpec, batch_size: int, trials: Iterator[Trial]) -> Iterator[EpisodeResult]:
    """The work of one process."""
    yield from run_trials(make_agent(spec), spec, trials, batch_size)


def _state(n_done: int, total: int) -> str:
    return f"{n_done} of {total} episodes are done and kept; the same command resumes"


@lru_cache(maxsize=1)
def _agent(spec: str) -> Agent:
    """One agent per worker process, reused for every chunk."""
    return make_agent(EvalSpec.from_json(json.loads(spec)))


def _run_chunk(spec: EvalSpec, batch_size: int, trials: Sequence[Trial]) -> list[EpisodeResult]:
    return list(run_trials(_agent(json.dumps(spec.to_json())), spec, trials, batch_size))

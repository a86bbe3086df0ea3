"""The same trials on a Ray cluster, in small chunks that are run again elsewhere when a node dies."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from recap.errors import InputError
from recap.evaluation.agents import Agent, Trial, make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.types import EpisodeResult
from recap.workers import WorkerLostError

MAX_RETRIES = 10  # a lost node costs a chunk one; an agent that always crashes must not go on for ever


def run_on_ray(
    spec: EvalSpec, trials: Sequence[Trial], batch_size: int, address: str
) -> Iterator[EpisodeResult]:
    """Yield the results in the order in which chunks end; close it to cancel the rest."""
    ray = _connect(address)
    try:
        n_cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        size = max(1, min(2 * batch_size, math.ceil(len(trials) / (4 * n_cpus))))
        chunks = [list(trials[i : i + size]) for i in range(0, len(trials), size)]
        task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(_run_chunk)
        pending = [task.remote(spec, chunk, batch_size) for chunk in chunks]
        while pending:
            ready, pending = ray.wait(pending)
            for reference in ready:
                yield from ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # an agent that cannot be made, as it would be raised here
    except ray.exceptions.RayError as error:
        line = str(error).strip().splitlines()[0]
        raise WorkerLostError(f"Ray gave up on a chunk of episodes ({line})") from error
    finally:
        ray.shutdown()  # also cancels what is still running


def _connect(address: str) -> Any:
    """Join the cluster, or say in one line why not."""
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError("--ray needs Ray: pip install 'recap-robot[ray]'") from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _check_reachable(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:  # Ray raises what it likes here: ConnectionError, RuntimeError, its own…
        line = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"cannot join the Ray cluster at '{address}': {line}") from error
    return ray


def _check_reachable(address: str) -> None:
    """Fail at once where nobody listens: Ray itself would try for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        return  # "auto", "local": Ray finds it
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"cannot reach a Ray cluster at '{address}' ({error}): give host:port as `ray start` printed it"
        ) from error


@lru_cache(maxsize=1)
def _agent(spec: str) -> Agent:
    """One agent a worker process, kept from chunk to chunk."""
    return make_agent(EvalSpec.from_json(json.loads(spec)))


def _run_chunk(spec: EvalSpec, trials: Sequence[Trial], batch_size: int) -> list[EpisodeResult]:
    return list(run_trials(_agent(json.dumps(spec.to_json())), spec, trials, batch_size))

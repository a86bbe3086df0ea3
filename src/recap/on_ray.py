"""Distributes work over the nodes of a Ray cluster. Ray is an extra and is imported only here."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from recap.errors import InputError, cause
from recap.workers import WorkerLostError

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_RETRIES = 10  # a lost node costs a part one retry; a part that always crashes must end


def run_on_ray(
    work: Callable[[list[Item]], Result], items: Sequence[Item], most: int, address: str
) -> Iterator[Result]:
    """Yield the result of `work` for each part of the items, in order of completion; close to stop.

    Args:
        work: sent to each node, so it must be a module-level function, or a `functools.partial` of one.
        most: maximum number of items in a part.
    """
    ray = _connect(address)
    try:
        n_cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        size = max(1, min(most, math.ceil(len(items) / (4 * n_cpus))))
        task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(_call)
        pending = [task.remote(work, list(items[i : i + size])) for i in range(0, len(items), size)]
        while pending:
            ready, pending = ray.wait(pending)
            for reference in ready:
                yield ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # the same exception as without Ray
    except ray.exceptions.RayError as error:
        raise WorkerLostError(f"Ray gave up on a part of the work ({cause(error)})") from error
    finally:
        ray.shutdown()  # also cancels what is still running


def _call(work: Callable[[list[Item]], Result], part: list[Item]) -> Result:
    """A plain function around `work`, because Ray accepts no partial functions."""
    return work(part)


def check_cluster(address: str) -> Any:
    """The ray module; raises an InputError if it is not installed or the address does not answer."""
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError("--ray needs Ray: pip install 'recap-robot[ray]'") from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _check_reachable(address)
    return ray


def _connect(address: str) -> Any:
    """Join the cluster, or raise an InputError of one line."""
    ray = check_cluster(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:  # Ray raises ConnectionError, RuntimeError and types of its own
        raise InputError(f"cannot join the Ray cluster at '{address}': {cause(error)}") from error
    return ray


def _check_reachable(address: str) -> None:
    """Fail at once if the address does not answer; Ray itself would try for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        return  # "auto" or "local", which Ray resolves
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(f"no Ray cluster answers at '{address}' ({error}): give host:port") from error

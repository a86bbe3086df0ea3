"""Computes descriptors of a pool in advance, on this machine or on the nodes of a Ray cluster."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from recap.errors import DatasetError, InputError
from recap.on_ray import run_on_ray
from recap.pool.derived import N_TOGETHER, describe_some
from recap.pool.store import Pool, on_this_node
from recap.retrieval.presets import find_retrieval
from recap.robot import RobotSpec

N_PART = 32  # episodes per part, which is lost if the command is interrupted


@dataclass(frozen=True)
class Description:
    """What to describe, and how; small enough to send to every node."""

    uri: str
    retrieval: str
    robot: RobotSpec | None
    fingerprint: str


def build_descriptors(
    pool: Pool,
    retrieval: str,
    robot: RobotSpec | None,
    ray_address: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Describe episodes that have no descriptors yet; returns their number.

    Finished parts are kept if it is interrupted, and every node writes the same bytes as this machine would.
    """
    describer, _ = find_retrieval(retrieval, robot)
    view = pool.view()
    missing = view.undescribed(describer)
    if not missing:
        return 0
    work = partial(_describe_part, Description(pool.uri, retrieval, robot, describer.fingerprint))
    done: Iterable[int]
    if ray_address is None:
        done = (work(missing[i : i + N_PART]) for i in range(0, len(missing), N_PART))
    else:
        done = run_on_ray(work, missing, N_TOGETHER, ray_address)
    n = 0
    progress(0, len(missing))
    for part in done:
        n += part
        progress(n, len(missing))
    left = view.undescribed(describer)
    if len(left) + n > len(missing):
        raise DatasetError(
            f"{len(left)} of {len(missing)} episodes have no descriptors that can be read: "
            f"are all nodes at work on the same {pool.uri}?"
        )
    return n


def _describe_part(wanted: Description, keys: Sequence[tuple[str, str]]) -> int:
    """Describe some episodes and store the result; returns how many of them are unchanged."""
    pool, (describer, _) = on_this_node(wanted.uri), find_retrieval(wanted.retrieval, wanted.robot)
    there = pool.index().by_id
    if describer.fingerprint != wanted.fingerprint:
        raise InputError(
            f"node {socket.gethostname()} describes by {describer.fingerprint}, not {wanted.fingerprint}: "
            "install the same version and the same weights there"
        )
    same = [key for key in keys if key[0] in there and there[key[0]].sha256 == key[1]]
    if same:
        name, data, _ = describe_some(describer, same, [pool.get(name) for name, _ in same])
        pool.files.write(name, data)
    return len(same)

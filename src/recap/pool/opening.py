"""Pools and datasets by name or place: those of installed suites, packed snapshots, live pools, datasets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from recap.errors import DatasetError, InputError, did_you_mean
from recap.kinematics import tool_space
from recap.pool.importers.pairing import SCENE, check_rule, column_of, paired
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.packed import PackedPool
from recap.pool.view import PoolSource, PoolView
from recap.robot import RobotSpec
from recap.suites import suites

if TYPE_CHECKING:
    from recap.pool.importers import Transform


def pool_names() -> dict[str, str]:
    """Pools that come with installed suites: name -> what is in it."""
    return {name: text for suite in suites().values() for name, text in suite.pools().items()}


def open_pool(name: str, robot: RobotSpec | None = None) -> PoolSource:
    """A suite's pool by name, a `.safetensors` snapshot, a live pool, or a dataset, which does not grow.

    Args:
        robot: whose joints a dataset may be in; with its kinematic model they become tool poses.
    """
    for suite in suites().values():
        if name in suite.pools():
            return suite.open_pool(name)
    if name.endswith(".safetensors"):
        packed = PackedPool.open(Path(name))
        dressed = (suite.dress(packed) for suite in suites().values())
        return next((pool for pool in dressed if pool is not None), packed)
    if "/" not in name and not Path(name).exists():
        raise InputError(f"there is no pool '{name}': {did_you_mean(name, pool_names())}, or give a path")
    if "://" not in name and Path(name).exists():
        dataset = _dataset(Path(name), None, tool_space(robot))
        if dataset is not None:
            return dataset
    from recap.pool.store import Pool

    return Pool.open(name)


def open_demonstrations(
    place: str,
    mapping: Mapping[str, str] | None = None,
    transform: Transform | None = None,
    pair_by: str = SCENE,
) -> PoolView:
    """A pool's newest version, or the episodes of a dataset, read by that mapping and transformed.

    Args:
        pair_by: where scene ids come from, see `recap.pool.importers.pairing`.
    """
    path = None if "://" in place else _local(place)
    pool = None if path is None else _dataset(path, mapping, transform, column_of(check_rule(pair_by)))
    view = (pool or open_pool(place)).view()
    if pair_by == SCENE:
        return view
    episodes = list(paired((view.episode(name) for name in view.episode_ids), pair_by))
    return MemoryView(episodes, robot=getattr(view, "robot", None))


def _local(place: str) -> Path | None:
    """Where a dataset is, if it is one and no pool: here, or fetched from the hub by its name."""
    if any(place in suite.pools() for suite in suites().values()) or place.endswith(".safetensors"):
        return None
    if not Path(place).exists() and "/" not in place:
        return None  # `open_pool` lists the names there are
    from recap.pool.importers import local_path

    return local_path(Path(place))


def _dataset(
    path: Path,
    mapping: Mapping[str, str] | None,
    transform: Transform | None = None,
    column: str | None = None,
) -> MemoryPool | None:
    """The episodes of a dataset in any format that is imported; None where it is a live pool."""
    from recap.pool.importers import detect_format, open_source

    try:
        detect_format(path)
    except DatasetError:
        from recap.pool.store import MARK  # Lance, which files can do without

        if mapping or not (path / MARK).exists():
            raise  # it says what was expected there
        return None
    return MemoryPool(list(open_source(path, mapping=mapping or {}, transform=transform, column=column)))

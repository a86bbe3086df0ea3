"""Opens pools and datasets by name or path: pools of suites, packed snapshots, live pools, datasets."""

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
    """Pools of installed suites: name -> description."""
    return {name: text for suite in suites().values() for name, text in suite.pools().items()}


def open_pool(name: str, robot: RobotSpec | None = None) -> PoolSource:
    """A suite's pool by name, a `.safetensors` snapshot, a live pool, or a dataset, which never changes.

    Args:
        robot: converts a dataset's joints to tool poses, if it has a kinematic model.
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
    """A pool's newest version, or the episodes of a dataset, mapped and transformed.

    Args:
        pair_by: the source of scene ids, see `recap.pool.importers.pairing`.
    """
    path = None if "://" in place else _local(place)
    pool = None if path is None else _dataset(path, mapping, transform, column_of(check_rule(pair_by)))
    view = (pool or open_pool(place)).view()
    if pair_by == SCENE:
        return view
    episodes = list(paired((view.episode(name) for name in view.episode_ids), pair_by))
    return MemoryView(episodes, robot=getattr(view, "robot", None))


def _local(place: str) -> Path | None:
    """The path of a dataset, here or downloaded from the hub; None for a pool."""
    if any(place in suite.pools() for suite in suites().values()) or place.endswith(".safetensors"):
        return None
    if not Path(place).exists() and "/" not in place:
        return None  # `open_pool` lists the known names
    from recap.pool.importers import local_path

    return local_path(Path(place))


def _dataset(
    path: Path,
    mapping: Mapping[str, str] | None,
    transform: Transform | None = None,
    column: str | None = None,
) -> MemoryPool | None:
    """The episodes of a dataset in any supported format; None for a live pool."""
    from recap.pool.importers import detect_format, open_source

    try:
        detect_format(path)
    except DatasetError:
        from recap.pool.store import MARK  # imports Lance, which files do not need

        if mapping or not (path / MARK).exists():
            raise  # the error says what was expected
        return None
    return MemoryPool(list(open_source(path, mapping=mapping or {}, transform=transform, column=column)))

"""Before training: are the retrieved actions close enough to the robot's own to be worth correcting?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from recap.errors import InputError
from recap.pool.view import PoolView, robot_of
from recap.retrieval.config import with_scales
from recap.retrieval.presets import Retrieval, RetrievalFile, find_retrieval
from recap.robot import RobotSpec
from recap.suites import suites
from recap.training.residuals import HorizonRow, PairRow, Residuals
from recap.types import Episode

HORIZONS = (1, 2, 4, 8, 16, 32)
N_MOMENTS = 3000  # target frames that are queried, spread over all target episodes
WEAK = 0.9  # at this share of the error of holding still, or above, retrieval is not useful
HOLDS, UNCLEAR, FAILS = "holds", "unclear", "does not hold"  # how a verdict begins
MIN_SURE = 5  # target demonstrations; with fewer, the interval is not trusted
DRIFT = 2.0  # largest factor by which the error may grow within a recommended chunk
MIN_TARGET = 2  # demonstrations that the bootstrap needs


@dataclass(frozen=True)
class Check:
    """The result of `recap check`."""

    target: str
    pool: str
    n_target: int
    n_pool: int
    n_moments: int
    retrieval: str
    compared: tuple[str, ...]  # descriptor terms used for comparison
    n_paired: int  # target demonstrations with a scene that is also in the pool
    versions: tuple[int, int]  # of target and pool
    still: str  # the action that counts as holding still
    unit: str  # of all errors
    rows: tuple[HorizonRow, ...]
    chunk_size: int
    verdict: str
    pairs: tuple[PairRow, ...]  # worst first
    wall_s: float

    @property
    def best(self) -> HorizonRow:
        """The row of the recommended chunk length."""
        return next(row for row in self.rows if row.horizon == self.chunk_size)

    @property
    def misaligned(self) -> list[str]:
        """Ids of the target demonstrations to inspect or leave out."""
        return [pair.episode_id for pair in self.pairs if pair.misaligned]

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {"kind": "check", **asdict(self), "misaligned": self.misaligned}


def choose_retrieval(target: Episode, shown: Episode, robot: RobotSpec) -> Retrieval:
    """The retrieval of a suite that fits the data; otherwise `world` with all cameras and objects of both."""
    for suite in suites().values():
        name = suite.retrieval_for(target, shown)
        if name is not None:
            return find_retrieval(name)
    if target.proprio.shape[1] != shown.proprio.shape[1]:
        raise InputError(
            f"the target has {target.proprio.shape[1]}-D proprioception and the pool "
            f"{shown.proprio.shape[1]}-D: map both to the same numbers with --map, or describe the robot's "
            "kinematics"
        )
    cameras = tuple(name for name in robot.cameras if name in target.images and name in shown.images)
    sizes = {name: poses.shape[1] for name, poses in shown.objects.items() if name in target.objects}
    objects = tuple(sorted(name for name, size in sizes.items() if size == robot.object_size(name)))
    return RetrievalFile("world", cameras=cameras, objects=objects).build(robot)


def check_pool(
    target: PoolView,
    pool: PoolView,
    *,
    names: tuple[str, str] = ("target", "pool"),
    robot: RobotSpec | None = None,
    retrieval: str | None = None,
    horizons: Sequence[int] = HORIZONS,
    n_moments: int = N_MOMENTS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Check:
    """Retrieve for target frames as a policy would, and compare the retrieved actions with the true ones.

    Args:
        progress: called with target demonstrations done and their total; counts twice if some are paired.
    """
    started = time.monotonic()
    if not target.episode_ids or not pool.episode_ids:
        raise InputError(
            f"{names[bool(target.episode_ids)]} holds no demonstrations: there is nothing to compare"
        )
    if not horizons or min(horizons) < 1:
        raise InputError("a chunk has at least one action: give horizons of 1 or more")
    first, shown = target.episode(target.episode_ids[0]), pool.episode(pool.episode_ids[0])
    if first.actions.shape[1] != shown.actions.shape[1]:
        raise InputError(
            f"the target has {first.actions.shape[1]}-D actions and the pool {shown.actions.shape[1]}-D: "
            "map both to the same action space with --map"
        )
    robot = robot or robot_of(target)
    assert robot is not None  # target is not empty
    chosen = choose_retrieval(first, shown, robot) if retrieval is None else find_retrieval(retrieval, robot)
    describer, config = chosen
    if len(target.episode_ids) < MIN_TARGET:
        raise InputError(
            f"{names[0]} holds one demonstration, which tells nothing of how others differ: give "
            f"{MIN_TARGET} or more, ten for an interval to trust"
        )
    if config.auto_scale:
        config = with_scales(config, pool.descriptors(describer))
    measure = Residuals(target, pool, describer, config, robot, max(horizons), n_moments, progress)
    rows = tuple(measure.row(h) for h in sorted(set(horizons)))
    chunk = _recommend(rows)
    pairs = measure.pairs(chunk)
    return Check(
        names[0],
        names[1],
        len(target.episode_ids),
        len(pool.episode_ids),
        len(measure.moments),
        config.name,
        tuple(describer.terms),
        measure.n_paired,
        (target.version, pool.version),
        measure.still,
        "units of the actions" if (measure.units == 1).all() else "deviations of each kind of number",
        rows,
        chunk,
        _verdict(next(row for row in rows if row.horizon == chunk), len(target.episode_ids)),
        pairs,
        time.monotonic() - started,
    )


def _recommend(rows: Sequence[HorizonRow]) -> int:
    """The longest chunk for which the retrieved actions stay close enough: a rule of thumb.

    A longer chunk is easier to tell from holding still and needs fewer observations. But the retrieved
    actions drift, and the policy has to correct the drift without a new observation.
    """
    useful = [row for row in rows if row.high < WEAK]
    useful = [row for row in useful if row.ratio < WEAK] or useful
    near = [row.horizon for row in useful if row.corrected <= DRIFT * useful[0].corrected + 1e-6]
    return max(near) if near else min(rows, key=lambda row: row.corrected_ratio).horizon


def _verdict(row: HorizonRow, n_target: int) -> str:
    """Holds if the error is clearly a tenth below holding still, both as retrieved and moved to the robot."""
    if row.low >= WEAK:
        return f"{FAILS}: what is retrieved is no nearer than holding still"
    if row.high >= WEAK:
        return f"{UNCLEAR}: what is retrieved may be hardly nearer than holding still"
    if row.ratio_high >= WEAK:
        return f"{UNCLEAR}: unless moved to the robot, it may be hardly nearer than holding still"
    if n_target < MIN_SURE:
        return f"{UNCLEAR}: what is retrieved is nearer than holding still, in too few demonstrations"
    return f"{HOLDS}: what is retrieved is nearer than holding still"

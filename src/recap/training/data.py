"""From demonstrations to arrays: every target frame with its matches from the pool."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recap.compatible import foreign_joints_warning
from recap.errors import InputError
from recap.features.estimators import prepared
from recap.policies.policy import RetrievalStamp
from recap.pool.content import content_id
from recap.pool.importers.interventions import from_takeover
from recap.pool.importers.pairing import SCENE
from recap.pool.memory import MemoryView
from recap.pool.opening import open_demonstrations
from recap.pool.view import PoolView
from recap.retrieval.aligners import World
from recap.retrieval.config import with_scales
from recap.retrieval.pairs import Pairs, find_pairs, with_action_term
from recap.retrieval.presets import Retrieval, find_retrieval
from recap.retrieval.retriever import Retriever
from recap.robot import RobotSpec
from recap.suites import suites
from recap.training.config import PairsConfig, TrainConfig
from recap.training.data_cache import SIDES, TrainingData, cache_folder, data_key, read_data, write_facts
from recap.training.misalignment import leave_out, misalign
from recap.training.motion import displaced_samples
from recap.training.samples import (
    SampleBuilder,
    Samples,
    empty_samples,
    from_tables,
    number_pictures,
    oversample,
    render_pictures,
    split_picture_keys,
    take_rows,
)
from recap.training.stages import Stages
from recap.training.statistics import action_units, statistics_of
from recap.training.tables import new_table, read_tables, whole_folder
from recap.types import Episode
from recap.workers import run_in_workers

GROUPS = {"scene": attrgetter("scene_id"), "task": attrgetter("task")}  # kept together by `held_out_by`


def load_data(
    config: TrainConfig,
    stages: Stages | None = None,
    workers: int = 1,
    folder: Path | None = None,
    notify: Callable[[str], None] = lambda line: None,
) -> TrainingData:
    """Demonstrations, pairs and pictures of a training run, computed once and memory-mapped.

    Several workers need demonstrations that can be sent to another process: standard pools and snapshots.

    Args:
        folder: where they are stored; None uses a cache, with a hash of all inputs as the key.
        notify: called with warnings about the data.
    """
    stages = stages or Stages()
    for name in ("target", "pool"):
        if not getattr(config, name):
            raise InputError(f"there is nothing to learn from: give --{name}, a pool or a dataset")
    with stages("reading"):
        robot, by = config.policy.robot, config.pairs.by
        target = where(demonstrations(config.target, robot, by), config.target_where)
        target = spread(target, config.n_demonstrations)
        pool = where(demonstrations(config.pool, robot, by), config.pool_where)
        check_data(target, pool, config)
        others = foreign_joints_warning(robot, {e.embodiment for e in (*target, *pool)})
        if others and config.policy.retrieval:
            notify(f"warning: {others}")
        place = folder or cache_folder() / "training" / data_key(config, target, pool)
        data = read_data(place)
    if data is not None:
        stages.reuse("retrieval pairs", "moments", *["pictures"] if config.policy.sees else [])
        return data
    if place.exists():
        shutil.rmtree(place)  # damaged
    with whole_folder(place) as partial:
        write_facts(build_data(target, pool, config, stages, workers, partial), partial)
    data = read_data(place)
    assert data is not None, place
    return data


def check_data(target: Sequence[Episode], pool: Sequence[Episode], config: TrainConfig) -> None:
    """Raise an error for demonstrations that this training cannot use."""
    if not target:
        raise InputError(f"target '{config.target}' holds no demonstration: there is nothing to learn")
    if (config.policy.retrieval or config.co_training) and not pool:
        chosen = f" where {', '.join(config.pool_where)}" if config.pool_where else ""
        raise InputError(f"pool '{config.pool}' holds no demonstration{chosen}")
    for suite in suites().values():
        suite.check_training(config, target)
    for what, episodes in (("target", target), ("pool", pool)):
        check_layout(what, episodes, config)


def build_data(
    target: Sequence[Episode],
    pool: Sequence[Episode],
    config: TrainConfig,
    stages: Stages | None = None,
    workers: int = 1,
    folder: Path | None = None,
) -> TrainingData:
    """Build the arrays of these demonstrations.

    Args:
        folder: for memory-mapped files; None (only with one worker) keeps all in memory.
    """
    stages, policy, by = stages or Stages(), config.policy, config.held_out_by
    check_data(target, pool, config)
    target = list(map(from_takeover, target))  # the policy's actions before a take-over are no example
    train, held_out = split(target, config.held_out, by)
    pool_view = MemoryView(pool)
    with stages("retrieval pairs"):
        retrieval = training_retrieval(config, pool, pool_view)
    describer, search = retrieval
    stamp = RetrievalStamp(search.name, describer.fingerprint, search.metric_fingerprint, dict(search.scales))
    train_episodes = [*train, *co_training_episodes(pool, held_out, by)] if config.co_training else train
    all_episodes = [*train_episodes, *held_out]
    number_of = {(episode.id, content_id(episode)): i for i, episode in enumerate(all_episodes)}
    numbers: dict[str, int] = {}  # of the pool's episodes; one that is also in the target shares its pictures
    for episode in pool if policy.retrieval else ():
        numbers[episode.id] = number_of.get((episode.id, content_id(episode)), len(all_episodes))
        if numbers[episode.id] == len(all_episodes):
            all_episodes.append(episode)
    sides = {}
    for name, episodes in zip(SIDES, (train_episodes, held_out), strict=True):
        k = config.pairs.k if policy.retrieval and name == SIDES[0] else 1
        sides[name] = empty_samples(policy, episodes, k, None if folder is None else folder / name)
    # Other processes open the files themselves.
    side_samples = sides if workers == 1 else {name: side.tasks for name, side in sides.items()}
    report_pairs = partial(stages.report, "retrieval pairs") if workers == 1 else None
    pool_view = pool_view if policy.retrieval else MemoryView([])
    work = partial(_fill_parts, pool_view, config, retrieval, numbers, side_samples, folder, report_pairs)
    done, pairs_s = 0, 0.0
    with stages("moments"):
        for n, seconds in run_in_workers(work, _parts(train_episodes, held_out, workers), workers):
            done, pairs_s = done + n, pairs_s + seconds
            stages.report("moments", done, sum(map(len, sides.values())))
    stages.move("moments", "retrieval pairs", pairs_s / workers)
    # Both sides share pictures, except those of a top-down view, which are warped for each frame.
    groups = [[side] for side in sides.values()]
    keys: list[NDArray[np.int64]] = []
    for group in groups if policy.image.view == "top-down" else [list(sides.values())]:
        keys.append(number_pictures(group, sum(map(len, keys))))
    picture_keys = np.concatenate(keys)
    with stages("pictures"):
        report = partial(stages.report, "pictures")
        pictures = render_pictures(all_episodes, picture_keys, search.aligner, policy, folder, report)
    owners = new_table(folder, "owners", picture_keys.shape, np.int64)
    owners[:] = split_picture_keys(picture_keys)[0]
    left_out: tuple[str, ...] = ()
    samples = sides[SIDES[0]]
    place = None if folder is None else folder / "chosen"
    if config.co_training:
        samples = take_rows(samples, oversample(samples, sum(map(len, train)), config.own_share), place)
    elif config.pairs.leave_out and policy.retrieval:
        samples, left_out = leave_out(samples, train_episodes, policy.robot, action_units(policy), place)
    if place is not None and place.exists():
        shutil.rmtree(place.with_name(SIDES[0]))
        place.rename(place.with_name(SIDES[0]))
    displaced = samples
    if config.augment.displaces and policy.retrieval:
        displaced = displaced_samples(samples, policy, config.augment)
    return TrainingData(
        samples,
        sides[SIDES[1]],
        pictures,
        statistics_of(displaced, policy),
        stamp,
        (len(train), len(held_out), len(pool)),
        left_out,
        {"train": list(map(content_id, train_episodes)), "held_out": list(map(content_id, held_out))},
        owners,
        folder,
    )


@dataclass(frozen=True)
class _Part:
    """Demonstrations of one side of the split, for one worker."""

    episodes: tuple[Episode, ...]
    side: str
    first_row: int  # row of its side at which they start
    first: int  # number of the first one among all episodes


def _parts(train: Sequence[Episode], held_out: Sequence[Episode], workers: int) -> list[_Part]:
    """One part per side for one worker; smaller parts for several."""
    parts: list[_Part] = []
    for name, side, first in ((SIDES[0], train, 0), (SIDES[1], held_out, len(train))):
        size, row = len(side) if workers == 1 else -(-len(side) // (3 * workers)), 0
        for i in range(0, len(side), size):
            parts.append(_Part(tuple(side[i : i + size]), name, row, first + i))
            row += sum(map(len, parts[-1].episodes))
    return parts


def _fill_parts(
    pool_view: MemoryView,
    config: TrainConfig,
    retrieval: Retrieval,
    numbers: Mapping[str, int],
    sides: Mapping[str, Samples] | Mapping[str, tuple[str, ...]],
    folder: Path | None,
    report_pairs: Callable[[int, int], None] | None,
    parts: Iterator[_Part],
) -> Iterator[tuple[int, float]]:
    """Fill in the samples of each part; yield their number and the seconds spent on pairs.

    Args:
        sides: side -> its samples, or only its tasks if the samples are files in the folder.
        report_pairs: called with a part's demonstrations that have pairs, and their total.
    """
    for part in parts:
        side = sides[part.side]
        if not isinstance(side, Samples):
            assert folder is not None
            side = from_tables(read_tables(folder / part.side, "r+"), side)
        view, pairs, began = MemoryView(part.episodes), None, time.monotonic()
        for_training = part.side == SIDES[0]
        if config.policy.retrieval:
            pairs = pairs_for(view, pool_view, config, for_training, retrieval, report_pairs)
        if pairs is not None and for_training and config.pairs.misaligned > 0:
            pairs = misalign(pairs, pool_view, config.pairs.misaligned)
        pairs_s = time.monotonic() - began
        builder = SampleBuilder(view, pool_view, pairs, config.policy, retrieval[1], side, numbers)
        builder.fill(part.first_row, part.first)
        yield sum(map(len, part.episodes)), pairs_s


def split(
    target: Sequence[Episode], held_out: float, by: str = "scene"
) -> tuple[list[Episode], list[Episode]]:
    """Split into training and held-out demonstrations, evenly spread; a scene, or task, stays on one side."""
    groups = list(dict.fromkeys(map(GROUPS[by], target)))
    n = round(held_out * len(groups))
    if not 0 < n < len(groups):
        found = "all: lower" if n else "none: raise"
        raise InputError(f"held_out {held_out} of {len(groups)} {by}s is {found} it or give more")
    chosen = {groups[int((i + 0.5) * len(groups) / n)] for i in range(n)}
    train = [episode for episode in target if GROUPS[by](episode) not in chosen]
    return train, [episode for episode in target if GROUPS[by](episode) in chosen]


def co_training_episodes(pool: Sequence[Episode], held_out: Sequence[Episode], by: str) -> list[Episode]:
    """The pool's demonstrations for co-training, without held-out scenes or tasks.

    The instruction names the embodiment. The robot's own demonstrations keep theirs, as at test time.
    """
    excluded = set(map(GROUPS[by], held_out))
    kept = (episode for episode in pool if GROUPS[by](episode) not in excluded)
    return [replace(e, task=f"{e.task}, as the {e.embodiment} does") for e in kept]


def training_retrieval(
    config: TrainConfig, pool: Sequence[Episode], view: MemoryView | None = None
) -> Retrieval:
    """The policy's retrieval, with scales fitted on the training pool; missing data raise an error.

    Args:
        view: of the pool; it caches descriptors.
    """
    policy = config.policy
    describer, retrieval = find_retrieval(policy.retrieval_name, policy.robot, config.pairs.n_candidates)
    retrieval = replace(retrieval, chunk_size=policy.chunk_size)
    if policy.canonical == retrieval.aligner.in_world:
        raise InputError(
            f"retrieval '{retrieval.name}' describes moments in "
            f"{'the world' if retrieval.aligner.in_world else 'an object'}'s frame: set policy.canonical="
            f"{str(not retrieval.aligner.in_world).lower()}"
        )
    retrieval.aligner.refuse(policy.robot, policy.embodiment)
    if config.augment.displaces and not isinstance(retrieval.aligner, World):
        raise InputError(
            "augment.displace moves chunks away from where they were shown, and aligner "
            f"'{retrieval.aligner.name}' carries them over: set augment.displace=0, augment.displace_turn=0"
        )
    if pool and policy.retrieval:
        describer.describe(pool[0])  # raises an error for missing data
        missing = retrieval.aligner.requires.missing(pool[0].objects, pool[0].goal)
        if missing is not None:
            raise InputError(f"aligner '{retrieval.aligner.name}' needs {missing}, and the pool has none")
        if retrieval.auto_scale:
            retrieval = with_scales(retrieval, (view or MemoryView(pool)).descriptors(describer))
    return describer, retrieval


def check_layout(what: str, episodes: Sequence[Episode], config: TrainConfig) -> None:
    """Raise an error if a demonstration is of another robot or lacks a camera of the policy."""
    robot, policy = config.policy.robot, config.policy
    for episode in episodes:
        place = f"{what} '{getattr(config, what)}', episode '{episode.id}',"
        widths = {"action": (episode.actions, robot.act), "proprio": (episode.proprio, robot.body)}
        for name, (values, body) in widths.items():
            if values.shape[1] != body.size:
                raise InputError(
                    f"{place} has {values.shape[1]}-D {name}, robot '{robot.name}' "
                    f"{body.size}-D: give demonstrations of that robot, or its own description"
                )
        for camera in policy.image.cameras if policy.sees else ():
            if camera not in episode.images:
                known = ", ".join(episode.images) or "none"
                raise InputError(
                    f"{place} has no camera '{camera}': it has {known}; correct the "
                    f"name in the robot's description, or import with --map image:{camera}=KEY",
                    code="robot.camera",
                )


def pairs_for(
    target: PoolView,
    pool: MemoryView,
    config: TrainConfig,
    for_training: bool,
    retrieval: Retrieval,
    progress: Callable[[int, int], None] | None = None,
) -> Pairs:
    """Find the pairs of some demonstrations.

    Those for validation are found as at test time: without the action term, and never in the same scene.
    """
    pairs_config = config.pairs if for_training else PairsConfig(1, 0.0, False, config.pairs.n_candidates)
    describer, search = retrieval
    if for_training and pairs_config.action_weight > 0:
        weights = pairs_config.action_weight, pairs_config.step_weight
        describer, search = with_action_term(describer, search, config.policy.robot, *weights)
    return find_pairs(
        target,
        Retriever(pool, describer, search),
        pairs_config.k,
        pairs_config.allow_twin,
        progress=progress or (lambda done, total: None),
    )


def demonstrations(names: str, robot: RobotSpec | None = None, pair_by: str = SCENE) -> list[Episode]:
    """All demonstrations of these pools or datasets, separated by commas; joints become tool poses."""
    transform = prepared(robot)
    views = [open_demonstrations(name.strip(), None, transform, pair_by) for name in names.split(",")]
    return [view.episode(episode_id) for view in views for episode_id in view.episode_ids]


def where(episodes: list[Episode], conditions: Sequence[str]) -> list[Episode]:
    """Episodes that meet any of the conditions, such as `task_key=lift_pot`; all if there are none."""
    wanted = [condition.partition("=") for condition in conditions]
    return [e for e in episodes if not wanted or any(_meets(e, key, value) for key, _, value in wanted)]


def _meets(episode: Episode, key: str, value: str) -> bool:
    actual = episode.attributes.get(key)
    try:
        return float(actual) == float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(actual) == value


def spread(episodes: list[Episode], n: int) -> list[Episode]:
    """n episodes, spread evenly; all for n = 0."""
    if not n or n >= len(episodes):
        return episodes
    return [episodes[int((i + 0.5) * len(episodes) / n)] for i in range(n)]

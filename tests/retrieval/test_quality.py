"""Descriptor quality: ranks of the right task and scene, and the phase error."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from episodes import random_episode
from recap.errors import InputError
from recap.features.describer import TermDescriber
from recap.features.language import HashedWords
from recap.features.terms import Instruction, Time
from recap.pool.memory import MemoryView
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.quality import WHOLE, Quality, descriptor_quality
from recap.types import F64, Episode, Frames
from recap_worlds.pusht.terms import ObjectPosition

TASKS = ("push the block", "lift the lid", "turn the key")


@dataclass(frozen=True)
class Nothing:
    """A term with the same value for every frame."""

    dim: int = 1

    def describe(self, episode: Frames) -> F64:
        return np.zeros((len(episode), 1))


TERMS = {"words": Instruction(HashedWords()), "nothing": Nothing(), "block": ObjectPosition("block")}


def shown(embodiment: str, n: int) -> list[Episode]:
    """Two demonstrations of each task. Embodiments differ only in the number of frames."""
    found = []
    for i in range(6):
        whole = random_episode(f"{embodiment}-{i}", i, n=60)
        kept = np.linspace(0, 59, n).round().astype(int)
        found.append(
            replace(
                whole,
                task=TASKS[i % 3],
                timestamps=np.arange(n) / 10,
                proprio=whole.proprio[kept],
                actions=whole.actions[kept],
                objects={"block": whole.objects["block"][kept]},
            )
        )
    return found


def measured(pool: list[Episode], **weights: float) -> Quality:
    weights = weights or dict.fromkeys(TERMS, 1.0)
    config = RetrievalConfig("test", weights, weights, auto_scale=True)
    spec = TermDescriber({**TERMS, "time": Time()}), config
    return descriptor_quality(MemoryView(shown("arm", 60)), MemoryView(pool), spec)


def test_each_term_is_measured_alone_and_all_together() -> None:
    quality = measured(shown("hand", 30))
    assert [row.term for row in quality.rows] == [WHOLE, "words", "nothing", "block"]
    assert (quality.n_tasks, quality.n_episodes, quality.n_paired) == (3, 6, 6)
    rows = {row.term: row for row in quality.rows}
    assert rows["words"].task_rank == (1.0, 1.0, 1.0)
    assert rows["nothing"].task_rank == (2.0, 2.0, 2.0), "the middle rank of three tasks"
    assert rows["words"].scene_rank == (0.5, 0.5, 0.5), "words are the same in every scene of a task"
    assert rows["block"].scene_rank == (0.0, 0.0, 0.0)
    assert rows["block"].phase_error.mean < 0.02 < rows["nothing"].phase_error.mean
    assert rows["nothing"].phase_error.mean == pytest.approx(0.25, abs=0.02), "always the middle"


def test_the_interval_of_the_task_rank_contains_its_mean() -> None:
    row = next(row for row in measured(shown("hand", 30)).rows if row.term == "block")
    low, high = row.task_rank.low, row.task_rank.high
    assert 1 <= low < row.task_rank.mean < high <= 3


def test_the_task_rank_ignores_the_demonstration_of_the_same_scene() -> None:
    """The block's position identifies the same scene, but says nothing about the task."""
    alone = [replace(e, task=f"{e.task} {i}") for i, e in enumerate(shown("hand", 30))]
    target = [replace(e, task=f"{e.task} {i}") for i, e in enumerate(shown("arm", 60))]
    config = RetrievalConfig("test", {"block": 1.0}, {"block": 1.0}, auto_scale=True)
    quality = descriptor_quality(MemoryView(target), MemoryView(alone), (TermDescriber(TERMS), config))
    assert math.isnan(quality.rows[0].task_rank.mean), "no demonstration of the task is left"


def test_phase_error_and_task_rank_are_null_without_pairs_or_other_tasks() -> None:
    pool = [replace(e, scene_id=f"other {e.id}", task=TASKS[0]) for e in shown("hand", 30)]
    quality = measured(pool, block=1.0)
    assert quality.n_paired == 0
    assert quality.n_tasks == 1
    assert all(math.isnan(value.mean) for value in (quality.rows[0].phase_error, quality.rows[0].task_rank))
    assert quality.to_json()["rows"][0] == {
        "term": WHOLE,
        "task_rank": None,
        "scene_rank": None,
        "path_error": quality.to_json()["rows"][0]["path_error"],
        "phase_error": None,
    }


def test_the_path_weight_affects_the_scene_rank() -> None:
    """The tool moves to the block's position, which the words do not contain."""
    episodes = {name: shown(name, 30) for name in ("arm", "hand")}
    for name, some in episodes.items():
        one_task = [replace(e, task=TASKS[0]) for e in some]
        episodes[name] = [replace(e, proprio=e.objects["block"][:, :2]) for e in one_task]
    views = [MemoryView(some) for some in episodes.values()]
    ranks = []
    for path in (0.0, 1.0):
        config = RetrievalConfig("test", {"words": 1.0, "block": 1e-9, "path": path}, {"block": 1.0})
        ranks.append(descriptor_quality(*views, (TermDescriber(TERMS), config)).rows[0].scene_rank.mean)
    assert ranks[1] != ranks[0]


def test_the_path_error_is_measured_at_the_nearest_other_scene() -> None:
    ends = (0.0, 0.1, 1.0, 1.1)

    def lead(name: str, number: int) -> Episode:
        whole = replace(random_episode(name, number, n=30), scene_id=str(number))
        way = np.linspace(0, ends[number], 30)[:, None] * np.ones(2)
        place = np.tile([ends[number], 0, 0], (30, 1))
        return replace(whole, proprio=way.astype(np.float32), objects={"block": place.astype(np.float32)})

    views = [MemoryView([lead(f"{name}{i}", i) for i in range(4)]) for name in ("arm", "hand")]
    config = RetrievalConfig("test", {"block": 1.0}, {"block": 1.0})
    row = descriptor_quality(*views, (TermDescriber({"block": TERMS["block"]}), config)).rows[0]
    others = [np.mean([abs(a - b) for b in ends if b != a]) for a in ends]
    assert row.path_error.mean == pytest.approx(np.mean([0.1 / off for off in others]), rel=1e-3)


def test_a_pool_that_cannot_be_described_is_an_error() -> None:
    with pytest.raises(InputError, match="the pool"):
        measured([replace(e, objects={}) for e in shown("hand", 30)])

"""Stage 1 by predicted path: only the parts of a scene that affect the task's path count."""

from dataclasses import replace

import numpy as np

from recap.features.describer import TermDescriber
from recap.features.language import HashedWords
from recap.features.terms import Instruction, ObjectPoses
from recap.pool.memory import MemoryPool
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.explain import query_at
from recap.retrieval.paths import MIN_EPISODES, PATH, Paths
from recap.retrieval.retriever import Retriever
from recap.types import F32, Episode

N, D = 24, 40
SCENES = np.random.default_rng(3).uniform(0, 1, (N, D)).astype(np.float32)  # the first two numbers matter


def reach(name: str, scene: F32, task: str = "reach", n: int = 20) -> Episode:
    """A tool that moves from the origin to the point given by the scene's first two numbers."""
    way = np.linspace(0, 1, n)[:, None] * scene[:2]
    return Episode(
        id=name,
        scene_id=name,
        task=task,
        embodiment="arm",
        fps=10.0,
        timestamps=np.arange(n) / 10,
        proprio=way.astype(np.float32),
        actions=way.astype(np.float32),
        objects={"things": np.repeat(scene[None], n, axis=0)},
    )


POOL = [reach(f"p{i}", scene) for i, scene in enumerate(SCENES)]


def off(scene: F32, number: int) -> float:
    return float(np.linalg.norm(SCENES[number, :2] - scene[:2]))


def asked(seed: int) -> F32:
    return np.random.default_rng(seed).uniform(0, 1, D).astype(np.float32)


def test_predicted_paths_find_nearer_goals_than_scene_distance() -> None:
    paths = Paths(POOL, SCENES)
    by_path, by_look = [], []
    for seed in range(30):
        scene = asked(seed)
        by_path.append(off(scene, int(paths.costs(scene).argmin())))
        by_look.append(off(scene, int(np.square(SCENES - scene).sum(axis=1).argmin())))
    assert np.mean(by_path) < 0.75 * np.mean(by_look)


def test_scene_values_outside_the_pools_range_are_clipped() -> None:
    """Another embodiment in the image shifts the same numbers of every scene."""
    paths, scene = Paths(POOL, SCENES), asked(1)
    strange = scene.copy()
    strange[20:30] += 3.0
    clipped = scene.copy()
    clipped[20:30] = SCENES[:, 20:30].max(axis=0)
    assert np.allclose(paths.costs(strange), paths.costs(clipped))


def test_each_task_is_predicted_by_its_own_demonstrations() -> None:
    """The other task has the same scenes, but two other numbers matter."""
    other = [reach(f"o{i}", scene[2:], "other") for i, scene in enumerate(SCENES)]
    paths = Paths([*POOL, *other], np.concatenate([SCENES, SCENES]))
    alone = Paths(POOL, SCENES)
    assert len(paths.groups) == 2
    assert np.allclose(paths.costs(asked(2))[:N], alone.costs(asked(2)))


def test_excluded_demonstrations_are_not_used_for_prediction() -> None:
    paths = Paths(POOL, SCENES)
    without = Paths(POOL[1:], SCENES[1:])
    assert np.allclose(paths.costs(asked(4), [0])[1:], without.costs(asked(4)))


def test_path_costs_are_zero_for_too_few_demonstrations_or_constant_scenes() -> None:
    assert not Paths(POOL[: MIN_EPISODES - 1], SCENES[: MIN_EPISODES - 1]).costs(asked(5)).any()
    constant = np.ones((N, 3), np.float32)
    assert not Paths(POOL, constant).costs(np.ones(3, np.float32)).any()


def test_both_stages_use_the_path_weight() -> None:
    describer = TermDescriber(
        {"things": ObjectPoses(("things",), (0, D)), "words": Instruction(HashedWords())}
    )
    config = RetrievalConfig(
        "test", {"things": 0.01, "words": 1.0, PATH: 1.0}, {"words": 1.0, PATH: 0.5}, n_candidates=3
    )
    retriever = Retriever(MemoryPool(POOL), describer, config)
    target = reach("t", asked(6))
    found = retriever.retrieve(query_at(target, 5))
    costs = Paths(POOL, 0.1 * SCENES).costs(np.float32(0.1) * asked(6))
    assert len(found.candidates) == len(found.path_costs) == 3
    best = int(costs.argmin())
    assert found.matches[0].ref.episode_id == f"p{best}"
    assert np.isclose(found.matches[0].costs[PATH], 0.5 * costs[best], rtol=1e-3)
    assert np.isclose(found.matches[0].distance ** 2, 0.5 * costs[best], rtol=1e-3)
    again = retriever.retrieve(query_at(target, 9), found)
    assert (again.candidates, again.path_costs) == (found.candidates, found.path_costs)
    assert retriever.retrieve(query_at(replace(target, id="p0"), 5, frozenset({"p0"}))).candidates

"""Confidence is calibrated: alarms have the chosen rate, and shifted observations raise more of them."""

from math import comb

import numpy as np
import pytest

from episodes import observation_of, random_episode
from recap.pool.memory import MemoryPool
from recap.retrieval.confidence import Calibration
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.types import Query

POOL = [random_episode(f"demo-{i}", i, n=25) for i in range(300)]


def alarms(retriever: Retriever, alpha: float, shift: float, n: int = 200) -> int:
    rng = np.random.default_rng(1)
    count = 0
    for i in range(n):
        episode = random_episode("new", 10_000 + i, n=25)
        t = int(rng.integers(0, len(episode) - retriever.config.trim))
        episode.proprio[:] += np.float32(shift)
        moment = observation_of(episode, t)
        found = retriever.retrieve(Query((moment,), observation_of(episode, 0)))
        count += found.confidence < alpha
    return count


def binomial_bounds(n: int, p: float, tail: float = 0.001) -> tuple[int, int]:
    probabilities = np.array([comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])
    below = np.cumsum(probabilities)
    return int(np.searchsorted(below, tail)), int(np.searchsorted(below, 1 - tail))


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_false_alarm_rate_is_the_chosen_alpha(alpha: float) -> None:
    retriever = Retriever(MemoryPool(POOL), *find_retrieval("pusht-object"))
    low, high = binomial_bounds(200, alpha)
    assert low <= alarms(retriever, alpha, shift=0.0) <= high


def test_shifted_observations_raise_more_alarms() -> None:
    retriever = Retriever(MemoryPool(POOL), *find_retrieval("pusht-object"))
    assert alarms(retriever, 0.05, shift=400.0) > 4 * alarms(retriever, 0.05, shift=0.0)


def test_confidence_falls_with_distance_and_stays_in_range() -> None:
    calibration = Calibration(np.sort(np.random.default_rng(0).gamma(2.0, 5.0, 99)))
    values = [calibration.confidence(d) for d in np.linspace(0, 100, 50)]
    assert values == sorted(values, reverse=True)
    assert values[0] == 1.0
    assert values[-1] == pytest.approx(0.01)

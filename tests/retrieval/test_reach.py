"""Stage 2 prefers matches whose actions the robot can reach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jointed import HOME, TOOL, arm
from recap.assembly import AgentConfig, assemble_agent
from recap.errors import InputError
from recap.features.describer import TermDescriber
from recap.features.terms import Proprio
from recap.kinematics import JointSpace
from recap.pool.memory import MemoryPool
from recap.retrieval.aligners import ObjectFrame, World
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.reach import REACH
from recap.retrieval.retriever import Retriever
from recap.robot import Feature, RobotSpec
from recap.types import F64, Episode, Observation, Query, Retrieval

ARM = arm()
AT_HOME = JointSpace(ARM).tool(np.append(HOME, 1.0)).astype(np.float64)  # 10 numbers, gripper open
BOXED = RobotSpec("boxed", 30.0, (Feature("tool.position", "position", 3, "m", (-0.5, 0.5)), *TOOL[1:]))
UPRIGHT = [1.0, 0.0, 0.0, 0.0]


def walk(name: str, begin: F64, end: Any, n: int = 24, **changes: Any) -> Episode:
    """A tool that moves on a line from a pose to a position."""
    rows = np.tile(begin, (n, 1))
    rows[:, :3] = np.linspace(begin[:3], end, n)
    return Episode(
        id=name,
        scene_id=name,
        task="go",
        embodiment="arm",
        fps=30.0,
        timestamps=np.arange(n) / 30,
        proprio=rows.astype(np.float32),
        actions=np.concatenate([rows[1:], rows[-1:]]).astype(np.float32),
        **changes,
    )


def shifted(by: float) -> F64:
    """The home pose, shifted along y."""
    return AT_HOME + np.array([0, by, *[0.0] * 8])


def retriever(episodes: list[Episode], robot: RobotSpec | None = ARM, **changes: Any) -> Retriever:
    config = RetrievalConfig("test", {"proprio": 1.0}, {"proprio": 1.0}, **changes)
    return Retriever(
        MemoryPool(episodes), TermDescriber({"proprio": Proprio(ARM.body.letters)}), config, robot
    )


def asked(found: Retriever, n: int = 1, objects: dict[str, F64] | None = None) -> Retrieval:
    now = Observation(AT_HOME.astype(np.float32), "go", 0.0, objects=objects or {})
    return found.retrieve(Query((now,), now), n_matches=n)


FAR = AT_HOME[:3] + np.array([3.0, 0.0, 0.0])
NEAR = AT_HOME[:3] + np.array([-0.05, 0.0, 0.0])
OUT, WITHIN = walk("out", shifted(0.001), FAR), walk("within", shifted(0.01), NEAR)


@pytest.mark.parametrize("robot", [ARM, BOXED])
def test_a_reachable_match_is_preferred_to_a_nearer_unreachable_one(robot: RobotSpec) -> None:
    episodes = [OUT, WITHIN]
    assert asked(retriever(episodes, robot)).matches[0].ref.episode_id == "out"
    chosen, other = asked(retriever(episodes, robot, reach=1.0), n=2).matches
    assert (chosen.ref.episode_id, chosen.costs[REACH]) == ("within", 0.0)
    assert other.costs[REACH] > 0.5, "most of its chunk is out of reach"
    assert other.distance**2 == pytest.approx(sum(other.costs.values()), rel=1e-4)


def test_a_small_reach_weight_keeps_the_nearest_match() -> None:
    assert asked(retriever([OUT, WITHIN], reach=1e-9)).matches[0].ref.episode_id == "out"


def test_the_nearest_match_is_chosen_if_none_is_reachable() -> None:
    worse = walk("worse", shifted(0.02), FAR)
    assert asked(retriever([worse, OUT], reach=1.0)).matches[0].ref.episode_id == "out"


def test_reach_is_checked_after_alignment() -> None:
    here = np.array([*AT_HOME[:3], *UPRIGHT])
    away = np.array([AT_HOME[0] - 2.4, *AT_HOME[1:3], *UPRIGHT])
    shown = {
        name: np.tile(pose, (24, 1)).astype(np.float32) for name, pose in (("here", here), ("away", away))
    }
    near = walk("near", shifted(0.01), NEAR, objects={"cup": shown["here"]})
    # Reachable in the world frame, but not once it is aligned to the cup's current pose.
    carried = walk("carried", shifted(0.001), NEAR, objects={"cup": shown["away"]})
    found = retriever([near, carried], aligner=ObjectFrame("cup"), reach=1.0)
    assert asked(found, objects={"cup": here}).matches[0].ref.episode_id == "near"
    in_world = retriever([near, carried], aligner=World(), reach=1.0)
    assert asked(in_world, objects={"cup": here}).matches[0].ref.episode_id == "carried"


def test_reach_ahead_sets_how_many_steps_are_checked() -> None:
    late = walk("late", shifted(0.001), NEAR, n=12)
    end = walk("", np.array([*NEAR, *AT_HOME[3:]]), FAR, n=12)
    late = replace(
        walk("late", shifted(0.001), NEAR),
        actions=np.concatenate([late.actions, end.actions]),
    )
    assert asked(retriever([late, WITHIN], reach=1.0)).matches[0].ref.episode_id == "late"
    assert asked(retriever([late, WITHIN], reach=1.0, reach_ahead=99)).matches[0].ref.episode_id == "within"


def test_reach_is_computed_only_for_as_many_matches_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    can_reach = JointSpace.can_reach
    monkeypatch.setattr(JointSpace, "can_reach", lambda *a: tried.append(len(a[1])) or can_reach(*a))
    many = [walk(f"walk-{i}", shifted(0.01 * (i + 1)), NEAR) for i in range(20)]
    asked(retriever(many, reach=1.0))
    assert tried == [4], "the nearest is within reach"
    tried.clear()
    asked(retriever([OUT, *many], reach=1.0))
    assert len(tried) == 2


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 10), st.integers(1, 4))
def test_the_chosen_matches_have_the_lowest_distance_plus_reach_cost(seed: int, price: float, n: int) -> None:
    rng = np.random.default_rng(seed)
    ends = rng.uniform(-1, 1, (6, 3))
    episodes = [walk(f"walk-{i}", AT_HOME + rng.normal(0, 0.2, 10), end, n=8) for i, end in enumerate(ends)]
    plain = {e.id: asked(retriever([e], BOXED)).matches[0] for e in episodes}
    costs = {}
    for episode in episodes:
        poses = episode.actions[plain[episode.id].ref.t :]
        rows = np.linspace(-1, len(poses) - 1, min(4, len(poses)) + 1)[1:].round().astype(int)
        share = float((np.abs(poses[rows, :3]) > 0.5 + 1e-6).any(axis=1).mean())
        costs[episode.id] = plain[episode.id].distance ** 2 + price * share
    found = asked(retriever(episodes, BOXED, reach=price), n).matches
    wanted = sorted(costs, key=lambda name: costs[name])[:n]
    assert [costs[m.ref.episode_id] for m in found] == pytest.approx([costs[w] for w in wanted], rel=1e-4)


def test_reach_is_an_agent_setting_outside_the_metric_fingerprint() -> None:
    plain, weighed = (retriever([OUT], reach=price).config for price in (0.0, 5.0))
    assert plain.metric_fingerprint == weighed.metric_fingerprint
    agent = assemble_agent(AgentConfig(retrieval="world", reach=5.0), MemoryPool([OUT, WITHIN]), robot=ARM)
    assert (agent.retriever.config.reach, agent.retriever.config.reach_ahead) == (5.0, 0)


@pytest.mark.parametrize(
    ("robot", "words"),
    [
        (replace(BOXED, action_mode="delta"), "changes"),
        (RobotSpec("free", 30.0, TOOL), "neither kinematics nor limits"),
    ],
)
def test_reach_for_delta_actions_or_without_limits_is_an_error(robot: RobotSpec, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        retriever([OUT], robot, reach=1.0)
    assert caught.value.code == "retrieval.reach"

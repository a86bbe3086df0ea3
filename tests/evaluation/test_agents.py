from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import toy_agents

from recap.envs.dualarm.env import DualArmEnv
from recap.envs.pusht.env import PushTEnv
from recap.errors import InputError
from recap.evaluation.agents import Blur, PerEpisode, StillAgent, Trial, make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.types import F64, Observation

SPEC = EvalSpec("still", angles=(0.0,), seeds=(500, 501))


def test_still_agent_keeps_the_pusher_where_it_is() -> None:
    observation = Observation(np.array([3, 4], np.float32), "task", 0.0)
    assert StillAgent().act([5], [observation]).tolist() == [[3.0, 4.0]]
    results = list(run_trials(make_agent("still", SPEC), SPEC, SPEC.trials(), 2))
    assert [r.outcome for r in results] == ["failure", "failure"]


def test_per_episode_keeps_the_slots_apart() -> None:
    agent = PerEpisode(lambda: toy_agents.Wanderer(SPEC))
    for slot, seed in ((0, 500), (3, 501)):
        agent.reset(slot, Trial("0", 0.0, seed))
    observation = Observation(np.zeros(2, np.float32), "task", 0.0, objects={"block": np.array([1.0, 2, 3])})
    both = agent.act([3, 0], [observation, observation])
    alone = toy_agents.Wanderer(SPEC)
    for row, seed in ((0, 501), (1, 500)):
        alone.reset(seed)
        assert both[row].tolist() == alone.act(observation).tolist()


def test_factories_of_both_kinds() -> None:
    assert isinstance(make_agent("toy_agents:Wanderer", SPEC), PerEpisode)
    assert isinstance(make_agent("toy_agents:Batched", SPEC), toy_agents.Batched)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "exprt",
            r"unknown agent 'exprt': did you mean 'expert'\? \(a policy is named by its path",
        ),
        ("no_such_module:make", "cannot import 'no_such_module' for agent .*ModuleNotFoundError"),
        ("toy_agents:Wander", "no function 'Wander' in toy_agents: did you mean 'Wanderer'?"),
        ("toy_agents:unmakable", r"could not be made \(OSError: no weights here\)"),
        ("toy_agents:refused", "^this toy has no weights: train it first$"),
        ("toy_agents:not_an_agent", "is a int without reset and act"),
        (":", "cannot import ''"),
    ],
)
def test_unknown_and_broken_agents(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_agent(name, SPEC)


def test_the_kind_of_an_agent_is_told_by_what_act_needs() -> None:
    from recap.evaluation.agents import _n_required

    class Single:
        def act(self, observation: object, deterministic: bool = True, **extra: object) -> None: ...

    class Batched:
        def act(self, slots: object, observations: object, *rest: object) -> None: ...

    assert _n_required(Single().act) == 1
    assert _n_required(Batched().act) == 2


class Listener(StillAgent):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Observation] = []

    def act(self, slots: Sequence[int], observations: Sequence[Observation]) -> F64:
        self.told.extend(observations)
        return super().act(slots, observations)


def test_pose_noise_is_on_the_object_and_from_the_seed() -> None:
    listener = Listener()
    board = PushTEnv("triangle")
    board.reset(seed=500)
    seen = board.observe()
    for _ in range(2):
        agent = Blur(listener, 4.0, 2.0)
        agent.reset(0, Trial("+45", 45.0, 500))
        for _ in range(300):
            agent.act([0], [seen])
    off = np.array([o.objects["block"] - seen.objects["block"] for o in listener.told])
    assert np.array_equal(off[:300], off[300:])
    assert off[:300, :2].std() == pytest.approx(4.0, rel=0.15)
    assert np.degrees(off[:300, 2].std()) == pytest.approx(2.0, rel=0.15)
    assert all(o.goal is seen.goal and o.proprio is seen.proprio for o in listener.told)


def test_noise_on_two_arms_is_on_each_object_s_place_and_turn() -> None:
    table = DualArmEnv("move_can_pot", image_size=0)
    table.reset(seed=500)
    seen = table.observe(0)
    agent = make_agent("still", EvalSpec("still", env="dualarm", pose_noise_mm=5.0, pose_noise_deg=2.0))
    assert isinstance(agent, Blur)
    listener = agent.agent = Listener()
    agent.reset(0, Trial("move_can_pot", 0.0, 500))
    for _ in range(300):
        agent.act([0], [seen])
    off = {}
    for name, pose in seen.objects.items():
        poses = np.array([o.objects[name] for o in listener.told])
        off[name] = poses[:, :3] - pose[:3]
        assert 1000 * off[name].std() == pytest.approx(5.0, rel=0.15)
        cosines = np.clip(np.abs(poses[:, 3:] @ pose[3:]), 0, 1)
        turned = 2 * np.degrees(np.arccos(cosines))
        assert np.sqrt(np.square(turned).mean() / 3) == pytest.approx(2.0, rel=0.15), "about each axis"
    can, pot = off.values()
    assert abs(np.corrcoef(can.ravel(), pot.ravel())[0, 1]) < 0.15, "each its own"
    table.close()


@pytest.mark.parametrize(
    "changes",
    [{"pose_noise_px": -1.0}, {"pose_noise_deg": 1.0, "objects": "pixels"}, {"pose_noise_mm": 5.0}],
)
def test_noise_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="noise"):
        EvalSpec("replay", **changes)

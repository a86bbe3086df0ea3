"""Aligners: which robots they support, what they require of a scene, and episodes that lack it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from episodes import observation_of, random_episode
from recap.agent import RetrievalAgent
from recap.body import Feature, arm_features
from recap.errors import InputError
from recap.features.describer import TermDescriber
from recap.features.terms import ImageFeature, Proprio, Term
from recap.features.vision import PatchEncoder
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.store import Pool
from recap.retrieval.aligners import Aligner, GoalFrame, ObjectFrame, Parts, World
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.explain import query_at
from recap.retrieval.pairs import find_pairs
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.robot import ObjectSpec, RobotSpec
from recap.types import Episode, FrameRef, Query, Requires
from recap_worlds.dualarm.robot import TWO_ARMS
from recap_worlds.pusht.contact import ContactFrame
from recap_worlds.pusht.robot import PUSHT
from recap_worlds.pusht.terms import ObjectPosition, Position
from two_arms import lift_pot, place_in_box, pose

JOINTS = RobotSpec("joints", 20, (Feature("joints", "joint", 6), Feature("gripper", "gripper")))
ONE_ARM = RobotSpec("one-arm", 20, arm_features("tool"))
SEEN, OTHER = random_episode("seen", 1), random_episode("other", 2)
BARE = replace(random_episode("bare", 3), objects={}, goal=None)


def served(aligner: Aligner, robot: RobotSpec, embodiment: str = "disc") -> bool:
    try:
        aligner.refuse(robot, embodiment)
    except InputError:
        return False
    return True


def with_object(robot: RobotSpec, kind: str) -> RobotSpec:
    return replace(robot, objects={"block": ObjectSpec(kind)})  # type: ignore[arg-type]


def as_changes(robot: RobotSpec) -> RobotSpec:
    return replace(robot, action_mode="delta")


@pytest.mark.parametrize("robot", [PUSHT, TWO_ARMS, ONE_ARM, JOINTS, as_changes(PUSHT), as_changes(JOINTS)])
def test_world_aligner_supports_every_robot(robot: RobotSpec) -> None:
    assert served(World(), robot)


@pytest.mark.parametrize("aligner", [ObjectFrame("block"), GoalFrame("block"), ContactFrame("block")])
def test_object_frames_support_robots_with_positions(aligner: Aligner) -> None:
    assert served(aligner, PUSHT)
    assert served(aligner, with_object(ONE_ARM, "pose3"))
    assert served(aligner, with_object(ONE_ARM, "pose2")), "a planar frame transforms x and y"
    assert served(aligner, TWO_ARMS), "every object of the two arms has a 3-D pose"
    assert not served(aligner, JOINTS)


@pytest.mark.parametrize("aligner", [ObjectFrame("block"), GoalFrame("block"), ContactFrame("block")])
def test_object_frames_refuse_other_dimensions_boxes_and_delta_actions(aligner: Aligner) -> None:
    assert not served(aligner, with_object(PUSHT, "pose3")), "the positions of PushT are planar"
    assert not served(aligner, with_object(ONE_ARM, "box")), "a box has no direction"
    assert not served(aligner, as_changes(PUSHT)), "delta actions do not depend on the object's pose"


def test_parts_aligner_supports_only_arms_in_tool_space() -> None:
    assert served(Parts(), TWO_ARMS)
    assert served(Parts(), ONE_ARM)
    for robot in (PUSHT, JOINTS, as_changes(ONE_ARM)):
        assert not served(Parts(), robot)
    assert not served(Parts(), replace(ONE_ARM, action=JOINTS.action)), "its actions are joint angles"


def test_contact_frame_supports_only_embodiments_of_known_shape() -> None:
    assert served(ContactFrame("block"), PUSHT, "triangle")
    assert not served(ContactFrame("block"), PUSHT, "hand")


def test_an_agent_with_an_unsupported_aligner_is_an_error() -> None:
    describer = TermDescriber({"joints": Proprio(JOINTS.body.letters)})
    config = RetrievalConfig("mine", {}, {"joints": 1.0}, aligner=ObjectFrame("block"))
    with pytest.raises(InputError, match="aligner 'object'") as refused:
        RetrievalAgent(Retriever(MemoryPool(), describer, config), robot=JOINTS)
    assert "robot 'joints'" in str(refused.value)
    assert "\n" not in str(refused.value)
    RetrievalAgent(Retriever(MemoryPool(), describer, replace(config, aligner=World())), robot=JOINTS)


def test_required_objects_and_goal_of_each_aligner() -> None:
    assert World("block").requires == Parts().requires == Requires()
    assert ObjectFrame("can").requires == ContactFrame("can").requires == Requires(("can",))
    assert GoalFrame("can").requires == Requires(("can",), goal=True)
    describer, config = find_retrieval("pusht-object")
    assert Retriever(MemoryPool(), describer, config).requires == Requires(("block",), goal=True)
    blind = replace(config, weights={"proprio": 1.0}, scene_weights={}, same_goal=True)
    assert Retriever(MemoryPool(), describer, blind).requires.goal


def test_each_aligner_setting_has_its_own_fingerprint() -> None:
    config = RetrievalConfig("mine", {}, {"proprio": 1.0})
    aligners: list[Aligner] = [World(), World("block"), ObjectFrame("block"), ObjectFrame("can")]
    aligners += [GoalFrame("block"), ContactFrame("block"), Parts(), Parts(("can",)), Parts(servo_lag=1)]
    configs = [replace(config, aligner=aligner) for aligner in aligners]
    assert (
        len({c.fingerprint for c in configs}) == len({c.metric_fingerprint for c in configs}) == len(aligners)
    )


def test_symmetric_poses_are_queried_only_by_object_frames() -> None:
    for aligner, asked in ((World(), 1), (Parts(), 1), (ObjectFrame("block"), 4), (GoalFrame("block"), 4)):
        assert aligner.n_symmetries(4) == asked


def retriever_of(
    episodes: list[Episode], term: Term, aligner: Aligner, n_candidates: int | None = None
) -> Retriever:
    config = RetrievalConfig(
        "mine", {"term": 1.0}, {"term": 1.0}, aligner=aligner, n_candidates=n_candidates, chunk_size=4
    )
    return Retriever(MemoryPool(episodes), TermDescriber({"term": term}), config)


CAN = place_in_box(pose(-0.2, 0.3), pose(-0.1, 0.6), "can")
POT = lift_pot(pose(0.1, 0.4), "pot")
GOALLESS = replace(OTHER, id="goalless", goal=None)
LACKING = {
    "what a term reads": (ObjectPosition("block"), World(), [SEEN, BARE, OTHER], "bare"),
    "the goal of a term": (ObjectPosition("block", True), World(), [SEEN, GOALLESS, OTHER], "goalless"),
    "a camera": (ImageFeature(PatchEncoder(), "top"), World(), [SEEN, BARE, OTHER], "bare"),
    "what the aligner reads": (Position(), ObjectFrame("block"), [SEEN, BARE, OTHER], "bare"),
    "the goal of the aligner": (Position(), GoalFrame("block"), [SEEN, GOALLESS, OTHER], "goalless"),
    "numbers of the robot": (Proprio("XY"), World(), [SEEN, POT, OTHER], "pot"),
}


@pytest.mark.parametrize("where", ["first", "between", "last"])
@pytest.mark.parametrize("case", LACKING)
def test_episodes_without_required_data_are_left_out_of_the_index(case: str, where: str) -> None:
    term, aligner, (one, lacking, other), name = LACKING[case]
    if case == "a camera":
        films = np.random.default_rng(0).integers(0, 255, (2, 30, 32, 32, 3), np.uint8)
        one, other = (replace(e, images={"top": f}) for e, f in zip((one, other), films, strict=True))  # type: ignore[arg-type]
    order = {"first": [lacking, one, other], "between": [one, lacking, other], "last": [one, other, lacking]}
    retriever = retriever_of(order[where], term, aligner)
    index = retriever.index()
    assert index.unusable == (name,)
    assert index.episode_ids == ("seen", "other")
    assert len(index.frames) == len(one) + len(other), "the index holds rows of usable episodes only"
    for episode, t in ((one, 4), (other, 9)):
        found = retriever.retrieve(query_at(episode, t), n_matches=100)
        assert found.matches[0].ref == FrameRef(episode.id, t)
        assert {match.ref.episode_id for match in found.matches} <= {"seen", "other"}
        view = retriever.view_of(found)
        given = build_conditioning(view, [found.matches[0].ref], episode, t, retriever.config, PUSHT)
        assert np.isfinite(given.actions).all()


def test_a_pool_without_usable_episodes_retrieves_nothing() -> None:
    retriever = retriever_of([BARE, replace(BARE, id="bare too")], Position(), ObjectFrame("block"))
    found = retriever.retrieve(query_at(SEEN, 3))
    assert (found.matches, found.candidates, found.confidence) == ((), (), 0)
    assert retriever.index().unusable == ("bare", "bare too")


@pytest.mark.parametrize("matching", ["retrieved", "random"])
def test_an_agent_uses_only_the_usable_episodes(matching: str) -> None:
    pool = MemoryPool([BARE, SEEN, replace(BARE, id="bare too"), OTHER])
    describer = TermDescriber({"term": Position()})
    config = RetrievalConfig("mine", {}, {"term": 1.0}, aligner=ObjectFrame("block"))
    agent = RetrievalAgent(Retriever(pool, describer, config), robot=PUSHT, matching=matching)  # type: ignore[arg-type]
    for trial in range(20):
        agent.reset(trial, type("Trial", (), {"seed": trial}))
        action = agent.act([trial], [observation_of(SEEN, 5)])
        assert np.isfinite(action).all()
        plan = agent.plan(trial)
        assert plan is not None
        assert plan.conditioning.refs[0].episode_id in ("seen", "other")
        assert plan.conditioning.refs[0].t < 30


def test_adding_an_unusable_episode_does_not_interrupt_retrieval() -> None:
    pool = MemoryPool([SEEN])
    retriever = Retriever(pool, *find_retrieval("pusht-object"))
    query = Query((observation_of(SEEN, 4),), observation_of(SEEN, 0), SEEN.context)
    before = retriever.retrieve(query)
    pool.add(BARE)
    after = retriever.retrieve(query, previous=before)
    assert after.pool_version > before.pool_version
    assert after.matches[0].ref == before.matches[0].ref
    assert retriever.index().unusable == ("bare",)


def test_a_reopened_pool_still_lists_unusable_episodes(tmp_path: Path) -> None:
    pool = Pool.create(str(tmp_path / "pool"))
    pool.add([SEEN, BARE, OTHER])
    for opened in (pool, Pool.open(str(tmp_path / "pool"))):
        index = Retriever(opened, *find_retrieval("pusht-object")).index()
        assert (index.episode_ids, index.unusable) == (("seen", "other"), ("bare",))


def test_pairs_number_only_usable_episodes() -> None:
    retriever = retriever_of([BARE, SEEN, OTHER], Position(), ObjectFrame("block"))
    pairs = find_pairs(MemoryView([replace(OTHER, id="target", scene_id="t")]), retriever, k=1)
    assert pairs.pool_ids == ("seen", "other")
    assert pairs.refs(7) == [FrameRef("other", 7)]


def test_parts_aligner_returns_recorded_actions_without_objects() -> None:
    """No object is required: a demonstration without objects is retrieved as it was recorded."""
    describer, config = find_retrieval("dualarm-parts")
    bare = replace(CAN, id="without", objects={})
    retriever = Retriever(MemoryPool([bare]), describer, config)
    assert retriever.index().unusable == ()
    given = build_conditioning(MemoryView([bare]), [FrameRef("without", 5)], CAN, 5, config, TWO_ARMS)
    np.testing.assert_allclose(given.actions[0], bare.actions[5:21], atol=1e-5)

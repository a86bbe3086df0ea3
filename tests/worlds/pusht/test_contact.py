"""Contact retargeting from the disc to the triangle: the triangle touches the block where the disc did."""

from dataclasses import replace

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely.ops import nearest_points

from episodes import beside_its_block, observation_of, random_episode
from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig
from recap.errors import InputError
from recap.evaluation.agents import make_agent
from recap.evaluation.rollouts import run_trials
from recap.evaluation.spec import EvalSpec
from recap.geometry import transform_points
from recap.pool.memory import MemoryPool, MemoryView
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.training.data import build_data
from recap.training.presets import preset
from recap.types import FrameRef
from recap_worlds.pusht.contact import PUSHT_CONTACT
from recap_worlds.pusht.robot import PUSHT
from recap_worlds.pusht.shapes import BLOCK_BARS, DISC_RADIUS, TRIANGLE_CORNERS
from recap_worlds.pusht.suite import context_of

BLOCKS = sorted(BLOCK_BARS)


def block_of(name: str) -> shapely.Geometry:
    return shapely.unary_union([shapely.box(*bar) for bar in BLOCK_BARS[name]])


def discs_around(name: str, away: float, n: int, seed: int) -> np.ndarray:
    """Centres of discs around the block, `away` px from it: (n, 2)."""
    ring = block_of(name).buffer(DISC_RADIUS + away).exterior
    places = np.random.default_rng(seed).uniform(0, ring.length, n)
    return np.array([ring.interpolate(place).coords[0] for place in places])


@pytest.mark.parametrize("block", BLOCKS)
def test_the_triangle_touches_the_block_where_the_disc_did(block: str) -> None:
    discs = discs_around(block, 0.0, 200, seed=0)
    headings = np.random.default_rng(1).uniform(-np.pi, np.pi, len(discs))
    centers = PUSHT_CONTACT.as_tool("triangle", block, discs, headings)
    shape = block_of(block)
    for disc, center, heading in zip(discs, centers, headings, strict=True):
        turned = transform_points(np.array([0, 0, -heading]), np.array(TRIANGLE_CORNERS))
        triangle = shapely.Polygon(turned + center)
        spot = nearest_points(shape, shapely.Point(disc))[0]
        assert triangle.distance(spot) < 1e-6  # the spot is on it, or within
        assert triangle.exterior.distance(spot) < 3.0  # and not deep


@given(seed=st.integers(0, 10**6), away=st.floats(0, 60))
@settings(max_examples=20, deadline=None)
def test_as_disc_inverts_as_tool(seed: int, away: float) -> None:
    discs = discs_around("tee", away, 20, seed)
    headings = np.random.default_rng(seed).uniform(-np.pi, np.pi, len(discs))
    centers = PUSHT_CONTACT.as_tool("triangle", "tee", discs, headings)
    found = PUSHT_CONTACT.as_disc("triangle", "tee", centers, headings)
    wrong = np.linalg.norm(PUSHT_CONTACT.as_tool("triangle", "tee", found, headings) - centers, axis=1)
    assert wrong.max() < 4.0  # at a corner of the block, where one spot turns into the next
    assert np.median(wrong) < 0.05


@given(seed=st.integers(0, 10**6), away=st.floats(0, 60))
@settings(max_examples=20, deadline=None)
def test_retargeting_is_mirror_symmetric(seed: int, away: float) -> None:
    """The T and the triangle are mirror-symmetric, so a mirrored scene is retargeted mirrored."""
    discs = discs_around("tee", away, 20, seed)
    headings = np.random.default_rng(seed).uniform(-np.pi, np.pi, len(discs))
    flip = np.array([-1.0, 1.0])
    one = PUSHT_CONTACT.as_tool("triangle", "tee", discs, headings)
    other = PUSHT_CONTACT.as_tool("triangle", "tee", discs * flip, -headings)
    np.testing.assert_allclose(other, one * flip, atol=1e-9)


def test_retargeting_to_a_disc_changes_nothing() -> None:
    discs = discs_around("zed", 3.0, 50, seed=2)
    headings = np.linspace(-3, 3, 50)
    np.testing.assert_allclose(PUSHT_CONTACT.as_tool("disc", "zed", discs, headings), discs, atol=1e-9)
    episode = replace(random_episode("a", 0), embodiment="disc")
    assert PUSHT_CONTACT.to_reference_tool(episode) is episode


def test_far_from_the_block_retargeting_changes_nothing() -> None:
    discs = discs_around("tee", PUSHT_CONTACT.far + 1, 50, seed=3)
    np.testing.assert_allclose(
        PUSHT_CONTACT.as_tool("triangle", "tee", discs, np.zeros(50)), discs, atol=1e-9
    )


def test_an_action_is_shifted_like_the_next_state() -> None:
    episode = replace(beside_its_block(random_episode("a", 0)), embodiment="triangle")
    told = PUSHT_CONTACT.to_reference_tool(episode)
    moved = told.proprio - episode.proprio
    np.testing.assert_allclose((told.actions - episode.actions)[:-1], moved[1:], atol=1e-3)
    assert np.abs(moved).max() > 1  # some frames are near the block


@pytest.mark.parametrize(
    ("tool", "block", "message"), [("hand", "tee", "tool 'hand'"), ("triangle", "", "block ''")]
)
def test_an_unknown_tool_or_block_is_an_error_of_one_line(tool: str, block: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        PUSHT_CONTACT.as_disc(tool, block, np.zeros((1, 2)), np.zeros(1))
    assert "\n" not in str(caught.value)
    assert "retrieval pusht-object" in str(caught.value)


def test_contact_retrieval_changes_the_chunk_for_the_triangle_only() -> None:
    """Contact and object retrieval differ only for tools of another shape than the disc."""
    demo = beside_its_block(random_episode("demo", 1))
    ref = [FrameRef("demo", 4)]
    given = {
        (name, tool): build_conditioning(
            MemoryView([demo]),
            ref,
            replace(demo, embodiment=tool),
            6,
            find_retrieval(f"pusht-{name}")[1],
            PUSHT,
        )
        for name in ("object", "contact")
        for tool in ("disc", "triangle")
    }
    plain = given["object", "disc"]
    np.testing.assert_allclose(given["contact", "disc"].actions, plain.actions, atol=1e-4)
    assert np.array_equal(given["object", "triangle"].actions, plain.actions)
    assert np.abs(given["contact", "triangle"].actions - plain.actions).max() > 1


def test_a_triangle_is_described_by_its_point_of_contact() -> None:
    describer, _ = find_retrieval("pusht-contact")
    headings = np.zeros(30)
    discs = discs_around("tee", 0.0, 30, seed=4)
    demo = random_episode("demo", 1)
    still = {"block": np.zeros((30, 3), np.float32)}
    by_disc = replace(demo, proprio=discs.astype(np.float32), objects=still, attributes={"block": "tee"})
    centers = PUSHT_CONTACT.as_tool("triangle", "tee", discs, headings)
    by_triangle = replace(by_disc, embodiment="triangle", proprio=centers.astype(np.float32))
    apart = np.linalg.norm(
        describer.describe(by_triangle)["proprio"] - describer.describe(by_disc)["proprio"], axis=1
    )
    assert np.linalg.norm(centers - discs, axis=1).mean() > 3
    assert np.median(apart) < 0.01
    assert np.quantile(apart, 0.8) < 0.5  # at the corners two discs may match one triangle


def test_training_residuals_are_relative_to_the_retargeted_chunk() -> None:
    discs = [beside_its_block(random_episode(f"disc-{i}", i, n=12)) for i in range(4)]
    robots = [replace(disc, id=f"triangle-{i}", embodiment="triangle") for i, disc in enumerate(discs)]
    changes = ("policy.inputs=S", "policy.embodiment=triangle", "held_out=0.25")
    base = {
        name: build_data(
            robots, discs, preset("debug", (*changes, f"policy.retrieval_name=pusht-{name}"))
        ).train.base
        for name in ("object", "contact")
    }
    moved = np.abs(base["contact"] - base["object"])
    assert 1 < moved.max() < 25


def test_contact_retrieval_without_a_known_tool_is_an_error() -> None:
    nameless = replace(random_episode("demo", 1), attributes={})
    retriever = Retriever(MemoryPool([nameless]), *find_retrieval("pusht-contact"))
    seen = [observation_of(random_episode("now", 2), 3)]
    with pytest.raises(InputError, match="tool '' is not known"):
        RetrievalAgent(retriever, robot=PUSHT)
    unsaid = RetrievalAgent(retriever)
    unsaid.reset(0, None)
    with pytest.raises(InputError, match="tool '' is not known"):
        unsaid.act([0], seen)
    agent = RetrievalAgent(retriever, robot=PUSHT, context=context_of("tee", "triangle"))
    agent.reset(0, None)
    action = agent.act([0], seen)
    assert np.isfinite(action).all(), "the demonstration does not name its block, the query does"


def test_replay_by_contact_reaches_coverage_095_with_the_triangle() -> None:
    agent, options = AgentConfig(retrieval="contact"), {"pusher": "triangle"}
    spec = EvalSpec(agent, "pusht", options, tasks=("-45", "-30"), seeds=(510, 511, 512))
    results = list(run_trials(make_agent(spec), spec, spec.trials(), 6))
    assert sum(r.first_step["0.95"] is not None for r in results) >= 5, [r.error for r in results]

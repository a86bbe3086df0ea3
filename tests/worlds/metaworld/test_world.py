"""Meta-World through the public world interface; not skipped in `make test-long` and CI."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recap.agent import RetrievalAgent
from recap.errors import InputError
from recap.evaluation.agents import Trial
from recap.pool.importers import open_source
from recap.pool.memory import MemoryPool
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.testing import check_world
from recap.types import F64, Episode
from recap_worlds.collecting import SuiteSpec, collect_suite, demonstrate
from recap_worlds.metaworld.suite import MetaWorldSuite
from recap_worlds.metaworld.tasks import SEEN, TASKS, UNSEEN, tasks_named
from recap_worlds.metaworld.world import MetaWorld

pytestmark = pytest.mark.long
if not os.environ.get("CI"):
    pytest.importorskip("metaworld", reason="no metaworld: make .venv/.dev installs it")
SUITE = MetaWorldSuite()
NOMINAL = SUITE.check({})


def demonstration(task: str, seed: int, image_size: int = 0, **options: float) -> Episode:
    hand = SUITE.check(options)
    spec = SuiteSpec("metaworld", (task,), 1, "sawyer", hand, image_size=image_size)
    with closing(SUITE.make(hand)) as world:
        return demonstrate(spec, SUITE, world, SUITE.expert(hand), task, seed)


def test_the_world_passes_check_world() -> None:
    check_world(SUITE, "button-press")


def test_the_tasks_are_those_of_ml45() -> None:
    assert (len(SEEN), len(UNSEEN), len(set(TASKS))) == (45, 5, 50)
    assert tasks_named("unseen") == UNSEEN
    with pytest.raises(InputError, match="door-lock"):
        tasks_named("door-lok")


@pytest.mark.parametrize("task", ["button-press", "pick-place", "door-open", "sweep-into"])
def test_the_expert_succeeds_with_absolute_targets(task: str) -> None:
    assert demonstration(task, 500).success
    assert demonstration(task, 501).success


def test_a_seed_gives_bitwise_the_same_episode_after_any_other_episode() -> None:
    world, expert = SUITE.make(NOMINAL), SUITE.expert(NOMINAL)
    spec = SuiteSpec("metaworld", ("push",), 1, "sawyer", NOMINAL, image_size=0)
    first, _, again = (demonstrate(spec, SUITE, world, expert, "push", seed) for seed in (500, 501, 500))
    assert np.array_equal(first.proprio, again.proprio)
    assert np.array_equal(first.actions, again.actions)


FINGERS = ("rightclaw_it", "rightpad_geom", "leftclaw_it", "leftpad_geom")


def fingers(world: MetaWorld) -> F64:
    """(4, 3): positions of the fingers' geoms relative to the hand's body, in world axes."""
    data = world._env.data
    return np.array([data.geom(name).xpos - data.body("hand").xpos for name in FINGERS])


@pytest.mark.parametrize(("offset_y", "offset_z"), [(0.03, 0.0), (-0.03, 0.0), (0.0, 0.02), (0.01, -0.02)])
def test_claws_and_pads_are_shifted_once_by_the_offset(offset_y: float, offset_z: float) -> None:
    """Compared with a nominal world in the same process, over several resets and tasks."""
    options = SUITE.check({"offset_y": offset_y, "offset_z": offset_z})
    with closing(SUITE.make(options)) as other, closing(SUITE.make(NOMINAL)) as nominal:
        for task in ("reach", "door-lock", "door-lock", "reach"):
            for seed in (500, 501, 500):
                other.reset(seed, task)
                nominal.reset(seed, task)
                moved = fingers(other) - fingers(nominal)
                # At the start the hand is tilted by up to three degrees.
                assert np.abs(moved - (0.0, offset_y, offset_z)).max() < 0.003


def test_an_offset_of_zero_does_not_change_the_model() -> None:
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    own = ALL_V3_ENVIRONMENTS["pick-place-v3"]().model
    with closing(SUITE.make(SUITE.check({"offset_y": 0.03}))) as other, closing(SUITE.make(NOMINAL)) as world:
        other.reset(500, "pick-place")
        world.reset(500, "pick-place")
        model = world._env.model
        for name in ("body_pos", "body_quat", "geom_pos", "geom_quat", "site_pos"):
            kept = np.ones(len(getattr(own, name)), bool)
            if name.startswith("body"):  # objects on the table differ between scenes
                kept = np.array([own.body(int(root)).name == "base" for root in own.body_rootid])
                assert kept[own.body("leftpad").id]
            elif name == "site_pos":
                kept[own.site("goal").id] = False
            assert np.array_equal(getattr(model, name)[kept], getattr(own, name)[kept]), name


def test_the_expert_grasps_with_shifted_fingers_only_if_it_knows_the_offset() -> None:
    """The expert gets the shifted hand's options, or the nominal ones."""
    other = SUITE.check({"offset_y": 0.03})
    spec = SuiteSpec("metaworld", ("pick-place",), 1, "sawyer", other, image_size=0)
    for told, grasps in ((other, True), (NOMINAL, False)):
        with closing(SUITE.make(other)) as world:
            shown = [demonstrate(spec, SUITE, world, SUITE.expert(told), "pick-place", n) for n in (500, 501)]
        assert [episode.success for episode in shown] == [grasps, grasps]


@pytest.mark.parametrize("offset", [float("nan"), 0.2, -3.0])
def test_an_offset_out_of_range_is_an_error(offset: float) -> None:
    with pytest.raises(InputError, match=r"offset_z .* is out of range"):
        SUITE.check({"offset_z": offset})


def test_no_camera_image_shows_the_goal() -> None:
    """Two scenes of reach differ only in the goal, so their images are the same."""
    world = SUITE.make(NOMINAL)
    seen = []
    for seed in (500, 501):
        world.reset(seed, "reach")
        seen.append(world.observe(64))
    apart = np.abs(np.subtract(seen[0].objects["goal"], seen[1].objects["goal"])).max()
    assert apart > 0.01
    for camera in SUITE.robot(NOMINAL).cameras:
        changed = np.abs(seen[0].images[camera].astype(int) - seen[1].images[camera].astype(int))
        assert (changed.max(axis=-1) > 40).mean() < 0.05, camera


def test_a_resumed_collection_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    spec = SuiteSpec("metaworld", ("button-press", "drawer-close"), 1, "sawyer", NOMINAL, image_size=32)
    collect_suite(spec, tmp_path / "whole")

    def stop(done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect_suite(spec, tmp_path / "parts", progress=stop)
    collect_suite(spec, tmp_path / "parts")
    whole, parts = (sorted(open_source(tmp_path / name), key=lambda e: e.id) for name in ("whole", "parts"))
    assert [e.id for e in whole] == [e.id for e in parts]
    for one, other in zip(whole, parts, strict=True):
        assert np.array_equal(one.actions, other.actions)
        assert set(one.images) == {"scene", "wrist", "behind"}


def test_the_image_retrieval_shifts_a_demonstration_to_the_current_object() -> None:
    """One demonstration is replayed in four scenes: shifted it succeeds in all, unshifted not."""
    shown = demonstration("button-press-topdown", 100000, image_size=128)
    robot = SUITE.robot(NOMINAL)
    solved = {}
    for name in ("image", "metaworld-nearest"):
        describer, config = find_retrieval(name, robot)
        agent = RetrievalAgent(Retriever(MemoryPool([shown]), describer, config), robot=robot)
        solved[name] = [_replayed(agent, seed) for seed in range(500, 504)]
    assert sum(solved["image"]) == 4
    assert sum(solved["metaworld-nearest"]) < 4


def _replayed(agent: RetrievalAgent, seed: int) -> bool:
    world, n_drawn = SUITE.make(NOMINAL), 0
    world.reset(seed, "button-press-topdown")
    agent.reset(0, Trial("button-press-topdown", seed))
    for _ in range(200):
        drawn = agent.needs_images(0)
        n_drawn += drawn
        action = agent.act([0], [world.observe(128 if drawn else None)])[0]
        metrics, _ = world.step(action)
        if metrics["success"]:
            break
    assert n_drawn == 1  # only the first images are read
    return bool(metrics["success"])


def test_a_policy_is_trained_and_acts(tmp_path: Path) -> None:
    from recap.policies.checkpoint import from_pretrained
    from recap.training.data import build_data
    from recap.training.presets import preset
    from recap.training.trainer import train

    shown = [demonstration("coffee-button", 100000 + i, image_size=64) for i in range(3)]
    config = replace(preset("debug-metaworld"), target="shown", pool="shown")
    outcome = train(config, tmp_path / "run", data=build_data(shown, shown, config), device="cpu")
    policy = from_pretrained(outcome.last)
    describer, retrieval = find_retrieval(policy.config.retrieval_name, policy.config.robot)
    retrieval = replace(retrieval, chunk_size=policy.config.chunk_size)
    agent = RetrievalAgent(Retriever(MemoryPool(shown), describer, retrieval), policy)
    world = SUITE.make(NOMINAL)
    world.reset(500, "coffee-button")
    agent.reset(0, Trial("coffee-button", 500))
    action = agent.act([0], [world.observe(128)])[0]
    assert action.shape == (10,)
    assert np.isfinite(action).all()

"""Policies for two arms: the slots, and valid actions."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given as over
from hypothesis import strategies as st
from torch import Tensor

from made_arms import arms_config, arms_policy, demonstration, given_of, moments, seen_at
from recap.agent import RetrievalAgent
from recap.assembly import AgentConfig, retrieval_name
from recap.errors import InputError
from recap.evaluation.agents import make_agent
from recap.evaluation.spec import EvalSpec
from recap.geometry3 import GRIPPER, rotation6_error
from recap.policies.checkpoint import from_pretrained, save_pretrained
from recap.policies.config import PolicyConfig
from recap.policies.layout import build_layout
from recap.policies.vectors import numbers_of, pose_of, spans, targets_of, vectors_of
from recap.policies.wam import WorldActionModel
from recap.pool.memory import MemoryPool
from recap.retrieval.presets import find_retrieval
from recap.retrieval.retriever import Retriever
from recap.training.presets import preset
from recap.types import Episode
from recap_worlds.dualarm.robot import TWO_ARMS
from toy_policy import demonstrations as pushes
from toy_policy import random_batch

NANO = preset("dualarm-nano").policy


def moved(episode: Episode, x: float, y: float) -> Episode:
    """The whole scene shifted on the table."""
    arms = np.zeros(20, np.float32)
    arms[[0, 10]], arms[[1, 11]] = x, y
    thing = np.array([x, y, 0, 0, 0, 0, 0], np.float32)
    return replace(
        episode,
        proprio=episode.proprio + arms,
        actions=episode.actions + arms,
        objects={name: poses + thing for name, poses in episode.objects.items()},
    )


def test_three_cameras_and_chunks_of_320_numbers_fit_few_tokens() -> None:
    layout = build_layout(NANO)
    assert [(slot.name, slot.width) for slot in layout.slots] == [
        ("retrieved_frame_0/head", 0),
        ("retrieved_frame_1/head", 0),
        ("retrieved_proprio", 16 * 20 + 3 * 16 + 3 * 10),
        ("retrieved_action", 16 * 21),
        ("frame/head", 0),
        ("frame/left_wrist", 0),
        ("frame/right_wrist", 0),
        ("proprio", 20 + 3 * 16),
        ("action", 320),
        ("future_frame/head", 0),
        ("future_proprio", 20 + 3 * 10),
    ]
    assert layout.n_tokens == 176


@pytest.mark.parametrize("inputs", ["S", "I+S"])
def test_reading_a_slot_inverts_writing_it(inputs: str) -> None:
    layout = build_layout(replace(NANO, inputs=inputs))  # type: ignore[arg-type]
    for slot in layout.vectors:
        vector = torch.randn(2, slot.width)
        frame = layout.write(vector)
        assert frame.shape == (2, layout.channels, layout.size, layout.size)
        assert torch.allclose(layout.read(frame, slot.width), vector, atol=1e-6)


def test_objects_beyond_the_slots_are_ignored_and_missing_ones_are_marked() -> None:
    here = np.array([0.1, 0.2, 0.3, 1, 0, 0, 0])
    for n in (0, 1, 3, 5):
        told = pose_of(np.tile(here, n), NANO).reshape(3, 10)
        assert told[:, -1].tolist() == [1.0] * min(n, 3) + [0.0] * max(0, 3 - n)
        assert not told[n:].any()
        np.testing.assert_allclose(told[:n, :9], np.tile([0.1, 0.2, 0.3, 1, 0, 0, 0, 1, 0], (min(n, 3), 1)))
    gone = np.concatenate([np.zeros(7), here])
    assert pose_of(gone, replace(NANO, n_objects=2)).reshape(2, 10)[:, -1].tolist() == [0.0, 1.0]


def test_object_positions_are_relative_to_both_tools() -> None:
    query = demonstration("viperx", 3)
    vector = vectors_of(given_of(NANO, query, 5, query, 5), NANO).vectors["proprio"]
    thing, state = query.objects["box"][5, :3], vector[20:].reshape(3, 16)
    np.testing.assert_allclose(state[0, 10:13], thing - query.proprio[5, :3], atol=1e-6)
    np.testing.assert_allclose(state[0, 13:16], thing - query.proprio[5, 10:13], atol=1e-6)
    assert not state[2].any()


@over(
    x=st.floats(-0.3, 0.3), y=st.floats(-0.3, 0.3), name=st.sampled_from(["dualarm-parts", "dualarm-world"])
)
def test_vectors_are_invariant_to_the_position_on_the_table(name: str, x: float, y: float) -> None:
    config = replace(NANO, retrieval_name=name)
    query, shown = demonstration("viperx", 1, px=8), demonstration("ur5e", 2, px=8)
    here = vectors_of(given_of(config, query, 4, shown, 6), config)
    there = vectors_of(given_of(config, moved(query, x, y), 4, moved(shown, x, y), 6), config)
    np.testing.assert_allclose(here.vectors["retrieved_action"], there.vectors["retrieved_action"], atol=1e-4)
    away = there.vectors["proprio"] - here.vectors["proprio"]
    for part, at in spans(numbers_of(config)["proprio"]):
        if part.kind == "position" and not part.relative:
            away[at][:2] = 0
    np.testing.assert_allclose(away, 0, atol=1e-4)


@pytest.mark.parametrize("residual", [True, False])
def test_targets_plus_their_base_equal_the_demonstrated_actions(residual: bool) -> None:
    config = replace(NANO, residual=residual)
    query = demonstration("viperx", 1)
    moment = vectors_of(given_of(config, query, 4, demonstration("ur5e", 2), 6), config)
    actions = query.actions[4:20].astype(np.float64)
    found = targets_of(actions, query.proprio[20].astype(np.float64), np.zeros(0), moment, config)
    added = found["action"].reshape(16, 20) + (moment.base if residual else moment.origin)
    np.testing.assert_allclose(added, actions, atol=1e-6)
    np.testing.assert_allclose(TWO_ARMS.act.project(added, moment.base), actions, atol=1e-6)


def test_predicted_actions_have_valid_rotations_and_gripper_values() -> None:
    policy = arms_policy()
    observations, shown = moments(policy, 3)
    for chunk, given in zip(policy.predict_action_chunk(observations, shown), shown, strict=True):
        for start in (0, 10):
            assert rotation6_error(chunk.actions[:, start + 3 : start + 9]).max() < 1e-5
            assert np.abs(chunk.actions[:, start + GRIPPER] - 0.5).max() <= 0.5
        np.testing.assert_allclose(chunk.residual, chunk.actions - given.actions[0], atol=1e-5)
        assert chunk.predicted_state is not None
        assert chunk.predicted_latents is not None
        assert chunk.predicted_state.shape == (50,)
        assert chunk.predicted_latents.shape == (1, 16, 4, 4)


def test_an_invalid_rotation_is_replaced_by_the_retrieved_one() -> None:
    base = demonstration("viperx", 1).actions[:4]
    broken = base.copy()
    broken[1, 3:9] = 0
    broken[2, 16:19] = 2 * broken[2, 13:16]
    broken[3, GRIPPER] = 1.7
    found = TWO_ARMS.act.project(broken, base)
    np.testing.assert_allclose(found[:3], base[:3], atol=1e-6)
    assert found[3, GRIPPER] == 1.0


def test_actions_are_finite_without_matches_or_without_objects() -> None:
    policy = arms_policy(inputs="S")
    query = demonstration("viperx", 0)
    given = given_of(policy.config, query, 3, query, 3)
    empty = replace(given, refs=(), last_refs=(), valid=np.zeros_like(given.valid))
    bare = replace(given, object_now=np.zeros(0), objects=np.zeros((1, policy.config.chunk_size, 0)))
    for one in (empty, bare):
        chunk = policy.predict_action_chunk([seen_at(query, 3)], [one], torch.Generator().manual_seed(0))[0]
        assert np.isfinite(chunk.actions).all()


def test_the_loss_falls_on_a_repeated_batch() -> None:
    torch.manual_seed(0)
    model = WorldActionModel(arms_config(inputs="S"))
    batch = random_batch(model, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = torch.Generator().manual_seed(0)
    history = []
    for _ in range(100):
        noise = model.draw_noise(4, draw, torch.device("cpu"))
        loss = sum(v.mean() for v in model.losses(batch, noise, torch.rand(4, generator=draw)).values())
        assert isinstance(loss, Tensor)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(float(loss.detach()))
    assert np.mean(history[-10:]) < 0.7 * np.mean(history[:10])


def test_a_loaded_checkpoint_predicts_the_same(tmp_path: Path) -> None:
    policy = arms_policy()
    save_pretrained(policy, tmp_path / "arms")
    loaded = from_pretrained(tmp_path / "arms")
    assert loaded.config == policy.config
    assert loaded.fingerprint == policy.fingerprint
    observations, given = moments(policy, 2)
    dice = [torch.Generator().manual_seed(i) for i in range(2)]
    again = [torch.Generator().manual_seed(i) for i in range(2)]
    for a, b in zip(
        policy.predict_action_chunk(observations, given, dice),
        loaded.predict_action_chunk(observations, given, again),
        strict=True,
    ):
        np.testing.assert_array_equal(a.actions, b.actions)
    card = (tmp_path / "arms" / "README.md").read_text("utf-8")
    assert "images (head, left_wrist, right_wrist), poses of objects" in card
    assert "Robot: dualarm" in card


def test_the_policy_config_survives_json() -> None:
    plain = NANO.to_json()
    assert plain["robot"]["proprio"][1] == {
        "name": "left.rotation",
        "kind": "rotation6d",
        "size": 6,
        "unit": "",
        "limits": None,
    }
    assert PolicyConfig.from_json(json.loads(json.dumps(plain))) == NANO


def test_a_checkpoint_of_another_world_or_retrieval_is_an_error(tmp_path: Path) -> None:
    save_pretrained(arms_policy(inputs="S"), tmp_path / "arms")
    with pytest.raises(InputError, match="does not act in env 'pusht'"):
        make_agent(EvalSpec(AgentConfig(str(tmp_path / "arms")), "pusht"))
    with pytest.raises(InputError, match="'pusht-nano' does not act in env 'dualarm'"):
        make_agent(EvalSpec(AgentConfig("pusht-nano"), "dualarm", pool="pusht-triangle"))
    with pytest.raises(InputError, match="'pusht-nano' does not act in env 'dualarm'"):
        make_agent(EvalSpec(AgentConfig(settings_of="pusht-nano"), "dualarm", pool="pusht-triangle"))
    with pytest.raises(InputError, match="trained with retrieval dualarm-parts, not dualarm-world"):
        retrieval_name(AgentConfig(str(tmp_path / "arms"), retrieval="dualarm-world"))


def test_a_pool_of_another_world_is_an_error_before_acting() -> None:
    policy = arms_policy(inputs="S")
    describer, config = find_retrieval("dualarm-parts")
    retriever = Retriever(
        MemoryPool(pushes("disc", range(2))), describer, replace(config, chunk_size=policy.config.chunk_size)
    )
    agent = RetrievalAgent(retriever, policy)
    agent.reset(0, None)
    with pytest.raises(InputError, match="2-D actions and 2-D proprioception, robot 'dualarm' 20-D"):
        agent.act([0], [seen_at(demonstration("viperx", 0), 0)])


def test_settings_that_do_not_fit_the_robot_are_errors() -> None:
    with pytest.raises(InputError, match="unknown camera 'hed'"):
        replace(NANO.image, future_cameras=("hed",))
    with pytest.raises(InputError, match="unknown camera 'head'"):
        replace(NANO, robot=replace(TWO_ARMS, cameras={}))
    with pytest.raises(InputError, match="robot 'dualarm' has no objects"):
        replace(NANO, robot=replace(TWO_ARMS, objects={}))


def test_with_text_none_the_instruction_has_no_effect() -> None:
    policy = arms_policy(text="none")
    observations, shown = moments(policy, 1)
    chunks = [
        policy.predict_action_chunk(
            [replace(observations[0], task=task)], shown, torch.Generator().manual_seed(0)
        )[0]
        for task in ("lift the pot", "click the bell")
    ]
    np.testing.assert_array_equal(chunks[0].actions, chunks[1].actions)

"""A demonstration transformed into another scene."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.geometry3 import decode_arms, encode_arms, rotation6_to_matrix
from recap.retrieval.transport import transport
from recap.types import F64, Episode
from two_arms import STEPS, lift_pot, moved, place_in_box, pose

ANGLES = st.floats(-3.0, 3.0)
SHIFTS = st.floats(-0.3, 0.3)


def carried_over(episode: Episode, angle: float, shift: F64) -> Episode:
    """The whole scene, tools included, rotated and shifted."""

    def arms(values: F64) -> F64:
        left, left_grip, right, right_grip = decode_arms(values)
        return encode_arms(moved(angle, shift, left), left_grip, moved(angle, shift, right), right_grip)

    return replace(
        episode,
        id=f"{episode.id} moved",
        proprio=arms(episode.proprio).astype(np.float32),
        actions=arms(episode.actions).astype(np.float32),
        objects={name: moved(angle, shift, p).astype(np.float32) for name, p in episode.objects.items()},
    )


@pytest.mark.parametrize("t", [0, STEPS, 2 * STEPS, 5 * STEPS, 7 * STEPS])
def test_transport_to_its_own_scene_changes_nothing(t: int) -> None:
    demo = place_in_box(pose(-0.2, 0.3), pose(-0.1, 0.6))
    ahead = np.minimum(t + np.arange(16), len(demo) - 1)
    actions, proprio = transport(demo, ahead, demo, t)
    np.testing.assert_allclose(actions, demo.actions[ahead], atol=1e-5)
    np.testing.assert_allclose(proprio, demo.proprio[ahead], atol=1e-5)


@given(ANGLES, SHIFTS, SHIFTS, st.integers(0, 59))
def test_a_rigidly_moved_scene_moves_the_demonstration_and_back(
    angle: float, x: float, y: float, t: int
) -> None:
    demo = lift_pot(pose(0.0, 0.4, angle=0.3))
    there = carried_over(demo, angle, np.array([x, y, 0.0]))
    ahead = np.minimum(t + np.arange(16), len(demo) - 1)
    actions, proprio = transport(demo, ahead, there, t)
    np.testing.assert_allclose(actions, there.actions[ahead], atol=1e-5)
    np.testing.assert_allclose(proprio, there.proprio[ahead], atol=1e-5)
    back, _ = transport(there, ahead, demo, t)
    np.testing.assert_allclose(back, demo.actions[ahead], atol=1e-5)


@given(ANGLES, SHIFTS, SHIFTS, st.integers(0, 110))
def test_the_transported_chunk_starts_at_the_tool_without_jumps(
    angle: float, x: float, y: float, t: int
) -> None:
    demo = place_in_box(pose(-0.2, 0.3), pose(-0.1, 0.6))
    scene = {"can": pose(-0.2 + x, 0.3 + y, angle=angle), "box": pose(-0.1 - y, 0.6 + x, angle=angle)}
    proprio = demo.proprio[t].copy()
    proprio[:3] += np.float32([x, y, 0.05])
    query = replace(demo, proprio=proprio[None], objects={n: p[None] for n, p in scene.items()})
    ahead = np.minimum(t + np.arange(16), len(demo) - 1)
    actions, tools = transport(demo, ahead, query, 0)
    np.testing.assert_allclose(tools[0], proprio, atol=1e-5)
    fastest = np.linalg.norm(np.diff(demo.proprio[:, :3], axis=0), axis=1).max()
    # The offset fades over at least six frames; its largest step is a quarter of it.
    off = 2 * (0.9 + np.hypot(x, y))  # m, the largest offset of a rotated scene, before and after a cut
    assert np.linalg.norm(np.diff(tools[:, :3], axis=0), axis=1).max() < fastest + off / 4
    turns = rotation6_to_matrix(actions[:, 3:9])
    np.testing.assert_allclose(turns @ np.swapaxes(turns, 1, 2), np.tile(np.eye(3), (16, 1, 1)), atol=1e-6)


def follow(demo: Episode, scene: dict[str, F64], start: F64) -> F64:
    """The left tool's path when eight steps of each chunk are executed exactly."""
    proprio, path = demo.proprio[0].copy(), []
    proprio[:3] = start
    for t in range(0, len(demo), 8):
        query = replace(demo, proprio=proprio[None], objects={n: p[None] for n, p in scene.items()})
        ahead = np.minimum(t + np.arange(16), len(demo) - 1)
        _, tools = transport(demo, ahead, query, 0, round_objects=("can",))
        path.append(tools[:8])
        proprio = tools[8].astype(np.float32)
        held = 2 * STEPS + 4 <= t + 8 <= 6 * STEPS
        if held:
            scene = {**scene, "can": np.concatenate([tools[8, :3], scene["can"][3:]])}
    return np.concatenate(path)[: len(demo)]


def test_a_pick_and_place_adapts_to_new_object_poses() -> None:
    demo = place_in_box(pose(-0.2, 0.3), pose(-0.1, 0.6))
    can, box = pose(-0.35, 0.2, angle=2.0), pose(-0.02, 0.5, angle=0.4)
    path = follow(demo, {"can": can, "box": box}, np.array([-0.25, 0.05, 0.35]))
    np.testing.assert_allclose(path[2 * STEPS, :3], can[:3], atol=2e-3)
    put = box[:3] + np.array([0.0, 0.0, 0.05])
    np.testing.assert_allclose(path[6 * STEPS, :3], put, atol=2e-3)
    # The can is round, so its rotation is ignored.
    grip = rotation6_to_matrix(path[2 * STEPS, 3:9])
    np.testing.assert_allclose(grip, rotation6_to_matrix(demo.proprio[0, 3:9]), atol=1e-3)


def test_replanning_after_each_action_reaches_the_object_only_with_a_lead() -> None:
    demo = place_in_box(pose(-0.2, 0.3), pose(-0.1, 0.6))
    scene = {"can": pose(-0.3, 0.2)[None], "box": pose(-0.1, 0.6)[None]}
    missed = {}
    for lead in (0, 2):
        tools = demo.proprio[0].copy()
        for t in range(2 * STEPS):
            query = replace(demo, proprio=tools[None], objects=scene)
            actions, _ = transport(demo, t + np.arange(16), query, 0, ("can",), lead)
            tools = actions[0].astype(np.float32)
        missed[lead] = np.linalg.norm(tools[:3] - scene["can"][0, :3])
    assert missed[0] > 0.1
    assert missed[2] < 0.02


def test_a_sunken_object_returns_to_the_demonstrated_height() -> None:
    demo, t = lift_pot(pose(0.0, 0.4)), 4 * STEPS - 8
    sunk = {name: values.copy() for name, values in (("proprio", demo.proprio), ("pot", demo.objects["pot"]))}
    sunk["proprio"][t, [2, 12]] -= 0.03
    sunk["pot"][t, 2] -= 0.03
    query = replace(demo, proprio=sunk["proprio"], objects={"pot": sunk["pot"]})
    ahead = np.minimum(t + np.arange(16), len(demo) - 1)
    _, tools = transport(demo, ahead, query, t)
    np.testing.assert_allclose(tools[0], query.proprio[t], atol=1e-5)
    np.testing.assert_allclose(tools[-1], demo.proprio[ahead[-1]], atol=1e-5)

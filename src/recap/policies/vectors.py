"""The numbers that go into the vector slots: the same function for training and inference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recap.errors import InputError
from recap.geometry import into_frame
from recap.policies.config import PolicyConfig
from recap.types import F32, F64, Conditioning

# What each number is, a letter each: X, Y a place in the canonical frame; x, y a place in a frame of its own;
# c, s a direction; "." anything else. A mirror turns the signs of X, x and s.
STATE_KINDS = "XYcs" + "XYcs" + "cs" + "xy" + "xycs"
POSE_KINDS = "XYcs"


@dataclass(frozen=True)
class Moment:
    """The vector slots of one prediction, in units of the world, and what the residual is added to."""

    vectors: dict[str, F32]  # slot -> (width,)
    base: F32  # (H, a)


def moment_of(given: Conditioning, config: PolicyConfig) -> Moment:
    """What is known at test time, of the first match."""
    horizon = config.chunk_size
    if given.actions.shape[1:] != (horizon, config.action_dim) or given.now.shape != (config.proprio_dim,):
        raise InputError(
            f"a chunk of {given.actions.shape[1]} × {given.actions.shape[2]} with {len(given.now)}-D proprio "
            f"does not fit a policy of {horizon} × {config.action_dim} with {config.proprio_dim}-D: "
            "use the retrieval it was trained with"
        )
    state = _state(given.now, given.object_now, given.goal_now, given.frame, config)
    vectors = {"proprio": np.concatenate([given.now, state])}
    if given.is_empty:
        base = np.repeat(given.now[None, : config.action_dim], horizon, axis=0)
        return Moment({key: value.astype(np.float32) for key, value in vectors.items()}, base)
    if config.retrieval:
        pose = encode_pose(given.objects[0, -1]) if config.measures else np.zeros(0)
        goal = given.goals[0]
        then = _state(given.proprio[0, 0], given.objects[0, 0], goal, given.frames[0], config)
        vectors["retrieved_proprio"] = np.concatenate([given.proprio[0].ravel(), then, pose])
        vectors["retrieved_action"] = np.concatenate([given.actions[0].ravel(), given.valid[0]])
    return Moment({key: value.astype(np.float32) for key, value in vectors.items()}, given.actions[0])


def targets_of(
    actions: F64, proprio: F64, object_pose: F64, base: F32, config: PolicyConfig
) -> dict[str, F32]:
    """What is to be predicted, known only to training; all in the query's canonical frame.

    Args:
        actions: (H, a) of the demonstration.
        proprio: (p,) at the chunk's end.
        object_pose: (d,) at the chunk's end.
        base: what the residual is added to.
    """
    action = actions - base if config.residual else actions
    pose = encode_pose(object_pose) if config.measures else np.zeros(0)
    future = np.concatenate([proprio, pose])
    return {"action": action.ravel().astype(np.float32), "future_proprio": future.astype(np.float32)}


def kinds_of(config: PolicyConfig) -> dict[str, str]:
    """What each number of each vector slot is."""
    place = "XY" + "." * (config.proprio_dim - 2) if config.proprio_dim >= 2 else "."
    act = "XY" + "." * (config.action_dim - 2)
    step = act.replace("X", "x").replace("Y", "y") if config.residual else act
    state, pose = (STATE_KINDS, POSE_KINDS) if config.measures else ("", "")
    horizon = config.chunk_size
    return {
        "retrieved_proprio": place * horizon + state + pose,
        "retrieved_action": act * horizon + "." * horizon,
        "proprio": place + state,
        "action": step * horizon,
        "future_proprio": place + pose,
    }


def encode_pose(pose: F64) -> F64:
    """A pose of the plane as x, y, cos, sin."""
    return np.array([pose[0], pose[1], np.cos(pose[2]), np.sin(pose[2])])


def _state(now: F32, thing: F64, goal: F64, frame: F64, config: PolicyConfig) -> F64:
    """Object and goal in the frame, the object's turn in the world, and each relative to another: (16,)."""
    if not config.measures:
        return np.zeros(0)
    if len(thing) != 3 or len(goal) != 3:
        raise InputError(
            "the policy needs the poses of object and goal, and they are not known: use inputs I"
        )
    turn = thing[2] + frame[2]
    pusher = into_frame(thing, np.asarray(now[:2], np.float64))
    from_goal = np.array([*into_frame(goal, thing[:2]), thing[2] - goal[2]])
    return np.concatenate(
        [encode_pose(thing), encode_pose(goal), [np.cos(turn), np.sin(turn)], pusher, encode_pose(from_goal)]
    )

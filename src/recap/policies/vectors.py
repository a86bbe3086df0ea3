"""The numbers that go into the vector slots: the same function for training and inference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recap.errors import InputError
from recap.policies.config import PolicyConfig
from recap.policies.encodings import RELATIVE
from recap.types import F32, F64, Conditioning


@dataclass(frozen=True)
class Moment:
    """The vector slots of one prediction, in units of the world, and what the residual is added to."""

    vectors: dict[str, F32]  # slot -> (width,)
    base: F32  # (H, a)
    origin: F32  # (a,) what an action without residual is told from


def moment_of(given: Conditioning, config: PolicyConfig) -> Moment:
    """What is known at test time, of the first match."""
    horizon, encoding = config.chunk_size, config.world.encoding
    if given.actions.shape[1:] != (horizon, config.action_dim) or given.now.shape != (config.proprio_dim,):
        raise InputError(
            f"a chunk of {given.actions.shape[1]} × {given.actions.shape[2]} with {len(given.now)}-D proprio "
            f"does not fit a policy of {horizon} × {config.action_dim} with {config.proprio_dim}-D: "
            "use the retrieval it was trained with"
        )
    origin = encoding.origin(given.now[: config.action_dim])
    state = _state(given.now, given.object_now, given.goal_now, given.frame, config)
    vectors = {"proprio": np.concatenate([given.now, state])}
    if given.is_empty:
        base = np.repeat(given.now[None, : config.action_dim], horizon, axis=0)
        return Moment({key: value.astype(np.float32) for key, value in vectors.items()}, base, origin)
    if config.retrieval:
        goal, proprio, now = given.goals[0], given.proprio[0], given.now
        then = _state(proprio[0], given.objects[0, 0], goal, given.frames[0], config)
        rows = (proprio - encoding.origin(now)).ravel()
        last = _pose(given.objects[0, -1], config)
        if config.objects_from_now:
            here = _pose(given.object_now, config)
            then, last = _from(here, then, config.n_objects), _from(here, last, config.n_objects)
        vectors["retrieved_proprio"] = np.concatenate([rows, then, last])
        steps = (given.actions[0] - origin).ravel()
        vectors["retrieved_action"] = np.concatenate([steps, given.valid[0]])
    return Moment({key: value.astype(np.float32) for key, value in vectors.items()}, given.actions[0], origin)


def targets_of(
    actions: F64, proprio: F64, object_pose: F64, moment: Moment, config: PolicyConfig
) -> dict[str, F32]:
    """What is to be predicted, known only to training; all in the query's canonical frame.

    Args:
        actions: (H, a) of the demonstration.
        proprio: (p,) at the chunk's end.
        object_pose: (d,) at the chunk's end.
    """
    action = actions - (moment.base if config.residual else moment.origin)
    future = np.concatenate([proprio, _pose(object_pose, config)])
    return {"action": action.ravel().astype(np.float32), "future_proprio": future.astype(np.float32)}


def kinds_of(config: PolicyConfig) -> dict[str, str]:
    """What each number of each vector slot is."""
    encoding, horizon = config.world.encoding, config.chunk_size
    body, act = encoding.body_kinds(config.proprio_dim), encoding.body_kinds(config.action_dim)
    chunk = encoding.chunk_kinds(config.action_dim)
    state, pose = _object_kinds(config)
    things = (state + pose).translate(RELATIVE) if config.objects_from_now else state + pose
    return {
        "retrieved_proprio": encoding.chunk_kinds(config.proprio_dim) * horizon + things,
        "retrieved_action": chunk * horizon + "." * horizon,
        "proprio": body + state,
        "action": (act.translate(RELATIVE) if config.residual else chunk) * horizon,
        "future_proprio": body + pose,
    }


def retrieved_kinds(config: PolicyConfig) -> dict[str, str]:
    """The same of the slots of what was retrieved, were nothing told from where it is now."""
    encoding, horizon = config.world.encoding, config.chunk_size
    return {
        "retrieved_proprio": encoding.body_kinds(config.proprio_dim) * horizon
        + "".join(_object_kinds(config)),
        "retrieved_action": encoding.body_kinds(config.action_dim) * horizon + "." * horizon,
    }


def _object_kinds(config: PolicyConfig) -> tuple[str, str]:
    """Of a state and of a pose; nothing for a policy that does not measure."""
    encoding, n = config.world.encoding, config.n_objects
    return (encoding.state_kinds(n), encoding.pose_kinds(n)) if config.measures else ("", "")


def _from(here: F64, then: F64, n_objects: int) -> F64:
    """Objects in space told from where they are now, pose by pose; one that is not there now as it is."""
    rows, now = then.reshape(n_objects, -1).copy(), here.reshape(n_objects, -1)
    rows[:, :9] -= now[:, :9] * now[:, 9:] * rows[:, 9:10]
    return rows.ravel()


def _pose(things: F64, config: PolicyConfig) -> F64:
    return config.world.encoding.pose(things, config.n_objects) if config.measures else np.zeros(0)


def _state(now: F32, things: F64, goal: F64, frame: F64, config: PolicyConfig) -> F64:
    """Objects and goal; nothing for a policy that does not measure."""
    if not config.measures:
        return np.zeros(0)
    return config.world.encoding.state(now, things, goal, frame, config.n_objects)

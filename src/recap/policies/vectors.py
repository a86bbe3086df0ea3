"""The numbers that go into the vector slots: the same function for training and inference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recap.body import RELATIVE
from recap.errors import InputError
from recap.policies.config import PolicyConfig
from recap.types import F32, F64, Conditioning


@dataclass(frozen=True)
class Vectors:
    """The vector slots of one prediction, in units of the world, and what the residual is added to."""

    vectors: dict[str, F32]  # slot -> (width,)
    base: F32  # (H, a)
    origin: F32  # (a,) what an action without residual is relative to


def vectors_of(given: Conditioning, config: PolicyConfig) -> Vectors:
    """What is known at test time, of the first match."""
    horizon, encoding, robot = config.chunk_size, config.encoding, config.robot
    if given.actions.shape[1:] != (horizon, config.action_dim) or given.now.shape != (config.proprio_dim,):
        raise InputError(
            f"a chunk of {given.actions.shape[1]} × {given.actions.shape[2]} with {len(given.now)}-D proprio "
            f"does not fit a policy of {horizon} × {config.action_dim} with {config.proprio_dim}-D: "
            "use the retrieval it was trained with"
        )
    here = robot.hold(given.now).astype(np.float32)
    origin = encoding.origin(robot.act, here)
    state = _state(given.now, given.object_now, given.goal_now, given.frame, config)
    vectors = {"proprio": np.concatenate([given.now, state])}
    if given.is_empty:
        base = np.repeat(here[None], horizon, axis=0)
        return Vectors({key: value.astype(np.float32) for key, value in vectors.items()}, base, origin)
    if config.retrieval:
        goal, proprio, now = given.goals[0], given.proprio[0], given.now
        then = _state(proprio[0], given.objects[0, 0], goal, given.frames[0], config)
        rows = (proprio - encoding.origin(robot.body, now)).ravel()
        last = _pose(given.objects[0, -1], config)
        if config.relative_object_poses:
            seen = _pose(given.object_now, config)
            then, last = _from(seen, then, config.n_objects), _from(seen, last, config.n_objects)
        vectors["retrieved_proprio"] = np.concatenate([rows, then, last])
        steps = (given.actions[0] - origin).ravel()
        vectors["retrieved_action"] = np.concatenate([steps, given.valid[0]])
    return Vectors(
        {key: value.astype(np.float32) for key, value in vectors.items()}, given.actions[0], origin
    )


def targets_of(
    actions: F64, proprio: F64, object_pose: F64, moment: Vectors, config: PolicyConfig
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


def letters_of(config: PolicyConfig) -> dict[str, str]:
    """What each number of each vector slot is."""
    encoding, robot, horizon = config.encoding, config.robot, config.chunk_size
    act, chunk = robot.act.letters, encoding.chunk_letters(robot.act)
    state, pose = _object_letters(config)
    objects = (state + pose).translate(RELATIVE) if config.relative_object_poses else state + pose
    return {
        "retrieved_proprio": encoding.chunk_letters(robot.body) * horizon + objects,
        "retrieved_action": chunk * horizon + "." * horizon,
        "proprio": robot.body.letters + state,
        "action": (act.translate(RELATIVE) if config.residual else chunk) * horizon,
        "future_proprio": robot.body.letters + pose,
    }


def retrieved_letters(config: PolicyConfig) -> dict[str, str]:
    """The same of the slots of what was retrieved, were nothing relative to now."""
    robot, horizon = config.robot, config.chunk_size
    return {
        "retrieved_proprio": robot.body.letters * horizon + "".join(_object_letters(config)),
        "retrieved_action": robot.act.letters * horizon + "." * horizon,
    }


def _object_letters(config: PolicyConfig) -> tuple[str, str]:
    """Of a state and of a pose; nothing for a policy that is given no poses."""
    encoding = config.encoding
    return (encoding.state_letters, encoding.pose_letters) if config.measures else ("", "")


def _from(here: F64, then: F64, n_objects: int) -> F64:
    """Objects in space relative to where they are now, pose by pose; one that is not there now as it is."""
    rows, now = then.reshape(n_objects, -1).copy(), here.reshape(n_objects, -1)
    rows[:, :9] -= now[:, :9] * now[:, 9:] * rows[:, 9:10]
    return rows.ravel()


def _pose(things: F64, config: PolicyConfig) -> F64:
    return config.encoding.pose(things) if config.measures else np.zeros(0)


def _state(now: F32, things: F64, goal: F64, frame: F64, config: PolicyConfig) -> F64:
    """Objects and goal; nothing for a policy that does not measure."""
    if not config.measures:
        return np.zeros(0)
    return config.encoding.state(now, things, goal, frame)

"""The retrieved chunk as the policy takes it, for training and inference alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recap.features.terms import goal_of, object_poses
from recap.geometry import into_frame, out_of_frame
from recap.geometry3 import arms_into_frame, arms_out_of_frame
from recap.pool.view import PoolView
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.things import SPACE_DIM, moved_things, things_of
from recap.retrieval.transport import transport
from recap.types import F64, Conditioning, Episode, FrameRef

WORLD_ALIGNMENTS = ("off", "parts")  # what is handed on is in the world's coordinates


def frame_of(episode: Episode, t: int, config: RetrievalConfig) -> F64:
    """The canonical frame at a frame of an episode: its object's pose, its goal's, or the world's.

    A pose is (x, y, theta) in the plane and (xyz, quaternion) in space.
    """
    if config.align == "object":
        return np.asarray(object_poses(episode, config.object_name)[t], np.float64)
    return goal_of(episode) if config.align == "goal" else np.zeros(3)


def into(frame: F64, values: F64) -> F64:
    """Positions or arms (..., d) expressed in the frame; what is no position stays."""
    if len(frame) == SPACE_DIM:
        return arms_into_frame(frame, values)
    out = np.array(values, np.float64)
    out[..., :2] = into_frame(frame, out[..., :2])
    return out


def out_of(frame: F64, values: F64) -> F64:
    """The inverse of `into`."""
    if len(frame) == SPACE_DIM:
        return arms_out_of_frame(frame, values)
    out = np.array(values, np.float64)
    out[..., :2] = out_of_frame(frame, out[..., :2])
    return out


def pose_into(frame: F64, poses: F64) -> F64:
    """Poses (..., 3) of the plane expressed in the frame."""
    out = np.array(poses, np.float64)
    out[..., :2] = into_frame(frame, out[..., :2])
    out[..., 2] = out[..., 2] - frame[..., 2]
    return out


def build_conditioning(
    view: PoolView, refs: Sequence[FrameRef], query: Episode, t: int, config: RetrievalConfig, action_dim: int
) -> Conditioning:
    """The moment `t` of a query and the chunks that begin at `refs`, each in its own canonical frame.

    Args:
        query: a demonstration, or what was observed so far (`as_episode`).
        action_dim: width of an action, for when there is no chunk to take it from.
    """
    horizon, k = config.chunk_size, max(1, len(refs))
    frame = frame_of(query, t, config)
    now = np.asarray(query.proprio[t], np.float64)
    object_now, goal_now = _poses(query, t, t + 1, frame, config)
    actions = np.zeros((k, horizon, action_dim), np.float32)
    proprio = np.zeros((k, horizon, len(now)), np.float32)
    objects = np.zeros((k, horizon, object_now.shape[1]))
    goals = np.zeros((k, len(goal_now)))
    frames = np.zeros((k, len(frame)))
    valid = np.zeros((k, horizon), np.bool_)
    last = []
    for i, ref in enumerate(refs):
        episode = view.episode(ref.episode_id)
        own = frames[i] = frame_of(episode, ref.t, config)
        ahead = ref.t + np.arange(horizon)
        valid[i] = ahead < len(episode)
        ahead = np.minimum(ahead, len(episode) - 1)
        last.append(FrameRef(ref.episode_id, int(ahead[-1])))
        actions[i], proprio[i] = episode.actions[ahead], episode.proprio[ahead]
        if config.align == "parts":
            actions[i], proprio[i] = transport(episode, ahead, query, t, config.round_objects, config.lead)
        elif config.align != "off":
            acted = episode.actions[ahead].astype(np.float64)
            been = episode.proprio[ahead].astype(np.float64)
            if config.contact is not None:
                rows, turn = ref.t + np.arange(horizon + 1), float(frame[2] - own[2])
                thing = str(query.attributes.get("block", ""))
                aside = config.contact.steps_aside(episode, rows, query.embodiment, turn, thing)
                been[:, :2] += aside[:-1]
                acted[:, :2] += aside[1:]  # an action leads to the next place
            actions[i], proprio[i] = into(own, acted), into(own, been)
        if objects.shape[2]:
            poses, goals[i] = _poses(episode, ref.t, int(ahead[-1]) + 1, own, config)
            width = min(objects.shape[2], poses.shape[1])  # another task may know more objects, or fewer
            objects[i, :, :width] = poses[ahead - ref.t, :width]
            if config.align == "parts":
                objects[i] = moved_things(episode, ahead, query, t)
    return Conditioning(
        frame,
        (now if config.align in WORLD_ALIGNMENTS else into(frame, now)).astype(np.float32),
        object_now[0] if len(object_now) else np.zeros(0),
        goal_now,
        actions,
        proprio,
        objects,
        goals,
        frames,
        valid,
        tuple(refs),
        tuple(last),
    )


def _poses(episode: Episode, begin: int, end: int, frame: F64, config: RetrievalConfig) -> tuple[F64, F64]:
    """The object's poses (t, 3) and the goal (3,) in the frame; in space all objects' (t, 7 n), and no goal.

    Of width 0 where they are not known.
    """
    name = config.object_name
    if episode.goal is None and config.align in WORLD_ALIGNMENTS:
        return things_of(episode, slice(begin, end)), np.zeros(0)
    if name not in episode.objects or episode.goal is None or len(episode.goal) != 3:
        return np.zeros((end - begin, 0)), np.zeros(0)
    poses, goal = object_poses(episode, name)[begin:end], goal_of(episode)
    if config.align in WORLD_ALIGNMENTS:
        return poses, goal
    return pose_into(frame, poses), pose_into(frame, goal)

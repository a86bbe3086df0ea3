"""Builds the policy's input from the retrieved chunks, for training and inference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recap.pool.view import PoolView
from recap.retrieval.config import RetrievalConfig
from recap.robot import RobotSpec
from recap.types import Conditioning, FrameRef, Frames


def build_conditioning(
    view: PoolView,
    refs: Sequence[FrameRef],
    query: Frames,
    t: int,
    config: RetrievalConfig,
    robot: RobotSpec,
) -> Conditioning:
    """Moment `t` of the query and the chunks that begin at `refs`, each in its own canonical frame.

    Args:
        query: a demonstration or an observed `Moment`.
        robot: defines the features of actions and proprioception.
    """
    aligner, horizon, k = config.aligner, config.chunk_size, max(1, len(refs))
    frame = aligner.frame(query, t)
    now = np.asarray(query.proprio[t], np.float64)
    object_now, goal_now = aligner.objects(query, t, t + 1, frame)
    actions = np.zeros((k, horizon, robot.act.size), np.float32)
    proprio = np.zeros((k, horizon, len(now)), np.float32)
    objects = np.zeros((k, horizon, object_now.shape[1]))
    goals = np.zeros((k, len(goal_now)))
    frames = np.zeros((k, len(frame)))
    valid = np.zeros((k, horizon), np.bool_)
    last = []
    for i, ref in enumerate(refs):
        episode = view.episode(ref.episode_id)
        frames[i] = aligner.frame(episode, ref.t)
        chunk_frames = ref.t + np.arange(horizon)
        valid[i] = chunk_frames < len(episode)
        chunk_frames = np.minimum(chunk_frames, len(episode) - 1)
        last.append(FrameRef(ref.episode_id, int(chunk_frames[-1])))
        actions[i], proprio[i] = aligner.carry(episode, chunk_frames, query, t, robot, config.lead)
        if objects.shape[2]:
            poses, goals[i] = aligner.objects(episode, ref.t, int(chunk_frames[-1]) + 1, frames[i])
            width = min(objects.shape[2], poses.shape[1])  # another task may have more or fewer objects
            objects[i, :, :width] = poses[chunk_frames - ref.t, :width]
            moved_objects = aligner.carried_objects(episode, chunk_frames, query, t)
            objects[i] = objects[i] if moved_objects is None else moved_objects
    return Conditioning(
        frame,
        (now if aligner.in_world else robot.body.into(frame, now)).astype(np.float32),
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

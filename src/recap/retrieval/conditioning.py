"""The retrieved chunk as the policy takes it, for training and inference alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recap.features.terms import goal_of, object_poses
from recap.geometry import into_frame, out_of_frame
from recap.geometry3 import arms_into_frame, arms_out_of_frame
from recap.pool.view import PoolView
from recap.retrieval.config import RetrievalConfig
from recap.types import F64, Conditioning, Episode, FrameRef

SPACE_DIM = 7  # of a pose in space: xyz and a quaternion, w first


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


def build_conditioning(
    view: PoolView, refs: Sequence[FrameRef], frame: F64, config: RetrievalConfig, widths: tuple[int, int]
) -> Conditioning:
    """The chunks that begin at `refs`, each in its own canonical frame; `frame` is the query's.

    Args:
        widths: of an action and of proprioception, for when there is nothing to take them from.
    """
    horizon = config.chunk_size
    actions = np.zeros((max(1, len(refs)), horizon, widths[0]), np.float32)
    proprio = np.zeros((max(1, len(refs)), horizon, widths[1]), np.float32)
    valid = np.zeros((max(1, len(refs)), horizon), np.bool_)
    last = []
    for k, ref in enumerate(refs):
        episode = view.episode(ref.episode_id)
        ahead = ref.t + np.arange(horizon)
        valid[k] = ahead < len(episode)
        ahead = np.minimum(ahead, len(episode) - 1)
        last.append(FrameRef(ref.episode_id, int(ahead[-1])))
        actions[k] = episode.actions[ahead]
        proprio[k] = episode.proprio[ahead]
        if config.align != "off":
            own = frame_of(episode, ref.t, config)
            actions[k] = into(own, episode.actions[ahead].astype(np.float64))
            proprio[k] = into(own, episode.proprio[ahead].astype(np.float64))
    return Conditioning(frame, actions, proprio, valid, tuple(refs), tuple(last))

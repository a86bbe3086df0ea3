"""The retrieved chunk as the policy takes it, for training and inference alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recap.features.terms import goal_of, object_poses
from recap.geometry import into_frame
from recap.pool.view import PoolView
from recap.retrieval.config import RetrievalConfig
from recap.types import F64, Conditioning, Episode, FrameRef


def frame_of(episode: Episode, t: int, config: RetrievalConfig) -> F64:
    """The canonical frame at a frame of an episode: its object's pose, its goal's, or the world's."""
    if config.align == "object":
        return np.asarray(object_poses(episode, config.object_name)[t], np.float64)
    return goal_of(episode) if config.align == "goal" else np.zeros(3)


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
            actions[k, :, :2] = into_frame(own, episode.actions[ahead, :2].astype(np.float64))
            proprio[k, :, :2] = into_frame(own, episode.proprio[ahead, :2].astype(np.float64))
    return Conditioning(frame, actions, proprio, valid, tuple(refs), tuple(last))

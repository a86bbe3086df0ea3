"""Recordings in which a person took over: each intervention becomes a correction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recap.pool.importers.source import PickedFrames, Source
from recap.types import Episode
from recap_client.corrections import MIN_FRAMES, N_CONTEXT
from recap_client.messages import CORRECTION_FROM, TIME_OFFSET

INTERVENTION = "intervention"  # LeRobot's column: true while a person drives


def demonstrations_in(source: Source, number: int) -> Sequence[Episode]:
    """The demonstrations of a recording: itself or, if it has an intervention column, its corrections."""
    episode, driven = source[number], source.column(number, INTERVENTION)
    return [episode] if driven is None else corrections_of(episode, driven[:, 0] != 0)


def corrections_of(episode: Episode, driven: NDArray[np.bool_]) -> list[Episode]:
    """Each run of frames (t,) that a person drove, with the first frame and the frames just before it."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], driven, [False]]).astype(np.int8)))
    stretches = [(int(a), int(b)) for a, b in edges.reshape(-1, 2) if b - a >= MIN_FRAMES]
    return [_cut(episode, begin, end, i + 1) for i, (begin, end) in enumerate(stretches)]


def _cut(episode: Episode, begin: int, end: int, number: int) -> Episode:
    frames = np.unique([0, *range(max(0, begin - N_CONTEXT), end)])
    since = int(np.searchsorted(frames, begin)) / episode.fps
    offset = float(episode.timestamps[begin] - episode.timestamps[0]) - since
    attributes = {**episode.attributes, CORRECTION_FROM: since, TIME_OFFSET: offset}
    return replace(
        select_frames(episode, frames), id=f"{episode.id}/correction-{number}", attributes=attributes
    )


def from_takeover(episode: Episode) -> Episode:
    """A correction from the takeover on, which training may use; other demonstrations are unchanged."""
    if not episode.first_match:
        return episode
    attributes = {key: value for key, value in episode.attributes.items() if key != CORRECTION_FROM}
    frames = np.arange(episode.first_match, len(episode))
    return replace(select_frames(episode, frames), attributes=attributes)


def select_frames(episode: Episode, frames: NDArray[np.int64]) -> Episode:
    """An episode of these frames with new timestamps; images are decoded on demand."""
    return replace(
        episode,
        timestamps=np.arange(len(frames)) / episode.fps,
        proprio=episode.proprio[frames],
        actions=episode.actions[frames],
        objects={name: values[frames] for name, values in episode.objects.items()},
        images={camera: PickedFrames(film, frames) for camera, film in episode.images.items()},
    )

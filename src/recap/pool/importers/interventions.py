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

INTERVENTION = "intervention"  # LeRobot's column: whether a person drove


def shown_in(source: Source, number: int) -> Sequence[Episode]:
    """What a recording shows: itself, or where it says when a person drove, what they did."""
    episode, driven = source[number], source.column(number, INTERVENTION)
    return [episode] if driven is None else corrections_of(episode, driven[:, 0] != 0)


def corrections_of(episode: Episode, driven: NDArray[np.bool_]) -> list[Episode]:
    """Each stretch of frames (t,) that a person drove, with the first frame and those just before it."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], driven, [False]]).astype(np.int8)))
    stretches = [(int(a), int(b)) for a, b in edges.reshape(-1, 2) if b - a >= MIN_FRAMES]
    return [_cut(episode, begin, end, i + 1) for i, (begin, end) in enumerate(stretches)]


def _cut(episode: Episode, begin: int, end: int, number: int) -> Episode:
    frames = np.unique([0, *range(max(0, begin - N_CONTEXT), end)])
    since = int(np.searchsorted(frames, begin)) / episode.fps
    offset = float(episode.timestamps[begin] - episode.timestamps[0]) - since
    attributes = {**episode.attributes, CORRECTION_FROM: since, TIME_OFFSET: offset}
    return replace(
        picked_frames(episode, frames), id=f"{episode.id}/correction-{number}", attributes=attributes
    )


def shown_by_person(episode: Episode) -> Episode:
    """A correction from the take-over on: what may be learned from; any other demonstration as it is."""
    if not episode.first_match:
        return episode
    attributes = {key: value for key, value in episode.attributes.items() if key != CORRECTION_FROM}
    frames = np.arange(episode.first_match, len(episode))
    return replace(picked_frames(episode, frames), attributes=attributes)


def picked_frames(episode: Episode, frames: NDArray[np.int64]) -> Episode:
    """Those frames alone, timed anew; images are decoded only when they are looked at."""
    return replace(
        episode,
        timestamps=np.arange(len(frames)) / episode.fps,
        proprio=episode.proprio[frames],
        actions=episode.actions[frames],
        objects={name: values[frames] for name, values in episode.objects.items()},
        images={camera: PickedFrames(film, frames) for camera, film in episode.images.items()},
    )

"""One row a moment of the target: what the slots hold, and what is to be predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.policies.canonical import canonical_image
from recap.policies.config import PolicyConfig
from recap.policies.layout import build_layout, frame_offsets
from recap.policies.vectors import targets_of, vectors_of
from recap.pool.view import PoolView
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.pairs import Pairs
from recap.robot import Body
from recap.types import F32, F64, U8, Conditioning, Episode, FrameRef

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Moments of the target as raw numbers; k matches each, n moments."""

    fixed: dict[str, F32]  # slot -> (n, width): what does not depend on the match
    matched: dict[str, F32]  # slot -> (n, k, width)
    actions: F32  # (n, H * a) of the demonstration, canonical
    base: F32  # (n, k, H * a) what the residual is added to
    valid: F32  # (n, H * a) 1 where the demonstration had that action
    weight: F32  # (n, k) to draw a match by; a row of zeros has none
    images: dict[str, I64]  # image slot -> (n,) or (n, k) numbers of pictures
    tasks: tuple[str, ...]  # the instructions
    task: I64  # (n,) which one

    def __len__(self) -> int:
        return len(self.actions)


class Album:
    """Canonical images by what they show, each drawn once."""

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config
        self._numbers: dict[tuple[str, int, str, int], int] = {}
        self._taken: list[U8] = []

    def number(self, episode: Episode, t: int, camera: str, frame: F64, frame_t: int) -> int:
        """Of the picture of frame t in the canonical frame of frame_t; made when it is new."""
        aligned = self.config.warps
        key = (episode.id, t, camera, frame_t if aligned else -1)
        if key not in self._numbers:
            image = episode.images[camera][t]
            self._numbers[key] = len(self._taken)
            fit = self.config.robot.cameras[camera].fit
            self._taken.append(canonical_image(image, frame, self.config.image, aligned, fit))
        return self._numbers[key]

    @property
    def keys(self) -> tuple[tuple[str, int, str, int], ...]:
        """What each picture shows, in order."""
        return tuple(self._numbers)

    def develop(self) -> U8:
        """All of them: (m, size, size, 3)."""
        size = self.config.image.size
        return np.stack(self._taken) if self._taken else np.zeros((0, size, size, 3), np.uint8)


class SampleBuilder:
    """Collects the samples of one side of the split."""

    def __init__(
        self,
        target: PoolView,
        pool: PoolView,
        pairs: Pairs | None,
        config: PolicyConfig,
        album: Album,
        retrieval: RetrievalConfig,
    ) -> None:
        self.target, self.pool, self.pairs, self.config, self.album = target, pool, pairs, config, album
        self.retrieval = retrieval
        self.k = 1 if pairs is None else pairs.match.shape[1]
        self.retrieved = [slot for slot in build_layout(config).vectors if slot.retrieved]
        self.rows: dict[str, list[F32]] = {}
        self.pictures: dict[str, list[int]] = {}
        self.tasks: dict[str, int] = {}
        self.task: list[int] = []
        self._row = 0

    def add(self, episode_id: str) -> None:
        """Every moment of one demonstration."""
        episode = self.target.episode(episode_id)
        for t in range(len(episode)):
            refs = [] if self.pairs is None else self.pairs.refs(self._row)
            self._add_moment(episode, t, refs)
            self._row += 1

    def _add_moment(self, episode: Episode, t: int, refs: list[FrameRef]) -> None:
        config = self.config
        horizon = config.chunk_size
        ahead = t + np.arange(horizon)
        valid = (ahead < len(episode)).astype(np.float32)
        ahead = np.minimum(ahead, len(episode) - 1)
        end = min(t + horizon, len(episode) - 1)
        given: list[Conditioning] = [
            build_conditioning(self.pool, chosen, episode, t, self.retrieval, config.robot)
            for chosen in ([[ref] for ref in refs] or [[]])
        ]
        frame, robot = given[0].frame, config.robot
        actions = self._into(robot.act, frame, episode.actions[ahead].astype(np.float64))
        proprio = self._into(robot.body, frame, episode.proprio[end].astype(np.float64))
        objects = np.zeros(0)
        if config.measures:
            objects = self.retrieval.aligner.objects(episode, end, end + 1, frame)[0][0]
        moments = [vectors_of(one, config) for one in given]
        row: dict[str, F32] = {
            "proprio": moments[0].vectors["proprio"],
            "future_proprio": targets_of(actions, proprio, objects, moments[0], config)["future_proprio"],
            "actions": actions.ravel().astype(np.float32),
            "valid": np.repeat(valid, config.action_dim),
        }
        weight = np.zeros(self.k, np.float32)
        if self.pairs is not None:
            weight = self.pairs.weight[self._row]
        row["weight"] = weight
        for slot in self.retrieved:
            # A moment without a match is never shown one: what stands in its place does not matter.
            found = [m.vectors[slot.name] for m in moments if slot.name in m.vectors]
            row[slot.name] = self._padded(found or [np.zeros(slot.width, np.float32)])
        row["base"] = self._padded([m.base.ravel() for m in moments])
        for key, value in row.items():
            self.rows.setdefault(key, []).append(value)
        self.task.append(self.tasks.setdefault(episode.task, len(self.tasks)))
        if config.sees:
            self._add_pictures(episode, t, end, frame, given)

    def _add_pictures(
        self, episode: Episode, t: int, end: int, frame: F64, given: list[Conditioning]
    ) -> None:
        image = self.config.image
        for camera in image.cameras:
            self._picture(f"frame/{camera}", self.album.number(episode, t, camera, frame, t))
        for camera in image.future if self.config.future_image else ():
            self._picture(f"future_frame/{camera}", self.album.number(episode, end, camera, frame, t))
        for camera in image.retrieved if self.config.retrieval else ():
            for i, offset in enumerate(frame_offsets(self.config)):
                numbers = []
                for one in given:
                    if one.is_empty:
                        numbers.append(0)  # any picture, never shown
                        continue
                    shown = self.pool.episode(one.refs[0].episode_id)
                    begin = one.refs[0].t
                    at = min(begin + offset, len(shown) - 1)
                    numbers.append(self.album.number(shown, at, camera, one.frames[0], begin))
                numbers += numbers[:1] * (self.k - len(numbers))
                for number in numbers:
                    self._picture(f"retrieved_frame_{i}/{camera}", number)

    def _picture(self, slot: str, number: int) -> None:
        self.pictures.setdefault(slot, []).append(number)

    def _into(self, body: Body, frame: F64, values: F64) -> F64:
        return values if self.retrieval.aligner.in_world else body.into(frame, values)

    def _padded(self, values: list[F32]) -> F32:
        """(k, width), the first repeated where there are fewer matches."""
        return np.stack([*values, *values[:1] * (self.k - len(values))])

    def samples(self) -> Samples:
        """What was collected."""
        stacked = {key: np.stack(values) for key, values in self.rows.items()}
        n = len(self.task)
        images = {}
        for slot, numbers in self.pictures.items():
            flat = np.array(numbers, np.int64)
            images[slot] = flat.reshape(n, self.k) if slot.startswith("retrieved") else flat
        fixed = {"proprio": stacked["proprio"], "future_proprio": stacked["future_proprio"]}
        matched = {slot.name: stacked[slot.name] for slot in self.retrieved}
        return Samples(
            fixed,
            matched,
            stacked["actions"],
            stacked["base"],
            stacked["valid"],
            stacked["weight"],
            images,
            tuple(self.tasks),
            np.array(self.task, np.int64),
        )


def renumber_pictures(samples: Samples, numbers: I64) -> Samples:
    """The same, whose picture i is now called numbers[i]."""
    return replace(samples, images={slot: numbers[old] for slot, old in samples.images.items()})


def take_rows(samples: Samples, rows: NDArray[Any]) -> Samples:
    """Some of the moments, by number or by mask."""
    values: dict[str, Any] = {
        name: {key: table[rows] for key, table in getattr(samples, name).items()}
        for name in ("fixed", "matched", "images")
    }
    values |= {name: getattr(samples, name)[rows] for name in ("actions", "base", "valid", "weight", "task")}
    return replace(samples, **values)


def with_share(samples: Samples, n_first: int, share: float) -> Samples:
    """With the first n moments repeated until they are that share of all; as they are where they are more."""
    n_others = len(samples) - n_first
    wanted = round(share * n_others / (1 - share))
    if wanted <= n_first:
        return samples
    rows = np.concatenate([np.resize(np.arange(n_first), wanted), n_first + np.arange(n_others)])
    return take_rows(samples, rows)


def join(parts: Sequence[Samples]) -> Samples:
    """The samples of several parts, one after the other."""
    tasks = tuple(dict.fromkeys(task for part in parts for task in part.tasks))

    def tables(name: str) -> dict[str, NDArray[Any]]:
        keys = getattr(parts[0], name)
        return {key: np.concatenate([getattr(part, name)[key] for part in parts]) for key in keys}

    def rows(name: str) -> F32:
        return np.concatenate([getattr(part, name) for part in parts])

    return Samples(
        tables("fixed"),
        tables("matched"),
        rows("actions"),
        rows("base"),
        rows("valid"),
        rows("weight"),
        tables("images"),
        tasks,
        np.concatenate([np.array([tasks.index(t) for t in part.tasks])[part.task] for part in parts]),
    )

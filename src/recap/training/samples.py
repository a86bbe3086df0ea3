"""One row per target frame: the contents of the slots, and the prediction targets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.body import Body
from recap.policies.canonical import canonical_image
from recap.policies.config import PolicyConfig
from recap.policies.layout import build_layout, frame_offsets, future_frames
from recap.policies.vectors import numbers_of, targets_of, vectors_of, width_of
from recap.pool.importers.source import MAX_FRAMES
from recap.pool.view import PoolView
from recap.retrieval.aligners import Aligner
from recap.retrieval.conditioning import build_conditioning
from recap.retrieval.config import RetrievalConfig
from recap.retrieval.pairs import Pairs
from recap.training.tables import new_table
from recap.types import F32, F64, U8, Conditioning, Episode, FrameRef

I64 = NDArray[np.int64]
ROWS = 65_536  # processed at once, which limits memory
SPARSE = 8  # a video is read in sequence if more than one in this many frames is needed
NOWHERE = np.zeros(3)
MAX_CAMERAS = 32


@dataclass(frozen=True)
class Samples:
    """Frames of the target as raw numbers: n frames with k matches each."""

    fixed: dict[str, F32]  # slot -> (n, width): independent of the match
    matched: dict[str, F32]  # slot -> (n, k, width)
    actions: F32  # (n, H * a) of the demonstration, in the canonical frame
    base: F32  # (n, k, H * a) what the residual is added to
    valid: F32  # (n, H * a) 1 where the demonstration has that action
    weight: F32  # (n, k) probability of each match; zeros: no match
    images: dict[str, I64]  # image slot -> (n,) or (n, k) picture keys while it is filled, then numbers
    tasks: tuple[str, ...]  # distinct instructions
    task: I64  # (n,) index into `tasks`

    def __len__(self) -> int:
        return len(self.actions)


def empty_samples(config: PolicyConfig, episodes: Sequence[Episode], k: int, folder: Path | None) -> Samples:
    """Empty tables for every frame of some demonstrations with k matches each, in memory or in files."""
    n = sum(map(len, episodes))
    numbers, layout, width = numbers_of(config), build_layout(config), config.chunk_size * config.action_dim

    def table(name: str, *shape: int, dtype: type = np.float32) -> NDArray[Any]:
        return new_table(folder, name, (n, *shape), dtype)

    slots = [slot for slot in layout.vectors if slot.retrieved]
    return Samples(
        {name: table(f"fixed/{name}", width_of(numbers[name])) for name in ("proprio", "future_proprio")},
        {slot.name: table(f"matched/{slot.name}", k, slot.width) for slot in slots},
        table("actions", width),
        table("base", k, width),
        table("valid", width),
        table("weight", k),
        {
            slot.name: table(f"images/{slot.name}", *[k] if slot.retrieved else [], dtype=np.int64)
            for slot in sorted(layout.images, key=lambda slot: slot.retrieved)
        },
        tuple(dict.fromkeys(episode.task for episode in episodes)),
        table("task", dtype=np.int64),
    )


def picture_key(episode: int, t: int, frame_t: int, camera: int) -> int:
    """A key for a picture: frame t of a camera, in the canonical frame of frame_t."""
    return ((episode * MAX_FRAMES + t) * MAX_FRAMES + frame_t) * MAX_CAMERAS + camera


def split_picture_keys(keys: I64) -> tuple[I64, I64, I64, I64]:
    """Episode, t, frame_t and camera of each picture."""
    rest, camera = np.divmod(keys, MAX_CAMERAS)
    rest, frame_t = np.divmod(rest, MAX_FRAMES)
    episode, t = np.divmod(rest, MAX_FRAMES)
    return episode, t, frame_t, camera


def number_pictures(sides: Sequence[Samples], first: int = 0) -> I64:
    """Replace keys by numbers, in the order of first use; return the keys in that order."""
    used_keys = [np.zeros(0, np.int64)]
    for side in sides if sides[0].images else ():
        columns = [table.reshape(len(side), -1) for table in side.images.values()]
        used_keys.append(np.concatenate(columns, axis=1).ravel())
    keys, at = np.unique(np.concatenate(used_keys), return_index=True)
    order = np.argsort(at)
    numbers = first + np.argsort(order)
    for side in sides:
        for table in side.images.values():
            table[:] = numbers[np.searchsorted(keys, table)]
    return np.asarray(keys[order])


def render_pictures(
    episodes: Sequence[Episode],
    keys: I64,
    aligner: Aligner,
    config: PolicyConfig,
    folder: Path | None,
    progress: Callable[[int, int], None] | None = None,
) -> U8:
    """Make the pictures (m, size, size, 3); each video is decoded once and in order, several in parallel.

    Args:
        aligner: its frames are used to warp top-down views; other views are only made square.
    """
    size = config.image.size
    pictures: U8 = new_table(folder, "pictures", (len(keys), size, size, 3), np.uint8)
    owner, at, frame_at, camera = split_picture_keys(keys)
    order = np.lexsort((at, camera, owner))
    videos = np.split(order, np.flatnonzero(np.diff(owner[order] * MAX_CAMERAS + camera[order])) + 1)

    def render(numbers: I64) -> int:
        if not len(numbers):
            return 0
        episode, name = episodes[owner[numbers[0]]], config.image.cameras[camera[numbers[0]]]
        frames, fit = episode.images[name], config.robot.cameras[name].fit
        first, last = int(at[numbers[0]]), int(at[numbers[-1]])
        sequential = (last - first) < SPARSE * len(numbers)
        reader, position, image = islice(iter(frames), first, None), first - 1, np.zeros(0, np.uint8)
        for number in numbers:
            if not sequential:
                image = frames[int(at[number])]
            while sequential and position < at[number]:
                image, position = next(reader), position + 1
            frame = aligner.frame(episode, int(frame_at[number])) if config.warps else NOWHERE
            pictures[number] = canonical_image(image, frame, config.image, config.warps, fit)
        return len(numbers)

    done = 0
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for n in threads.map(render, videos):
            done += n
            if progress is not None and len(keys):
                progress(done, len(keys))
    return pictures


class SampleBuilder:
    """Fills in the samples of demonstrations.

    Args:
        samples: tables for one whole side of the split.
        numbers: pool episode -> its number among all episodes, for picture keys.
    """

    def __init__(
        self,
        target: PoolView,
        pool: PoolView,
        pairs: Pairs | None,
        config: PolicyConfig,
        retrieval: RetrievalConfig,
        samples: Samples,
        numbers: Mapping[str, int],
    ) -> None:
        self.target, self.pool, self.pairs, self.config = target, pool, pairs, config
        self.retrieval, self.samples, self.numbers = retrieval, samples, numbers
        self.k = samples.weight.shape[1]
        self.retrieved = [slot for slot in build_layout(config).vectors if slot.retrieved]

    def fill(self, first: int, number: int) -> None:
        """Fill in every frame, starting at row `first`; `number` is the first demonstration's number."""
        row = 0
        for i, episode_id in enumerate(self.target.episode_ids):
            episode = self.target.episode(episode_id)
            for t in range(len(episode)):
                self._fill_row(first + row, row, episode, t, number + i)
                row += 1

    def _fill_row(self, row: int, pair: int, episode: Episode, t: int, number: int) -> None:
        config, out = self.config, self.samples
        refs: list[FrameRef] = [] if self.pairs is None else self.pairs.refs(pair)
        horizon = config.chunk_size
        chunk_frames = t + np.arange(horizon)
        valid = (chunk_frames < len(episode)).astype(np.float32)
        chunk_frames = np.minimum(chunk_frames, len(episode) - 1)
        end = min(t + horizon, len(episode) - 1)
        conditionings: list[Conditioning] = [
            build_conditioning(self.pool, chosen, episode, t, self.retrieval, config.robot)
            for chosen in ([[ref] for ref in refs] or [[]])
        ]
        frame, robot = conditionings[0].frame, config.robot
        actions = self._into(robot.act, frame, episode.actions[chunk_frames].astype(np.float64))
        proprio = self._into(robot.body, frame, episode.proprio[end].astype(np.float64))
        objects = np.zeros(0)
        if config.measures:
            objects = self.retrieval.aligner.objects(episode, end, end + 1, frame)[0][0]
        moments = [vectors_of(one, config) for one in conditionings]
        out.fixed["proprio"][row] = moments[0].vectors["proprio"]
        targets = targets_of(actions, proprio, objects, moments[0], config)
        out.fixed["future_proprio"][row] = targets["future_proprio"]
        out.actions[row] = actions.ravel()
        out.valid[row] = np.repeat(valid, config.action_dim)
        if self.pairs is not None:
            out.weight[row] = self.pairs.weight[pair]
        for slot in self.retrieved:
            # Without a match these slots are masked, so their contents do not matter.
            matched = [m.vectors[slot.name] for m in moments if slot.name in m.vectors]
            out.matched[slot.name][row] = self._padded(matched or [np.zeros(slot.width, np.float32)])
        out.base[row] = self._padded([m.base.ravel() for m in moments])
        out.task[row] = self.samples.tasks.index(episode.task)
        if config.sees:
            self._fill_pictures(row, number, t, len(episode) - 1, conditionings)

    def _fill_pictures(self, row: int, number: int, t: int, last: int, inputs: list[Conditioning]) -> None:
        """Picture keys of the slots: present, future and retrieved frames."""
        config, images = self.config, self.samples.images

        def key(episode: int, at: int, t: int, camera: str) -> int:
            return picture_key(episode, at, t if config.warps else 0, config.image.cameras.index(camera))

        for camera in config.image.cameras:
            images[f"frame/{camera}"][row] = now = key(number, t, t, camera)
        for name, steps in future_frames(config).items() if config.future_image else ():
            for camera in config.image.future:
                images[f"{name}/{camera}"][row] = key(number, min(t + steps, last), t, camera)
        for camera in config.image.retrieved if config.retrieval else ():
            for i, offset in enumerate(frame_offsets(config)):
                picture_keys = [now] * self.k  # without a match: any picture, it is masked
                for n, ref in enumerate(one.refs[0] for one in inputs if not one.is_empty):
                    at = min(ref.t + offset, len(self.pool.episode(ref.episode_id)) - 1)
                    picture_keys[n] = key(self.numbers[ref.episode_id], at, ref.t, camera)
                images[f"retrieved_frame_{i}/{camera}"][row] = picture_keys

    def _into(self, body: Body, frame: F64, values: F64) -> F64:
        return values if self.retrieval.aligner.in_world else body.into(frame, values)

    def _padded(self, values: list[F32]) -> F32:
        """(k, width); the first row is repeated if there are fewer matches."""
        return np.stack([*values, *values[:1] * (self.k - len(values))])


def tables_of(samples: Samples) -> dict[str, NDArray[Any]]:
    """Every array by a unique name."""
    tables = {name: getattr(samples, name) for name in ("actions", "base", "valid", "weight", "task")}
    for group in ("fixed", "matched", "images"):
        tables |= {f"{group}/{name}": values for name, values in getattr(samples, group).items()}
    return tables


def from_tables(tables: Mapping[str, NDArray[Any]], tasks: tuple[str, ...]) -> Samples:
    """The inverse of `tables_of`."""
    values: dict[str, Any] = {"fixed": {}, "matched": {}, "images": {}}
    for name, table in tables.items():
        group, slash, slot = name.partition("/")
        if slash:
            values[group][slot] = table
        else:
            values[name] = table
    return Samples(**values, tasks=tasks)


def take_rows(samples: Samples, rows: NDArray[Any], folder: Path | None = None) -> Samples:
    """Some of the rows, by number or mask, copied in parts."""
    numbers = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    taken = {}
    for name, table in tables_of(samples).items():
        taken[name] = new_table(folder, name, (len(numbers), *table.shape[1:]), table.dtype.type)
        for begin in range(0, len(numbers), ROWS):
            part = slice(begin, begin + ROWS)
            taken[name][part] = table[numbers[part]]
    return from_tables(taken, samples.tasks)


def oversample(samples: Samples, n_first: int, share: float) -> NDArray[np.int64]:
    """Row numbers; the first n_first rows are repeated until they are that share, if they are fewer."""
    n_others = len(samples) - n_first
    wanted = max(n_first, round(share * n_others / (1 - share)))
    return np.concatenate([np.resize(np.arange(n_first), wanted), n_first + np.arange(n_others)])

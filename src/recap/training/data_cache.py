"""Training data on disk: computed once, memory-mapped by later commands and other processes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.policies.policy import RetrievalStamp, Statistics
from recap.pool.content import TEXTS, arrays_of
from recap.retrieval.presets import find_retrieval
from recap.run_directory import write_whole
from recap.training.config import TrainConfig
from recap.training.samples import Samples, from_tables
from recap.training.tables import read_tables
from recap.types import U8, Episode

SIDES = ("train", "held_out")
FACTS = "facts.json"
VERSION = 1  # of the file format
# Settings of a policy that do not change the data.
UNRELATED = (
    "network",
    "backbone",
    "sampling",
    "text",
    "n_action_steps",
    "future_change",
    "future_clean",
    "future_state",
    "noise",
    "noise_shift",
)


@dataclass(frozen=True)
class TrainingData:
    """All data that training reads; arrays may be memory-mapped files."""

    train: Samples
    held_out: Samples
    pictures: U8  # (m, size, size, 3) canonical images, by number
    statistics: Statistics
    stamp: RetrievalStamp
    n_episodes: tuple[int, int, int]  # train, held out, pool
    left_out: tuple[str, ...] = ()  # training demonstrations that were left out as mis-aligned
    contents: Mapping[str, Sequence[str]] = field(default_factory=dict)  # side -> ids of its episodes
    owners: NDArray[np.int64] | None = None  # (m,) episode of each picture
    folder: Path | None = None  # of the memory-mapped files; None: all is in memory


def cache_folder() -> Path:
    """The cache folder; everything in it can be computed again."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "recap"


def data_key(config: TrainConfig, target: Sequence[Episode], pool: Sequence[Episode]) -> str:
    """A hash of every setting and demonstration that the data depend on."""
    policy = {key: value for key, value in config.policy.to_json().items() if key not in UNRELATED}
    describer, retrieval = find_retrieval(config.policy.retrieval_name, config.policy.robot)
    facts = [VERSION, policy, asdict(config.pairs), describer.fingerprint, retrieval.fingerprint]
    moved = asdict(config.augment) if config.augment.displaces else None  # it changes the statistics
    facts += [config.held_out, config.held_out_by, config.co_training, config.own_share, moved, len(target)]
    digest = hashlib.sha256(json.dumps(facts).encode())
    for episode in (*target, *pool):
        texts = [getattr(episode, key) for key in TEXTS]
        digest.update(json.dumps([*texts, dict(episode.attributes)]).encode())
        for _, values in sorted(arrays_of(episode).items()):
            digest.update(values.tobytes())
        for camera in config.policy.image.cameras if config.policy.sees else ():
            digest.update(_video_key(episode.images.get(camera, ())).encode())
    return digest.hexdigest()[:32]


def _video_key(frames: Sequence[U8]) -> str:
    """A key for a camera's frames, without decoding a video: their hash, their file, or some of them."""
    inner = getattr(frames, "_frames", frames)  # the frames that a selection refers to
    if hasattr(inner, "digest"):
        return str(inner.digest)
    path = getattr(inner, "path", None)
    if isinstance(path, Path) and path.is_file():
        status = path.stat()
        return str((path.name, status.st_size, status.st_mtime_ns, getattr(inner, "start", 0), len(frames)))
    some = frames if isinstance(frames, np.ndarray) else [frames[i] for i in (0, len(frames) // 2, -1)]
    return hashlib.sha256(np.ascontiguousarray(some).tobytes()).hexdigest()


def write_facts(data: TrainingData, folder: Path) -> None:
    """Write everything but the tables; this file marks the folder as complete."""
    facts = {
        "stamp": asdict(data.stamp),
        "n_episodes": data.n_episodes,
        "left_out": data.left_out,
        "contents": data.contents,
        "tasks": {side: getattr(data, side).tasks for side in SIDES},
        "mean": {name: values.tolist() for name, values in data.statistics.mean.items()},
        "std": {name: values.tolist() for name, values in data.statistics.std.items()},
    }
    write_whole(folder / FACTS, json.dumps(facts))


def read_data(folder: Path) -> TrainingData | None:
    """The memory-mapped data, or None if they are missing or damaged."""
    try:
        facts = json.loads((folder / FACTS).read_text("utf-8"))
        train, held_out = (from_tables(read_tables(folder / s), tuple(facts["tasks"][s])) for s in SIDES)
        statistics: list[dict[str, Any]] = [
            {name: np.array(values, np.float32) for name, values in facts[key].items()}
            for key in ("mean", "std")
        ]
        pictures, owners = (np.load(folder / f"{name}.npy", mmap_mode="c") for name in ("pictures", "owners"))
        return TrainingData(
            train,
            held_out,
            pictures,
            Statistics(*statistics),
            RetrievalStamp(**facts["stamp"]),
            tuple(facts["n_episodes"]),
            tuple(facts["left_out"]),
            facts["contents"],
            owners,
            folder,
        )
    except (OSError, KeyError, ValueError, TypeError, EOFError):
        return None  # they are computed again

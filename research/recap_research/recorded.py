"""Many PushT demonstrations as a few small arrays, turned into training data by indexing.

Equal to the data of `recap.training.data`, for retrieval in the world frame. Images are rendered on the
device and encoded at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recap.policies.autoencoder import FrameEncoder
from recap.policies.config import PolicyConfig
from recap.policies.layout import build_layout, frame_offsets, future_frames
from recap.pool.memory import MemoryView
from recap.retrieval.pairs import Pairs
from recap.training.config import TrainConfig
from recap.training.data import pairs_for, training_retrieval
from recap.training.samples import I64, Samples
from recap.types import Episode
from recap_research.boards import backgrounds, draw_boards
from recap_worlds.pusht.tasks import INSTRUCTION

POSITION, TURN, CLOSE = 60.0, 10_000.0, 255.0  # stored fractions of a px, a rad and a weight


@dataclass(frozen=True)
class Recorded:
    """All frames of some demonstrations, concatenated."""

    length: I64  # (e,) frames of each demonstration
    proprio: NDArray[Any]  # (n, 2)
    actions: NDArray[Any]  # (n, 2)
    block: NDArray[Any]  # (n, 3)
    goal: NDArray[Any]  # (e, 3)
    match: NDArray[Any]  # (n, k, 2) index of the pool's demonstration, and its frame
    weight: NDArray[Any]  # (n, k)

    @property
    def first(self) -> I64:
        """(e,) index of each demonstration's first frame."""
        return np.cumsum(self.length) - self.length

    @property
    def owner(self) -> I64:
        """(n,) index of the demonstration of each frame."""
        return np.repeat(np.arange(len(self.length)), self.length)

    def ahead(self, frames: NDArray[Any], steps: NDArray[Any] | int) -> I64:
        """Frames `steps` later, at most the last frame of their demonstration."""
        last = (self.first + self.length - 1)[self.owner[frames]]
        return np.asarray(np.minimum(frames + steps, last), np.int64)


def record(
    episodes: Sequence[Episode], pool: Sequence[Episode], config: TrainConfig, for_training: bool
) -> Recorded:
    """Demonstrations with their matches; without a pool there are none."""
    n = sum(map(len, episodes))
    match, weight = np.zeros((n, 1, 2), np.int32), np.zeros((n, 1), np.float32)
    if pool:
        retrieval = training_retrieval(config, pool)
        pairs: Pairs = pairs_for(MemoryView(episodes), MemoryView(pool), config, for_training, retrieval)
        assert pairs.pool_ids == tuple(e.id for e in pool)
        missing = pairs.match[..., :1] < 0  # the first match instead, never drawn
        match = np.maximum(np.where(missing, pairs.match[:, :1], pairs.match), 0)
        weight = pairs.weight
    return Recorded(
        np.array([len(e) for e in episodes]),
        np.concatenate([e.proprio for e in episodes]),
        np.concatenate([e.actions for e in episodes]),
        np.concatenate([e.objects["block"] for e in episodes]),
        np.stack([np.asarray(e.goal, np.float32) for e in episodes]),
        match,
        weight,
    )


def write(path: Path, sides: dict[str, Recorded]) -> None:
    """Write all sides into one file; positions are rounded to a sixtieth of a px."""
    scale = {"proprio": POSITION, "actions": POSITION, "weight": CLOSE}
    tables: dict[str, NDArray[Any]] = {}
    for side, one in sides.items():
        turned = np.array([POSITION, POSITION, TURN])
        angle = (one.block[:, 2:] + np.pi) % (2 * np.pi) - np.pi
        tables |= {
            f"{side}/length": one.length.astype(np.int16),
            f"{side}/goal": one.goal,
            f"{side}/block": np.rint(np.concatenate([one.block[:, :2], angle], 1) * turned).astype(np.int16),
            f"{side}/match": one.match.astype(np.uint8 if one.match.max() < 256 else np.int16),
        }
        for name, factor in scale.items():
            kind = np.uint8 if name == "weight" else np.int16
            tables[f"{side}/{name}"] = np.rint(getattr(one, name) * factor).astype(kind)
    np.savez_compressed(path, allow_pickle=False, **tables)


def read(path: Path) -> dict[str, Recorded]:
    """The inverse of `write`."""
    found: dict[str, dict[str, Any]] = {}
    with np.load(path) as file:
        for key in file.files:
            side, _, name = key.partition("/")
            found.setdefault(side, {})[name] = file[key]
    scale = {
        "proprio": POSITION,
        "actions": POSITION,
        "block": np.array([POSITION, POSITION, TURN]),
        "weight": CLOSE,
    }
    for tables in found.values():
        tables |= {name: (tables[name] / factor).astype(np.float32) for name, factor in scale.items()}
        total = tables["weight"].sum(1, keepdims=True)
        tables["weight"] = tables["weight"] / np.maximum(total, 1e-9)
        tables |= {name: tables[name].astype(np.int64) for name in ("length", "match")}
    return {side: Recorded(**tables) for side, tables in found.items()}


def samples_of(one: Recorded, pool: Recorded, config: PolicyConfig, picture: int, shown: int) -> Samples:
    """Training samples of every frame, for image policies in the world frame.

    Args:
        picture: index of the image of the target's first frame.
        shown: index of the image of the pool's first frame.
    """
    n, horizon = len(one.proprio), config.chunk_size
    moments, steps = np.arange(n), np.arange(horizon)
    rows = one.ahead(moments[:, None], steps)
    last = (one.first + one.length)[one.owner]
    valid = (moments[:, None] + steps < last[:, None]).astype(np.float32)
    begin = pool.first[one.match[..., 0]] + one.match[..., 1]  # (n, k)
    chunk = pool.ahead(begin[..., None], steps)  # (n, k, H)
    given = (chunk == begin[..., None] + steps).astype(np.float32)
    actions = pool.actions[chunk].reshape(*begin.shape, -1)
    images = {"frame/top": picture + moments}
    for name, far in future_frames(config).items() if config.future_image else ():
        images[f"{name}/top"] = picture + one.ahead(moments, far)
    if config.retrieval:
        for i, offset in enumerate(frame_offsets(config)):
            images[f"retrieved_frame_{i}/top"] = shown + pool.ahead(begin, offset)
    matched = {
        "retrieved_proprio": pool.proprio[chunk].reshape(*begin.shape, -1),
        "retrieved_action": np.concatenate([actions, given], axis=-1),
    }
    slots = {slot.name for slot in build_layout(config).vectors}
    return Samples(
        {"proprio": one.proprio, "future_proprio": one.proprio[one.ahead(moments, horizon)]},
        {name: values for name, values in matched.items() if name in slots},
        one.actions[rows].reshape(n, -1),
        actions if config.retrieval else np.repeat(one.proprio[:, None], horizon, 1).reshape(n, 1, -1),
        np.repeat(valid, config.action_dim, axis=1),
        one.weight if config.retrieval else np.zeros((n, 1), np.float32),
        images,
        (INSTRUCTION,),
        np.zeros(n, np.int64),
    )


def scenes(one: Recorded, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs of `pictures`: backgrounds, the background of each frame, pushers and blocks."""
    goals, which = np.unique(one.goal, axis=0, return_inverse=True)
    return (
        backgrounds(goals, size),
        torch.from_numpy(which.reshape(-1)[one.owner]),
        torch.from_numpy(one.proprio),
        torch.from_numpy(one.block),
    )


def pictures(scene: Sequence[Tensor], rows: Tensor, pusher: str) -> Tensor:
    """Images (n, size, size, 3) of these frames, rendered on the device of `scenes`."""
    ground, which, pushers, blocks = scene
    return draw_boards(ground[which[rows]], pushers[rows], blocks[rows], pusher)


@torch.inference_mode()
def encoded(
    one: Recorded, size: int, pusher: str, encoder: FrameEncoder, device: torch.device, at_once: int = 512
) -> Tensor:
    """Latents (n, 1, c, h, w) of every frame, in 16 bits."""
    scene = [part.to(device) for part in scenes(one, size)]
    found = []
    for rows in torch.split(torch.arange(len(one.proprio), device=device), at_once):
        pixels = pictures(scene, rows, pusher).permute(0, 3, 1, 2).float() / 127.5 - 1
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            found.append(encoder.encode(pixels).half()[:, None])
    return torch.cat(found)

"""Attention of the action slot: by slot, layer and head, and by region of the images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from recap.errors import InputError
from recap.geometry import transform_points
from recap.policies.config import ImageConfig
from recap.retrieval.aligners import pose_into
from recap.types import F32, F64, U8, ActionChunk, Conditioning, Observation
from recap_research.analysis.bootstrap import bootstrap_mean
from recap_worlds.pusht.blocks import block_named

if TYPE_CHECKING:
    from torch import Tensor

    from recap.policies.layout import Layout
    from recap.policies.policy import TrainedPolicy

PARTS = ("mass", "roi", "overlap")
REGIONS = ("t_block", "t_block_next", "predicted_end")  # names of the paper, appendix B
FIRST, LAST = "retrieved_frame_0", "retrieved_frame_1"  # the paper's ret-1 and ret-end for two frames


@dataclass(frozen=True)
class Reading:
    """Attention of the action slot in one prediction, mean over its tokens and the denoising steps."""

    slots: tuple[str, ...]
    images: tuple[str, ...]  # slots that hold images
    maps: F32  # (layers, heads, slots, g, g); sums to 1 for each layer and head

    def mass(self) -> F64:
        """Attention on each slot: (layers, heads, slots)."""
        return np.asarray(self.maps.sum(axis=(3, 4)), np.float64)

    def on(self, slot: str) -> F32:
        """Attention on the tokens of a slot: (layers, heads, g, g)."""
        return np.asarray(self.maps[:, :, self.slots.index(slot)], np.float32)


def reading_of(weights: Tensor, layout: Layout) -> Reading:
    """A reading from the recorded weights of a chunk: (steps, layers, heads, T)."""
    grid = layout.size // layout.patch
    n_layers, n_heads = weights.shape[1:3]
    maps = weights.mean(dim=0).reshape(n_layers, n_heads, len(layout.slots), grid, grid)
    names = tuple(slot.name for slot in layout.slots)
    return Reading(names, tuple(slot.name for slot in layout.images), maps.numpy().astype(np.float32))


def roi_ratio(attention: F32 | F64, region: F64) -> F64:
    """Mean attention inside a region over the mean of the whole image (paper, appendix B): 1 if uniform.

    Args:
        attention: (..., g, g), with any sum.
        region: (g, g) share of each token inside the region; 0 or 1 except at its border.
    """
    mean = attention.mean(axis=(-2, -1), dtype=np.float64)
    area, known = float(region.sum()), mean > 0  # a masked image has no ratio
    if area <= 0:
        return np.full(attention.shape[:-2], np.nan)
    inside = (attention * region).sum(axis=(-2, -1), dtype=np.float64) / area
    return np.asarray(np.where(known, inside / np.where(known, mean, 1.0), np.nan))


def box_region(poses: F64, block: str, image: ImageConfig, aligned: bool, grid: int) -> F64:
    """The block's bounding box on the tokens of a canonical image, by its pose there: (g, g)."""
    if image.view != "top-down":
        raise InputError("regions are known on pictures that look straight down on a plane: view 'top-down'")
    corners = transform_points(np.asarray(poses, np.float64), block_named(block).parts).reshape(-1, 2)
    # The canonical image covers `span` around its frame's origin; without a frame, the world's.
    tokens = corners / image.span * grid + grid / 2 if aligned else corners / image.world * grid
    low, high = tokens.min(axis=0), tokens.max(axis=0)
    edges = np.arange(grid)
    x, y = (np.clip(np.minimum(edges + 1, high[k]) - np.maximum(edges, low[k]), 0.0, 1.0) for k in (0, 1))
    return np.asarray(y[:, None] * x[None, :])


def predicted_pose(
    policy: TrainedPolicy, observation: Observation, given: Conditioning, chunk: ActionChunk, block: str
) -> F64 | None:
    """The predicted pose of the block at the end of the chunk, in the canonical frame: (3,).

    Found in the predicted image if there is one and the block is found in it, else the predicted state.
    """
    config = policy.config
    if chunk.predicted_latents is not None and config.sees and config.image.view == "top-down":
        from recap.policies.canonical import camera_image
        from recap_worlds.pusht.vision import look

        picture = policy.decode_frames(chunk.predicted_latents[:1])[0]
        around = observation.images[config.image.cameras[0]]
        seen = look(camera_image(picture, given.frame, config.image, policy.aligned, around), block)
        if seen.block is not None:
            return pose_into(given.frame, seen.block) if policy.aligned else seen.block
    if chunk.predicted_state is not None and config.measures:
        x, y, c, s = np.asarray(chunk.predicted_state[config.proprio_dim :], np.float64)
        return np.array([x, y, np.arctan2(s, c)])
    return None


def regions_of(
    policy: TrainedPolicy,
    observation: Observation,
    given: Conditioning,
    chunk: ActionChunk,
    block: str,
    grid: int,
) -> dict[tuple[str, str], F64]:
    """(image slot, region) -> (g, g), for every image and every known region."""
    config = policy.config
    if not len(given.object_now):
        return {}
    end = predicted_pose(policy, observation, given, chunk, block)
    found: dict[tuple[str, str], F64] = {}
    for slot in policy.model.layout.images:
        if slot.retrieved and given.is_empty:
            continue
        now = given.objects[0, 0] if slot.retrieved else given.object_now
        after = None if given.is_empty else given.objects[0, -1]
        for name, pose in zip(REGIONS, (now, after, end), strict=True):
            if pose is not None:
                found[slot.name, name] = box_region(pose, block, config.image, policy.aligned, grid)
    return found


@dataclass(frozen=True)
class Figures:
    """Summary of a reading: attention by slot, and ratios by region; the last column is over all heads."""

    mass: dict[str, F64]  # slot -> (layers, heads)
    roi: dict[str, F64]  # "slot>region" -> (layers, heads + 1); the last column is for the mean over heads
    overlap: dict[str, F64]  # "region&region" -> () intersection over union, on the current image

    def to_json(self) -> dict[str, Any]:
        """Plain values, rounded to four places."""
        return {
            part: {name: np.round(values, 4).tolist() for name, values in table.items()}
            for part, table in ((part, getattr(self, part)) for part in PARTS)
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Figures:
        """The inverse of `to_json`."""
        tables = [{k: np.array(v, np.float64) for k, v in values[part].items()} for part in PARTS]
        return cls(*tables)


def figures_of(reading: Reading, regions: Mapping[tuple[str, str], F64]) -> Figures:
    """The figures of one prediction."""
    mass = reading.mass()
    roi: dict[str, F64] = {}
    for (slot, name), region in regions.items():
        on = reading.on(slot)
        together = on.mean(axis=1, keepdims=True)
        roi[f"{slot}>{name}"] = roi_ratio(np.concatenate([on, together], axis=1), region)
    overlap: dict[str, F64] = {}
    present = {name: region for (slot, name), region in regions.items() if slot.startswith("frame/")}
    for a, b in combinations(present, 2):
        both, either = np.minimum(present[a], present[b]).sum(), np.maximum(present[a], present[b]).sum()
        overlap[f"{a}&{b}"] = np.asarray(both / either if either else np.nan)
    return Figures({name: mass[:, :, i] for i, name in enumerate(reading.slots)}, roi, overlap)


def mean_figures(several: Sequence[Figures]) -> Figures:
    """The mean of several figures, ignoring missing values."""
    tables: list[dict[str, F64]] = []
    for part in PARTS:
        names = dict.fromkeys(name for one in several for name in getattr(one, part))
        table = {}
        for name in names:
            values = np.stack([getattr(one, part)[name] for one in several if name in getattr(one, part)])
            known = ~np.isnan(values)
            sums = np.where(known, values, 0.0).sum(axis=0)
            table[name] = np.where(known.any(axis=0), sums / np.maximum(known.sum(axis=0), 1), np.nan)
        tables.append(table)
    return Figures(*tables)


@dataclass(frozen=True)
class Peak:
    """The layer with the highest ratio, and whether it stands out."""

    layer: int
    ratio: float
    low: float  # 95 %, bootstrap over episodes
    high: float
    others: float  # median ratio of the other layers
    clear: bool  # above 1, and above the other layers' median in 95 % of the bootstrap


def find_peak(by_layer: F64) -> Peak | None:
    """The peak of ratios (episodes, layers); None if all are nan."""
    known = by_layer[~np.isnan(by_layer).any(axis=1)]
    if not len(known):
        return None
    mean = known.mean(axis=0)
    layer = int(mean.argmax())
    low, high = bootstrap_mean(known[:, layer, None])
    rest = np.delete(known, layer, axis=1)
    others = float(np.median(np.delete(mean, layer))) if rest.size else float("nan")
    # The peak was chosen as the maximum, so only a difference from the rest beyond chance counts.
    above = bootstrap_mean((known[:, layer] - np.median(rest, axis=1))[:, None])[0] if rest.size else 0.0
    return Peak(layer, float(mean[layer]), low, high, others, bool(low > 1 and above > 0))


# Intake: retrieved images on their block. Commit: predicted end, on the current and the last retrieved image.
AXES = {
    "intake": (f"{FIRST}>t_block", f"{LAST}>t_block_next"),
    "commit": ("frame>predicted_end", f"{LAST}>predicted_end"),
}


def without_camera(key: str) -> str:
    """`frame/top>t_block` as `frame>t_block`: with one camera its name is not needed."""
    slot, _, region = key.partition(">")
    return f"{slot.split('/')[0]}>{region}" if region else slot.split("/")[0]


def by_layer(episodes: Sequence[Figures], key: str) -> F64:
    """A ratio by layer for each episode that has it, over all heads: (n, layers)."""
    rows = [
        values[:, -1] for one in episodes for name, values in one.roi.items() if without_camera(name) == key
    ]
    return np.stack(rows) if rows else np.zeros((0, 0))


def summarise_attention(episodes: Sequence[Figures]) -> dict[str, Any]:
    """Means by layer and head with intervals over episodes, the peak of each ratio, and the two axes."""
    if not episodes:
        raise InputError("there is no attention to summarise: trace some episodes with the probe first")
    whole = mean_figures(episodes)
    roi: dict[str, Any] = {}
    for name, values in whole.roi.items():
        each = by_layer(episodes, without_camera(name))
        bounds = [bootstrap_mean(each[:, i, None]) for i in range(each.shape[1])]
        peak = find_peak(each)
        roi[without_camera(name)] = {
            "layers": values[:, -1].tolist(),
            "heads": values[:, :-1].tolist(),
            "low": [b.low for b in bounds],
            "high": [b.high for b in bounds],
            "peak": None if peak is None else vars(peak),
        }
    axes = {}
    for axis, keys in AXES.items():
        having = [one for one in episodes if set(keys) <= {without_camera(name) for name in one.roi}]
        if having:
            peak = find_peak(np.mean([by_layer(having, key) for key in keys], axis=0))
            axes[axis] = None if peak is None else vars(peak)
    return {
        "episodes": len(episodes),
        "mass": {without_camera(n): v.tolist() for n, v in whole.mass.items()},
        "roi": roi,
        "axes": axes,
        "overlap": {name: float(value) for name, value in whole.overlap.items()},
    }


def overlay(picture: U8, attention: F32, height: int = 128) -> U8:
    """An image with attention (g, g) as an overlay, red above the mean: (height, height, 3)."""
    import cv2

    size = (height, height)
    large = cv2.resize(picture, size, interpolation=cv2.INTER_LINEAR).astype(np.float64)
    heat = cv2.resize(attention / max(float(attention.mean()), 1e-12), size, interpolation=cv2.INTER_CUBIC)
    strength = np.clip((heat - 1) / 3, 0.0, 0.8)[..., None]  # saturates at about three times the mean
    grey = large.mean(axis=2, keepdims=True) * 0.6 + 255 * 0.4
    return np.asarray((1 - strength) * grey + strength * np.array([200.0, 30.0, 60.0]), np.uint8)

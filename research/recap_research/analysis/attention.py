"""What the action slot looks at: attention by slot, layer and head, and where it lies on the pictures."""

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
FIRST, LAST = "retrieved_frame_0", "retrieved_frame_1"  # its ret-1 and ret-end, with two shown frames


@dataclass(frozen=True)
class Reading:
    """Attention of the action slot in one prediction, mean over its tokens and the denoising steps."""

    slots: tuple[str, ...]
    images: tuple[str, ...]  # those of them that hold pictures
    maps: F32  # (layers, heads, slots, g, g); all of a layer and head sum to 1

    def mass(self) -> F64:
        """How much goes to each slot: (layers, heads, slots)."""
        return np.asarray(self.maps.sum(axis=(3, 4)), np.float64)

    def on(self, slot: str) -> F32:
        """On the tokens of a slot: (layers, heads, g, g)."""
        return np.asarray(self.maps[:, :, self.slots.index(slot)], np.float32)


def reading_of(weights: Tensor, layout: Layout) -> Reading:
    """From what a watched policy noted of a chunk: (steps, layers, heads, T)."""
    grid = layout.size // layout.patch
    n_layers, n_heads = weights.shape[1:3]
    maps = weights.mean(dim=0).reshape(n_layers, n_heads, len(layout.slots), grid, grid)
    names = tuple(slot.name for slot in layout.slots)
    return Reading(names, tuple(slot.name for slot in layout.images), maps.numpy().astype(np.float32))


def roi_ratio(attention: F32 | F64, region: F64) -> F64:
    """Mean attention inside a region over the mean of the whole picture (paper, appendix B): 1 if uniform.

    Args:
        attention: (..., g, g), of any sum.
        region: (g, g) share of each token that lies inside, 0 or 1 where the region ends on its border.
    """
    mean = attention.mean(axis=(-2, -1), dtype=np.float64)
    area, known = float(region.sum()), mean > 0  # of a picture that is masked nothing is known
    if area <= 0:
        return np.full(attention.shape[:-2], np.nan)
    inside = (attention * region).sum(axis=(-2, -1), dtype=np.float64) / area
    return np.asarray(np.where(known, inside / np.where(known, mean, 1.0), np.nan))


def box_region(poses: F64, block: str, image: ImageConfig, aligned: bool, grid: int) -> F64:
    """Where the block's bounding box lies on the tokens of a canonical picture, by its pose there: (g, g)."""
    if image.view != "top-down":
        raise InputError("regions are known on pictures that look straight down on a plane: view 'top-down'")
    corners = transform_points(np.asarray(poses, np.float64), block_named(block).parts).reshape(-1, 2)
    # The canonical picture spans `span` around its frame's origin; without a frame it is the world's.
    tokens = corners / image.span * grid + grid / 2 if aligned else corners / image.world * grid
    low, high = tokens.min(axis=0), tokens.max(axis=0)
    edges = np.arange(grid)
    x, y = (np.clip(np.minimum(edges + 1, high[k]) - np.maximum(edges, low[k]), 0.0, 1.0) for k in (0, 1))
    return np.asarray(y[:, None] * x[None, :])


def predicted_pose(
    policy: TrainedPolicy, observation: Observation, given: Conditioning, chunk: ActionChunk, block: str
) -> F64 | None:
    """The block at the chunk's end as the policy foresees it, in the canonical frame: (3,).

    Found in the predicted picture where there is one and the block is found in it; else as predicted.
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
    """(picture slot, region) -> (g, g), for every picture that is shown and every region that is known."""
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
    """What is kept of a reading: attention by slot, and ratios by region; heads last, then all together."""

    mass: dict[str, F64]  # slot -> (layers, heads)
    roi: dict[str, F64]  # "slot>region" -> (layers, heads + 1), the last of the heads' mean attention
    overlap: dict[str, F64]  # "region&region" -> () shared area over joint area, on the present picture

    def to_json(self) -> dict[str, Any]:
        """Plain values, to four places."""
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
    """Of one prediction."""
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
    """Of an episode, or of many: the mean of what is known."""
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
    """The layer at which something is looked at most, and whether it stands out."""

    layer: int
    ratio: float
    low: float  # 95 %, a bootstrap over episodes
    high: float
    others: float  # median ratio of the other layers
    clear: bool  # above 1, and above the other layers' median in 95 % of the bootstrap


def find_peak(by_layer: F64) -> Peak | None:
    """Of ratios (episodes, layers); None when nothing is known."""
    known = by_layer[~np.isnan(by_layer).any(axis=1)]
    if not len(known):
        return None
    mean = known.mean(axis=0)
    layer = int(mean.argmax())
    low, high = bootstrap_mean(known[:, layer, None])
    rest = np.delete(known, layer, axis=1)
    others = float(np.median(np.delete(mean, layer))) if rest.size else float("nan")
    # Chosen as the largest: only a distance from the rest that chance does not bring counts.
    above = bootstrap_mean((known[:, layer] - np.median(rest, axis=1))[:, None])[0] if rest.size else 0.0
    return Peak(layer, float(mean[layer]), low, high, others, bool(low > 1 and above > 0))


# Intake: the retrieved pictures on their block; commit: the predicted end, on the present and the last one.
AXES = {
    "intake": (f"{FIRST}>t_block", f"{LAST}>t_block_next"),
    "commit": ("frame>predicted_end", f"{LAST}>predicted_end"),
}


def without_camera(key: str) -> str:
    """`frame/top>t_block` as `frame>t_block`: with one camera there is nothing to tell apart."""
    slot, _, region = key.partition(">")
    return f"{slot.split('/')[0]}>{region}" if region else slot.split("/")[0]


def by_layer(episodes: Sequence[Figures], key: str) -> F64:
    """A ratio's course over the layers, of each episode that has it, heads together: (n, layers)."""
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
    """A picture with attention (g, g) laid over it, red where it is above the mean: (height, height, 3)."""
    import cv2

    size = (height, height)
    large = cv2.resize(picture, size, interpolation=cv2.INTER_LINEAR).astype(np.float64)
    heat = cv2.resize(attention / max(float(attention.mean()), 1e-12), size, interpolation=cv2.INTER_CUBIC)
    strength = np.clip((heat - 1) / 3, 0.0, 0.8)[..., None]  # beyond three times the mean all is as dark
    grey = large.mean(axis=2, keepdims=True) * 0.6 + 255 * 0.4
    return np.asarray((1 - strength) * grey + strength * np.array([200.0, 30.0, 60.0]), np.uint8)

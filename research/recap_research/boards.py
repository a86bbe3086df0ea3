"""PushT boards rendered with torch, thousands of scenes at once: equal to `drawing` within one grey level."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recap.geometry import transform_points
from recap.types import F32
from recap_worlds.pusht.blocks import block_named
from recap_worlds.pusht.drawing import BLOCK, BOARD_SIZE, LINE_RADIUS, PUSHER, draw_background, lighter
from recap_worlds.pusht.pushers import TRIANGLE
from recap_worlds.pusht.shapes import DISC_RADIUS


def draw_boards(
    background: F32 | Tensor, pushers: Tensor, blocks: Tensor, pusher: str = "triangle"
) -> Tensor:
    """Render scenes (n, size, size, 3) as uint8.

    Args:
        background: (size, size, 3), or one per scene, as made by `draw_background`.
        pushers: (n, 2) positions of the pusher.
        blocks: (n, 3) x, y, angle.
    """
    device, n = blocks.device, len(blocks)
    ground = torch.as_tensor(background, device=device)
    size = ground.shape[-2]
    image = ground.expand(n, size, size, 3).clone()
    scale = size / BOARD_SIZE
    at = (torch.arange(size, device=device) + 0.5) / scale - 0.5
    pixels = torch.stack(torch.meshgrid(at, at, indexing="xy"), dim=-1).reshape(-1, 2)  # (s², 2)
    c, s = blocks[:, 2].cos(), blocks[:, 2].sin()
    turn = torch.stack([c, -s, s, c], dim=1).view(n, 2, 2)
    for part in block_named("tee").parts:
        corners = torch.as_tensor(part, dtype=torch.float32, device=device)
        polygon = corners @ turn.transpose(1, 2) + blocks[:, None, :2]
        _paint(image, _distance(polygon, pixels), BLOCK, LINE_RADIUS, LINE_RADIUS, scale)
    color = PUSHER[pusher]
    if pusher == "disc":
        away = (pixels[None] - pushers[:, None]).norm(dim=-1) - DISC_RADIUS
        _paint(image, away, color, 0.0, 2 * LINE_RADIUS, scale)
    else:
        outline = torch.as_tensor(TRIANGLE, dtype=torch.float32, device=device) + pushers[:, None]
        _paint(image, _distance(outline, pixels), color, LINE_RADIUS, LINE_RADIUS, scale)
    return (image + 0.5).to(torch.uint8)


def _distance(polygons: Tensor, points: Tensor) -> Tensor:
    """Signed distance (n, p) of points (p, 2) to convex polygons (n, k, 2), negative inside."""
    nearest = torch.full((), torch.inf, device=points.device)
    inside = torch.ones((), dtype=torch.bool, device=points.device)
    for begin, end in zip(polygons.unbind(1), polygons.roll(-1, 1).unbind(1), strict=True):
        edge = (end - begin)[:, None]  # (n, 1, 2)
        away = points[None] - begin[:, None]
        inside = inside & (edge[..., 0] * away[..., 1] - edge[..., 1] * away[..., 0] >= 0)
        along = ((away * edge).sum(-1) / edge.square().sum(-1)).clamp(0, 1)
        nearest = torch.minimum(nearest, (away - along[..., None] * edge).square().sum(-1))
    return torch.where(inside, -nearest.sqrt(), nearest.sqrt())


def _paint(
    image: Tensor, distance: Tensor, color: tuple[float, float, float], out: float, into: float, scale: float
) -> None:
    """Draw the enclosed area and its outline, from `out` outside the edge to `into` inside it, in place."""
    away = distance.view(*image.shape[:3], 1)
    for tone, alpha in ((color, (out - away) * scale), (lighter(color), (-into - away) * scale)):
        paint = torch.tensor(tone, device=image.device)
        image += (0.5 + alpha).clamp(0, 1) * (paint - image)


def backgrounds(goals: NDArray[Any], size: int) -> Tensor:
    """Backgrounds, one for each goal (n, 3)."""
    parts = block_named("tee").parts
    drawn = [draw_background(size, transform_points(goal.astype(np.float64), parts)) for goal in goals]
    return torch.stack([torch.from_numpy(image) for image in drawn])

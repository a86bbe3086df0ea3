"""Mirrors, rotates and shifts scenes as numbers: the whole scene, or only the retrieved part."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from recap.body import RELATIVE_KINDS
from recap.policies.config import PolicyConfig
from recap.policies.vectors import MARK, Numbers, numbers_of, spans, things_of, width_of
from recap.training.config import AugmentConfig
from recap.training.samples import Samples

CHUNK = "absolute"  # key of absolute actions, which are not a slot
RETRIEVED = ("retrieved_proprio", "retrieved_action")
TURNS = ("rotation6d", "angle", "direction")


@dataclass(frozen=True)
class Columns:
    """How the numbers of one slot transform."""

    mirror: Tensor  # (width,) -1 for numbers that a left-right mirror negates
    sideways: Tensor  # (2, width) 1 for the x and for the y of absolute positions
    pairs: Tensor  # (n,) first column of each pair of numbers that rotates with the world
    lengths: Tensor  # (width,) 1 for positions and joints
    turns: Tensor  # (width,) 1 for rotations and directions
    marks: Tensor  # (width,) column that says whether the object is there; -1: none

    @classmethod
    def of(cls, parts: tuple[Numbers, ...], device: torch.device) -> Columns:
        """The columns of a slot."""
        width, begins = width_of(parts), things_of(parts)
        mirror, sideways, lengths, turns = (torch.zeros(n, width) for n in (1, 2, 1, 1))
        mirror += 1
        marks, pairs = torch.full((width,), -1), []
        for part, at in spans(parts):
            x, y = at.start, at.start + 1
            if part.kind == "position":
                mirror[:, x] = -1
                sideways[0, x] = sideways[1, y] = not part.relative
            elif part.kind == "direction":
                mirror[:, y] = -1
            elif part.kind == "rotation6d":
                pairs += [x, x + 3]
            # Relative numbers are in an object's frame in the plane, and along the world's axes in space.
            if part.kind in ("position", "direction") and (not part.relative or part.size == 3):
                pairs.append(x)
            lengths[:, at] = part.kind in RELATIVE_KINDS
            turns[:, at] = part.kind in TURNS
            if part.thing is not None:
                marks[at] = begins[part.thing] + MARK
        found = mirror[0], sideways, torch.tensor(pairs, dtype=torch.long), lengths[0], turns[0], marks
        return cls(*(tensor.to(device) for tensor in found))

    def turned(self, values: Tensor, angle: Tensor, about: Tensor) -> Tensor:
        """Rotate about a point (B, 2) by an angle (B,) each."""
        places = self.sideways[0, self.pairs]
        x, y = about[:, :1] * places, about[:, 1:] * places  # (B, n)
        first, second = values[:, self.pairs] - x, values[:, self.pairs + 1] - y
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        turned = values.clone()
        turned[:, self.pairs] = cos * first - sin * second + x
        turned[:, self.pairs + 1] = sin * first + cos * second + y
        return turned

    def moved(self, values: Tensor, about: Tensor, away: Tensor, angle: Tensor) -> Tensor:
        """Rotate, then shift; an absent object stays zeros."""
        return (self.turned(values, angle, about) + away @ self.sideways) * self.known(values)

    def known(self, values: Tensor) -> Tensor:
        """1 for numbers of present objects and for numbers without a mark."""
        return _at(values, self.marks, 1.0)


class Motion:
    """Mirrors, rotates and shifts rows of numbers according to their kinds."""

    def __init__(self, config: PolicyConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        here, world = numbers_of(config), numbers_of(config, relative=False)
        here[CHUNK] = tuple(Numbers(f.kind, f.size, config.robot.act.changes) for f in config.robot.action)
        here[CHUNK] *= config.chunk_size
        self.columns = {name: Columns.of(parts, device) for name, parts in here.items()}
        self._world = {name: Columns.of(world[name], device) for name in RETRIEVED}
        self._origins = {name: self._origin_of(name, here) for name in RETRIEVED}

    def mirrored(self, name: str, values: Tensor, which: Tensor) -> Tensor:
        """Swap left and right in some rows, in the frame of an object or in the world."""
        columns, world = self.columns[name], 0.0 if self.config.canonical else self.config.image.world
        return torch.where(which[:, None], values * columns.mirror + world * columns.sideways[0], values)

    def displaced(
        self, picked: dict[str, Tensor], base: Tensor, proprio: Tensor, away: Tensor, angle: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Rotate the retrieved scene about its main object by an angle (B,), and shift it by (B, 2).

        Args:
            picked: the retrieved slots, (B, width) each.
            base: (B, H * a) the retrieved actions.
            proprio: slot `proprio`, unchanged; the retrieved numbers may be relative to it.
        """
        first = self.config.chunk_size * self.config.proprio_dim  # the robot's own numbers come first
        world = {name: values + self._origin(name, values, proprio) for name, values in picked.items()}
        about = world["retrieved_proprio"][:, first : first + 2].clone()
        moved = {}
        for name, values in world.items():
            there = self._world[name].moved(values, about, away, angle)
            moved[name] = there - self._origin(name, there, proprio)
        return moved, self.columns[CHUNK].moved(base, about, away, angle)

    def _origin(self, name: str, values: Tensor, proprio: Tensor) -> Tensor:
        """The origin of these numbers (B, width); zeros for absolute numbers."""
        origin, mark = self._origins[name]
        return _at(proprio, origin, 0.0) * _at(proprio, mark, 1.0) * self._world[name].known(values)

    def _origin_of(self, name: str, here: dict[str, tuple[Numbers, ...]]) -> tuple[Tensor, Tensor]:
        """Columns of slot `proprio` with each number's origin and with the origin's mark; -1: none."""
        config, robot, parts = self.config, self.config.robot, here[name]
        body, columns = robot.body, np.arange(robot.body.size)
        if name == "retrieved_action":
            body, columns = robot.act, robot.measured
        origin, mark = (torch.full((width_of(parts),), -1) for _ in range(2))
        for part, at in spans(parts):
            if part.relative and at.start < config.chunk_size * body.size and not body.changes:
                origin[at] = torch.from_numpy(columns[np.arange(at.start, at.stop) % body.size])
        if config.relative_object_poses:
            now = things_of(here["proprio"])
            for thing, begin in things_of(parts).items():
                own, pose = now[thing % config.n_objects], slice(begin, begin + MARK)
                origin[pose], mark[pose] = torch.arange(own, own + MARK), own + MARK
        return origin.to(self.device), mark.to(self.device)


def _at(values: Tensor, columns: Tensor, otherwise: float) -> Tensor:
    """These columns (B, n) of the values; for column -1, `otherwise`."""
    return torch.nn.functional.pad(values, (1, 0), value=otherwise)[:, columns + 1]


def displacement(
    augment: AugmentConfig, seeing: Tensor, normal: Callable[..., Tensor], uniform: Callable[[], Tensor]
) -> tuple[Tensor, Tensor]:
    """Random shifts (B, 2) and rotations (B,), zero for samples with images."""
    away = augment.displace * normal(len(seeing), 2)
    part = 2 * uniform() - 1
    return away * ~seeing[:, None], math.radians(augment.displace_turn) * part * ~seeing


def displaced_samples(samples: Samples, config: PolicyConfig, augment: AugmentConfig) -> Samples:
    """Samples displaced as in training, so that the statistics include the displacement."""
    generator, motion = torch.Generator().manual_seed(0), Motion(config, torch.device("cpu"))
    proprio = torch.from_numpy(samples.fixed["proprio"])
    matched = {name: values.copy() for name, values in samples.matched.items()}
    base = samples.base.copy()
    for k in range(base.shape[1]):
        seeing = torch.rand(len(base), generator=generator) >= augment.image_dropout
        away, angle = displacement(
            augment,
            seeing,
            partial(torch.randn, generator=generator),
            partial(torch.rand, len(base), generator=generator),
        )
        picked = {name: torch.from_numpy(values[:, k]) for name, values in matched.items()}
        moved, based = motion.displaced(picked, torch.from_numpy(base[:, k]), proprio, away, angle)
        for name, values in moved.items():
            matched[name][:, k] = values.numpy()
        base[:, k] = based.numpy()
    return replace(samples, matched=matched, base=base)

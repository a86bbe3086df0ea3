"""Scenes mirrored, turned and moved as numbers: everything, or only what was retrieved."""

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

CHUNK = "absolute"  # actions as they are, beside the slots
RETRIEVED = ("retrieved_proprio", "retrieved_action")
TURNS = ("rotation6d", "angle", "direction")


@dataclass(frozen=True)
class Columns:
    """How the numbers of one slot move."""

    mirror: Tensor  # (width,) -1 of what a mirror that swaps left and right turns about
    sideways: Tensor  # (2, width) 1 of the x and of the y of places
    pairs: Tensor  # (n,) where two numbers begin that turn with the world
    lengths: Tensor  # (width,) 1 of positions and joints
    turns: Tensor  # (width,) 1 of rotations and directions
    marks: Tensor  # (width,) which number says whether it is there; -1: none

    @classmethod
    def of(cls, parts: tuple[Numbers, ...], device: torch.device) -> Columns:
        """Of a slot."""
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
            # What is relative is in the plane as an object sees it, in space along the axes of the world.
            if part.kind in ("position", "direction") and (not part.relative or part.size == 3):
                pairs.append(x)
            lengths[:, at] = part.kind in RELATIVE_KINDS
            turns[:, at] = part.kind in TURNS
            if part.thing is not None:
                marks[at] = begins[part.thing] + MARK
        found = mirror[0], sideways, torch.tensor(pairs, dtype=torch.long), lengths[0], turns[0], marks
        return cls(*(tensor.to(device) for tensor in found))

    def turned(self, values: Tensor, angle: Tensor, about: Tensor) -> Tensor:
        """Turned about a place (B, 2), by an angle (B,) each."""
        places = self.sideways[0, self.pairs]
        x, y = about[:, :1] * places, about[:, 1:] * places  # (B, n)
        first, second = values[:, self.pairs] - x, values[:, self.pairs + 1] - y
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        turned = values.clone()
        turned[:, self.pairs] = cos * first - sin * second + x
        turned[:, self.pairs + 1] = sin * first + cos * second + y
        return turned

    def moved(self, values: Tensor, about: Tensor, away: Tensor, angle: Tensor) -> Tensor:
        """Turned, then moved; an object that is not there stays zeros."""
        return (self.turned(values, angle, about) + away @ self.sideways) * self.known(values)

    def known(self, values: Tensor) -> Tensor:
        """1 for numbers of what is there, and of what needs no mark."""
        return _at(values, self.marks, 1.0)


class Motion:
    """Mirrors, turns and moves rows of numbers, each as what it is."""

    def __init__(self, config: PolicyConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        here, world = numbers_of(config), numbers_of(config, relative=False)
        here[CHUNK] = tuple(Numbers(f.kind, f.size, config.robot.act.changes) for f in config.robot.action)
        here[CHUNK] *= config.chunk_size
        self.columns = {name: Columns.of(parts, device) for name, parts in here.items()}
        self._world = {name: Columns.of(world[name], device) for name in RETRIEVED}
        self._origins = {name: self._origin_of(name, here) for name in RETRIEVED}

    def mirrored(self, name: str, values: Tensor, which: Tensor) -> Tensor:
        """Left and right swapped in some rows, in the frame of an object or in the world."""
        columns, world = self.columns[name], 0.0 if self.config.canonical else self.config.image.world
        return torch.where(which[:, None], values * columns.mirror + world * columns.sideways[0], values)

    def displaced(
        self, picked: dict[str, Tensor], base: Tensor, proprio: Tensor, away: Tensor, angle: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """What was retrieved with its scene, turned about its main object by an angle (B,) and moved (B, 2).

        Args:
            picked: the retrieved slots, (B, width) each.
            base: (B, H * a) the retrieved actions.
            proprio: slot `proprio`, which what was retrieved may be relative to; it stays as it is.
        """
        first = self.config.chunk_size * self.config.proprio_dim  # after the robot's own places
        world = {name: values + self._origin(name, values, proprio) for name, values in picked.items()}
        about = world["retrieved_proprio"][:, first : first + 2].clone()
        moved = {}
        for name, values in world.items():
            there = self._world[name].moved(values, about, away, angle)
            moved[name] = there - self._origin(name, there, proprio)
        return moved, self.columns[CHUNK].moved(base, about, away, angle)

    def _origin(self, name: str, values: Tensor, proprio: Tensor) -> Tensor:
        """What these numbers are relative to: (B, width), zeros where nothing."""
        origin, mark = self._origins[name]
        return _at(proprio, origin, 0.0) * _at(proprio, mark, 1.0) * self._world[name].known(values)

    def _origin_of(self, name: str, here: dict[str, tuple[Numbers, ...]]) -> tuple[Tensor, Tensor]:
        """Each number's origin among those of slot `proprio`, and the origin's mark; -1: none."""
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
    """(B, n) of these columns; -1 stands for another value."""
    return torch.nn.functional.pad(values, (1, 0), value=otherwise)[:, columns + 1]


def displacement(
    augment: AugmentConfig, seeing: Tensor, normal: Callable[..., Tensor], uniform: Callable[[], Tensor]
) -> tuple[Tensor, Tensor]:
    """Shifts (B, 2) and turns (B,), none where an image would say otherwise; drawn by normal and uniform."""
    away = augment.displace * normal(len(seeing), 2)
    part = 2 * uniform() - 1
    return away * ~seeing[:, None], math.radians(augment.displace_turn) * part * ~seeing


def displaced_samples(samples: Samples, config: PolicyConfig, augment: AugmentConfig) -> Samples:
    """As training draws them: what is divided by has to know how far what was retrieved is moved."""
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

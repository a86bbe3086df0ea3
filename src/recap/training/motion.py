"""Scenes turned and moved as numbers: everything, or only what was retrieved."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from recap.policies.config import PolicyConfig
from recap.policies.encodings import OBJECT
from recap.policies.vectors import letters_of, retrieved_letters
from recap.training.config import AugmentConfig
from recap.training.samples import Samples

# Numbers that turn with the world, where they begin: a place or a direction of the plane, and in space a
# place, a vector from one place to another, and each of a rotation's two axes.
TURNING = re.compile(r"XY|CS|xyz|rrr")


class Motion:
    """Turns and moves rows of numbers, each as what it is."""

    def __init__(self, config: PolicyConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        kinds = letters_of(config)
        body = config.robot.act.letters
        kinds["absolute"] = body * config.chunk_size
        self._tables = {name: self._table(text) for name, text in kinds.items()}
        self._world = {name: self._table(text) for name, text in retrieved_letters(config).items()}
        self._origins = {
            name: self._origin_of(name, text) for name, text in retrieved_letters(config).items()
        }

    def turned(self, name: str, values: Tensor, angle: Tensor, about: Tensor) -> Tensor:
        """Everything turned about a place (B, 2), by an angle (B,) each."""
        return _turned(self._tables[name], values, angle, about)

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
            there = _moved(self._world[name], values, about, away, angle)
            moved[name] = there - self._origin(name, there, proprio)
        return moved, _moved(self._tables["absolute"], base, about, away, angle)

    def _origin(self, name: str, values: Tensor, proprio: Tensor) -> Tensor:
        """What these numbers are relative to: (B, width), zeros where nothing."""
        origin, mark = self._origins[name]
        here = torch.nn.functional.pad(proprio, (1, 0))[:, origin + 1]
        _, _, _, marks = self._world[name]
        known = torch.nn.functional.pad(proprio, (1, 0), value=1.0)[:, mark + 1]
        return here * known * _known(values, marks)

    def _table(self, kinds: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Where pairs begin that turn, which are places, the sideways numbers, and each number's mark."""
        pairs = [m.start() for m in TURNING.finditer(kinds)]
        sides = [[float(kind == side) for kind in kinds] for side in "XY"]
        marks = [-1] * len(kinds)
        for found in OBJECT.finditer(kinds):
            marks[found.start() : found.end()] = [found.start() + 9] * (found.end() - found.start())
        device = self.device
        return (
            torch.tensor(pairs, dtype=torch.long, device=device),
            torch.tensor([float(kinds[i] == "X") for i in pairs], device=device),
            torch.tensor(sides, device=device),
            torch.tensor(marks, dtype=torch.long, device=device),
        )

    def _origin_of(self, name: str, kinds: str) -> tuple[Tensor, Tensor]:
        """Each number's origin among those of slot `proprio`, and the origin's mark; -1: none."""
        config, origin, mark = self.config, [-1] * len(kinds), [-1] * len(kinds)
        here = letters_of(config)
        width = config.action_dim if name == "retrieved_action" else config.proprio_dim
        columns = config.robot.measured.tolist() if name == "retrieved_action" else range(width)
        for i in range(config.chunk_size * width):
            if kinds[i] != here[name][i]:
                origin[i] = columns[i % width]
        if config.relative_object_poses and name == "retrieved_proprio":
            now = [m.start() for m in OBJECT.finditer(here["proprio"])]
            for number, found in enumerate(OBJECT.finditer(kinds)):
                begin, own = found.start(), now[number % len(now)]
                origin[begin : begin + 9] = range(own, own + 9)
                mark[begin : begin + 9] = [own + 9] * 9
        return tuple(torch.tensor(x, dtype=torch.long, device=self.device) for x in (origin, mark))  # type: ignore[return-value]


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


def _turned(
    table: tuple[Tensor, Tensor, Tensor, Tensor], values: Tensor, angle: Tensor, about: Tensor
) -> Tensor:
    pairs, places, _, _ = table
    x, y = about[:, :1] * places, about[:, 1:] * places  # (B, p)
    first, second = values[:, pairs] - x, values[:, pairs + 1] - y
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    turned = values.clone()
    turned[:, pairs] = cos * first - sin * second + x
    turned[:, pairs + 1] = sin * first + cos * second + y
    return turned


def _moved(
    table: tuple[Tensor, Tensor, Tensor, Tensor], values: Tensor, about: Tensor, away: Tensor, angle: Tensor
) -> Tensor:
    """Turned, then moved; an object that is not there stays zeros."""
    _, _, sides, marks = table
    return (_turned(table, values, angle, about) + away @ sides) * _known(values, marks)


def _known(values: Tensor, marks: Tensor) -> Tensor:
    """1 for numbers of what is there, and of what needs no mark."""
    return torch.nn.functional.pad(values, (1, 0), value=1.0)[:, marks + 1]

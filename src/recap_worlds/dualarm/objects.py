"""Objects on the table: bodies of primitive geoms, their parts, and their places in a scene.

A body's origin is in the middle of its base, so that its height is 0 on the table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Colour: TypeAlias = tuple[float, float, float]
Vector: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True)
class Geom:
    """A primitive; sizes are half sizes, as in MuJoCo."""

    shape: Literal["box", "cylinder", "capsule", "sphere", "ellipsoid"]
    size: tuple[float, ...]
    at: Vector
    colour: Colour
    turn: Vector = (0.0, 0.0, 0.0)  # degrees about x, y, z
    solid: bool = True
    slippery: bool = False


def box(half: Vector, at: Vector, colour: Colour, turn: Vector = (0, 0, 0), *, solid: bool = True) -> Geom:
    """A box with these half sizes."""
    return Geom("box", half, at, colour, turn, solid)


def cylinder(
    radius: float, half: float, at: Vector, colour: Colour, turn: Vector = (0, 0, 0), *, solid: bool = True
) -> Geom:
    """An upright cylinder, unless rotated; `half` is half its height."""
    return Geom("cylinder", (radius, half), at, colour, turn, solid)


def ring(radius: float, half: float, thick: float, z: float, colour: Colour, n: int = 12) -> tuple[Geom, ...]:
    """A round wall made of boxes, because MuJoCo has no hollow shapes."""
    wide = (radius + thick) * math.tan(math.pi / n)
    turns = [2 * math.pi * i / n for i in range(n)]
    return tuple(
        box(
            (thick, wide, half),
            (radius * math.cos(a), radius * math.sin(a), z),
            colour,
            (0, 0, math.degrees(a)),
        )
        for a in turns
    )


def tray(half: Vector, wall: float, colour: Colour) -> tuple[Geom, ...]:
    """An open box: a floor and four walls; `half` are the outer half sizes."""
    x, y, z = half
    return (
        box((x, y, wall), (0, 0, wall), colour),
        box((wall, y, z), (x - wall, 0, z), colour),
        box((wall, y, z), (wall - x, 0, z), colour),
        box((x, wall, z), (0, y - wall, z), colour),
        box((x, wall, z), (0, wall - y, z), colour),
    )


@dataclass(frozen=True)
class Part:
    """A part that is hinged to a body or slides on it."""

    name: str
    geoms: tuple[Geom, ...]
    at: Vector
    joint: Literal["hinge", "slide"]
    axis: Vector
    limits: tuple[float, float]  # degrees or m
    mass: float = 0.2
    damping: float = 0.1
    stiffness: float = 0.0  # of a spring back to 0
    friction: float = 0.0  # holds it in place
    start: float = 0.0  # degrees or m at the start of an episode


@dataclass(frozen=True)
class Body:
    """A named object; it moves freely unless it is `fixed` to the table."""

    name: str
    geoms: tuple[Geom, ...]
    mass: float = 0.15
    fixed: bool = False
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Place:
    """Pose of a body: metres and degrees."""

    x: float
    y: float
    yaw: float = 0.0
    z: float = 0.0


def body_xml(body: Body) -> str:
    """XML of a body for <worldbody>."""
    parts = "".join(_part_xml(part) for part in body.parts)
    joint = "" if body.fixed else f'<freejoint name="{body.name}"/>'
    return f'<body name="{body.name}">{joint}{_geoms_xml(body.geoms, body.mass)}{parts}</body>'


def _part_xml(part: Part) -> str:
    limits = tuple(math.radians(v) for v in part.limits) if part.joint == "hinge" else part.limits
    joint = (
        f'<joint name="{part.name}" type="{part.joint}" axis="{_text(part.axis)}" '
        f'range="{_text(limits)}" damping="{part.damping}" stiffness="{part.stiffness}" '
        f'frictionloss="{part.friction}" armature="0.001"/>'
    )
    return (
        f'<body name="{part.name}" pos="{_text(part.at)}">{joint}{_geoms_xml(part.geoms, part.mass)}</body>'
    )


def _geoms_xml(geoms: tuple[Geom, ...], mass: float) -> str:
    n_solid = sum(geom.solid for geom in geoms) or 1
    return "".join(
        f'<geom type="{geom.shape}" size="{_text(geom.size)}" pos="{_text(geom.at)}" '
        f'euler="{_text(tuple(math.radians(v) for v in geom.turn))}" rgba="{_text(geom.colour)} 1" '
        f'friction="{0.3 if geom.slippery else 0.9} 0.01 0.0002" condim="4" group="2" '
        + (f'mass="{mass / n_solid}"' if geom.solid else 'mass="0" contype="0" conaffinity="0"')
        + "/>"
        for geom in geoms
    )


def _text(numbers: tuple[float, ...]) -> str:
    return " ".join(f"{number:g}" for number in numbers)

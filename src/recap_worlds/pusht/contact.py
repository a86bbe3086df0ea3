"""The contact aligner: retargets the motion of one tool to a tool of another shape.

The centre of a disc that touches a wall is one radius away from it. A triangle's centre there may be nearer
or farther, and to the side of the contact. If the triangle is moved so that it touches where the disc did,
it has the same effect on the block. The disc is the reference tool: all tools are described as if they
were the disc. Only for the plane and for tools that do not rotate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.geometry import into_frame, out_of_frame
from recap.retrieval.aligners import ObjectFrame, Rows
from recap.robot import RobotSpec
from recap.types import F64, Episode, Frames, Moment
from recap_worlds.pusht.shapes import BLOCK_BARS, DISC_RADIUS, TRIANGLE_CORNERS, Bars, Corners

_Shape = TypeVar("_Shape")

N_ROUNDS = 12  # iterations to find the disc that corresponds to a tool


@dataclass(frozen=True)
class Tool:
    """A convex shape about its centre that never rotates: its corners, rounded by a radius."""

    corners: Corners
    radius: float = 0.0


@dataclass(frozen=True)
class Contact:
    """Shapes of tools and blocks by name, and the distances at which a tool's shape matters."""

    tools: Mapping[str, Tool]
    things: Mapping[str, Bars]
    object_name: str = "block"  # the block's name in episodes
    radius: float = DISC_RADIUS  # of the reference tool
    near: float = 10.0  # px between disc and block up to which the contact has full weight
    far: float = 40.0  # px from which it has no weight
    sharpness: float = 0.2  # per px; how quickly the contact moves from one corner to the next

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all shapes and settings."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def as_tool(self, tool: str, thing: str, discs: F64, headings: F64) -> F64:
        """Tool centres (n, 2) that touch the block as these discs do.

        Args:
            discs: disc centres (n, 2) in the block's frame.
            headings: the block's angles in the world (n,); the tool does not rotate with it.
        """
        shape = self.tool_named(tool)
        bars = np.array(_known("block", thing, self.things), np.float64)  # (b, 4)
        spots = np.clip(discs[:, None], bars[:, :2], bars[:, 2:])  # (n, b, 2) nearest point of each bar
        ways = spots - discs[:, None]
        away = np.linalg.norm(ways, axis=2)
        nearest = away.argmin(axis=1)
        rows = np.arange(len(discs))
        way, distance = ways[rows, nearest], away[rows, nearest]
        toward = way / np.maximum(distance, 1e-9)[:, None]  # zero inside the block, where nothing is moved
        abroad = _turned(headings, toward)
        reach = np.array(shape.corners) @ abroad.T  # (corners, n)
        share = np.exp(self.sharpness * (reach - reach.max(axis=0)))
        touching = (share / share.sum(axis=0)).T @ np.array(shape.corners) + shape.radius * abroad
        moved = self.radius * toward - _turned(-headings, touching) * (distance > 0)[:, None]
        weight = np.clip((self.far - (distance - self.radius)) / (self.far - self.near), 0, 1)
        return np.asarray(discs + weight[:, None] * moved)

    def as_disc(self, tool: str, thing: str, centers: F64, headings: F64) -> F64:
        """The inverse of `as_tool`, found iteratively: (n, 2)."""
        if self.is_disc(tool):
            return centers
        discs = centers
        for i in range(N_ROUNDS):
            wrong = centers - self.as_tool(tool, thing, discs, headings)
            discs = discs + (wrong if i < 2 else wrong / 2)  # full steps oscillate at corners
        return discs

    def is_disc(self, tool: str) -> bool:
        """True if that tool is the reference tool."""
        shape = self.tool_named(tool)
        return len(shape.corners) == 1 and shape.radius == self.radius

    def to_reference_tool(self, episode: Frames) -> Frames:
        """The frames as the reference tool would have moved; proprioception and actions change."""
        if self.is_disc(episode.embodiment):
            return episode
        steps = self.contact_offsets(episode, np.arange(len(episode) + 1), None)
        proprio = episode.proprio.copy()
        proprio[:, :2] += steps[:-1]
        if isinstance(episode, Moment):
            return replace(episode, proprio=proprio)
        actions = episode.actions.copy()
        if actions.shape[1]:
            actions[:, :2] += steps[1:]  # an action leads to the next position
        return replace(episode, proprio=proprio, actions=actions)

    def contact_offsets(
        self,
        episode: Frames,
        rows: NDArray[np.int64],
        tool: str | None,
        turn: float = 0.0,
        thing: str = "",
    ) -> F64:
        """Offsets (n, 2) from the episode's tool to another tool at each row, in the episode's world.

        Args:
            rows: frames; those past the end use the last frame.
            tool: the other tool; None: the reference tool.
            turn: rotation from the episode's world to the other tool's world.
            thing: the block, if the episode does not name it.
        """
        rows = np.minimum(rows, len(episode) - 1)
        poses = np.asarray(episode.objects[self.object_name], np.float64)[rows]
        centers = np.asarray(episode.proprio[rows, :2], np.float64)
        thing, headings = str(episode.attributes.get("block") or thing), poses[:, 2]
        there = self.as_disc(episode.embodiment, thing, into_frame(poses, centers), headings)
        if tool is not None:
            there = self.as_tool(tool, thing, there, headings + turn)
        return np.asarray(out_of_frame(poses, there) - centers)

    def tool_named(self, name: str) -> Tool:
        """The shape of a tool; raises an InputError that lists the known tools."""
        return _known("tool", name, self.tools)


def _known(kind: str, name: str, shapes: Mapping[str, _Shape]) -> _Shape:
    if name not in shapes:
        raise InputError(
            f"the shape of {kind} '{name}' is not known, only of {sorted(shapes)}: "
            "say which it is, or use retrieval pusht-object"
        )
    return shapes[name]


def _turned(angles: F64, vectors: F64) -> F64:
    c, s = np.cos(angles), np.sin(angles)
    x, y = vectors[:, 0], vectors[:, 1]
    return np.stack([c * x - s * y, s * x + c * y], axis=1)


PUSHT_CONTACT = Contact(
    {"disc": Tool(((0.0, 0.0),), DISC_RADIUS), "triangle": Tool(TRIANGLE_CORNERS)}, BLOCK_BARS
)


@dataclass(frozen=True)
class ContactFrame(ObjectFrame):
    """The block's frame, with chunks retargeted from the demonstration's tool to the robot's."""

    name: ClassVar[str] = "contact"
    contact: Contact = PUSHT_CONTACT

    @property
    def retargeting(self) -> Contact:
        """Describes every tool as the reference tool."""
        return self.contact

    def refuse(self, robot: RobotSpec, embodiment: str) -> None:
        """Refuse a tool of unknown shape before anything moves."""
        super().refuse(robot, embodiment)
        self.contact.tool_named(embodiment)

    def carry(
        self, episode: Episode, rows: Rows, frames: Frames, t: int, robot: RobotSpec, lead: int
    ) -> tuple[F64, F64]:
        """In the block's frame, retargeted to the robot's own tool."""
        begin = int(rows[0])
        own, here = self.frame(episode, begin), self.frame(frames, t)
        ahead = begin + np.arange(len(rows) + 1)
        thing, turn = str(frames.attributes.get("block", "")), float(here[2] - own[2])
        offsets = self.contact.contact_offsets(episode, ahead, frames.embodiment, turn, thing)
        actions = episode.actions[rows].astype(np.float64)
        proprio = episode.proprio[rows].astype(np.float64)
        proprio[:, :2] += offsets[:-1]
        actions[:, :2] += offsets[1:]  # an action leads to the next position
        return robot.act.into(own, actions), robot.body.into(own, proprio)

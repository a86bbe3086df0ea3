"""The tool of a hand: between thumb and finger, oriented with the palm, open as far as the two are apart.

Landmarks are MediaPipe's 21: wrist 0, thumb 1 to 4, index 5 to 8, middle 9 to 12, ring 13 to 16, little 17 to
20; each finger from the palm to the tip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recap.types import F64
from recap_hands.settings import Finger

Mask: TypeAlias = NDArray[np.bool_]

N_LANDMARKS = 21
WRIST, THUMB_TIP, MIDDLE_KNUCKLE = 0, 4, 9
TIPS = {"index": 8, "middle": 12}
PALM = [0, 1, 5, 9, 13, 17]
KNUCKLES = [5, 9]
RANGE_M = (0.02, 0.10)  # opening range for a film in which the fingers hardly move
LEAST_RANGE_M = 0.02
CLOSED, OPEN = 0.3, 0.6  # of the range: a grasp is below, a release above
STILL = 0.02  # of the range, per frame
LEAST_HOLD = 4  # frames between a grasp and a release


@dataclass(frozen=True)
class Event:
    """A grasp or a release."""

    frame: int
    kind: Literal["grasp", "release"]


@dataclass(frozen=True)
class ToolPath:
    """A hand as a tool, per frame; nan in frames without it."""

    seen: Mask  # (t,)
    position: F64  # (t, 3)
    rotation: F64  # (t, 3, 3): z from the wrist to the knuckles, y from thumb to finger
    opening: F64  # (t,) m between thumb and finger
    range_m: tuple[float, float]  # closed, open
    moves: bool  # whether the range was measured in this film


def usable(points: NDArray[Any], finger: Finger = "index") -> Mask:
    """Frames (t,) of points (t, 21, 3) with all landmarks that the tool needs."""
    needed = [*PALM, THUMB_TIP, TIPS[finger]]
    mask: Mask = np.isfinite(points[:, needed]).all(axis=(1, 2))
    return mask


def palm_length(points: NDArray[Any]) -> F64:
    """(t,): from the wrist to the knuckle of the middle finger."""
    return np.asarray(np.linalg.norm(points[:, MIDDLE_KNUCKLE] - points[:, WRIST], axis=-1))


def bridged(points: F64, times: F64, longest_s: float, finger: Finger = "index") -> tuple[F64, Mask]:
    """Fill gaps of at most `longest_s` linearly; returns the points and the filled frames."""
    seen = usable(points, finger)
    filled = np.zeros(len(points), bool)
    for begin, end in gaps(seen):
        inside = begin > 0 and end < len(seen)
        filled[begin:end] = inside and times[end] - times[begin - 1] <= longest_s + 1e-9
    out = points.copy()
    if filled.any():
        known = np.flatnonzero(seen)
        for number in np.flatnonzero(filled):
            after = int(np.searchsorted(known, number))
            a, b = known[after - 1], known[after]
            share = (times[number] - times[a]) / (times[b] - times[a])
            out[number] = (1 - share) * points[a] + share * points[b]
    return out, filled


def gaps(seen: Mask) -> list[tuple[int, int]]:
    """Runs [begin, end) of frames without the hand."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], seen, [True]]).astype(int)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def tool_path(
    points: NDArray[Any],
    finger: Finger = "index",
    opening_range: tuple[float, float] | None = None,
    tool: tuple[F64, F64] | None = None,
) -> ToolPath:
    """The tool of a hand's points (t, 21, 3).

    The palm is fitted as a rigid body with its average shape in the film, which is steadier than single
    landmarks. The tool's axes are fixed in the palm for the whole film, by the average positions of thumb and
    finger, so that they do not flip when the two meet.

    Args:
        opening_range: closed and open in m; by default measured in the film.
        tool: rotation (3, 3) and position (3,) of the robot's tool in the hand's frame.
    """
    points = np.asarray(points, np.float64)
    seen = usable(points, finger)
    n = len(points)
    position, rotation = np.full((n, 3), np.nan), np.full((n, 3, 3), np.nan)
    opening = np.full(n, np.nan)
    if not seen.any():
        return ToolPath(seen, position, rotation, opening, opening_range or RANGE_M, False)
    shown = points[seen]
    thumb, tip = shown[:, THUMB_TIP], shown[:, TIPS[finger]]
    opening[seen] = np.linalg.norm(tip - thumb, axis=1)
    turns = rigid_turns(shown[:, PALM])
    middle = (thumb + tip) / 2
    ahead = np.einsum("tji,tj->i", turns, shown[:, KNUCKLES].mean(axis=1) - shown[:, WRIST])  # in the palm
    axes = _axes(ahead, np.einsum("tji,tj->i", turns, tip - thumb))
    position[seen], rotation[seen] = middle, turns @ axes
    if tool is not None:
        turn, shift = tool
        position[seen] += rotation[seen] @ shift
        rotation[seen] = rotation[seen] @ turn
    low, high = (float(value) for value in np.percentile(opening[seen], (5, 95)))
    moves = opening_range is None and high - low >= LEAST_RANGE_M
    found = opening_range or ((low, high) if moves else RANGE_M)
    return ToolPath(seen, position, rotation, opening, found, moves)


def openness(path: ToolPath) -> F64:
    """(t,): 0 closed to 1 open."""
    low, high = path.range_m
    return np.clip((path.opening - low) / max(high - low, 1e-9), 0.0, 1.0)


def grip_events(share: NDArray[Any]) -> list[Event]:
    """Grasps and releases in openness (t,): a grasp at the end of closing, a release at the start of opening.

    A change counts if it crosses both levels and lasts for some frames, so that small movements are ignored.
    """
    share = np.asarray(share, np.float64)
    known = np.flatnonzero(np.isfinite(share))
    if not len(known):
        return []
    events: list[Event] = []
    is_open = bool(share[known[0]] > (CLOSED + OPEN) / 2)
    for at, number in enumerate(known):
        if is_open and share[number] < CLOSED:
            while at + 1 < len(known) and share[known[at + 1]] < share[known[at]] - STILL:
                at += 1
            events.append(Event(int(known[at]), "grasp"))
            is_open = False
        elif not is_open and share[number] > OPEN:
            first = events[-1].frame + 1 if events else 0
            while at > 0 and known[at - 1] >= first and share[known[at - 1]] < share[known[at]] - STILL:
                at -= 1
            events.append(Event(int(known[at]), "release"))
            is_open = True
    lasting: list[Event] = []
    for event in events:
        if lasting and event.frame - lasting[-1].frame < LEAST_HOLD:
            lasting.pop()  # it was reversed at once
        else:
            lasting.append(event)
    return lasting


def snapped(share: NDArray[Any], events: Sequence[Event]) -> F64:
    """A gripper (t,) that is open or closed between events; without events, the openness itself."""
    share = np.asarray(share, np.float64)
    if not events:
        return share.copy()
    out = np.full(len(share), 1.0 if events[0].kind == "grasp" else 0.0)
    for event in events:
        out[event.frame :] = 0.0 if event.kind == "grasp" else 1.0
    return np.where(np.isfinite(share), out, np.nan)


def rigid_turns(bodies: NDArray[Any], rounds: int = 4) -> F64:
    """Rotations (t, 3, 3) of rigid bodies (t, k, 3), relative to axes of one of them."""
    centred = bodies - bodies.mean(axis=1, keepdims=True)
    sizes = np.linalg.norm(centred, axis=(1, 2))
    first = int(np.argmin(np.abs(sizes - np.median(sizes))))
    wrist, knuckles = centred[first, 0], centred[first, 2:]
    frame = _axes(knuckles.mean(axis=0) - wrist, knuckles[0] - knuckles[-1])
    shape = centred[first] @ frame
    turns = np.zeros((len(bodies), 3, 3))
    for _ in range(rounds):
        u, _, vt = np.linalg.svd(np.einsum("tki,kj->tij", centred, shape))
        sign = np.sign(np.linalg.det(u @ vt))
        u[:, :, 2] *= sign[:, None]
        turns = u @ vt
        shape = np.einsum("tki,tij->kj", centred, turns) / len(bodies)
    return turns


def _axes(ahead: F64, across: F64) -> F64:
    """(3, 3) with z ahead, and y as close to `across` as a right angle allows."""
    z = ahead / max(float(np.linalg.norm(ahead)), 1e-12)
    y = across - (across @ z) * z
    length = float(np.linalg.norm(y))
    if length < 1e-6:  # fingers along the hand: any perpendicular direction
        y = np.cross(z, np.eye(3)[np.argmin(np.abs(z))])
        length = float(np.linalg.norm(y))
    y = y / length
    return np.stack([np.cross(y, z), y, z], axis=1)

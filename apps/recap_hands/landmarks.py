"""Landmarks of hands in a film, 21 per hand and frame, and the file format for other estimators.

`landmarks.npz` has `time_s (t,)` and `size (2,)`, height and width of the film. It also has the following
arrays for one hand, or with the prefixes `left_` and `right_` for two:

- `pixels (t, 21, 2)`: x, y in the film; together with `shape (t, 21, 3)` (metres about any origin, the
  camera's axes: x right, y down, z away) one camera is enough; without it two or more are needed;
- or `points (t, 21, 3)`: metres in the camera's frame; or `wrist (t, 4, 4)` and `shape` in the wrist's frame;
- `confidence (t,)`, 0 to 1, optional.

Numbers of a frame without a hand are NaN.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import DatasetError, InputError, cause
from recap.pool.importers.tracked import read_npz
from recap.types import F64
from recap_hands.tool import MIDDLE_KNUCKLE, N_LANDMARKS, WRIST

SIDES = ("left", "right")
_SHAPES = {
    "pixels": (N_LANDMARKS, 2),
    "shape": (N_LANDMARKS, 3),
    "points": (N_LANDMARKS, 3),
    "wrist": (4, 4),
    "confidence": (),
}
_SWAP = 0.5  # names are swapped if that reduces the distance below this share
_FORGET_S = 0.5  # after this time a hand may be anywhere


@dataclass(frozen=True)
class Hand:
    """One hand of a film; NaN in frames without it."""

    pixels: F64  # (t, 21, 2)
    shape: F64 | None = None  # (t, 21, 3) m, about any origin, with the camera's axes
    points: F64 | None = None  # (t, 21, 3) m in the camera's frame
    confidence: F64 | None = None  # (t,)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """(t,): frames with the hand."""
        numbers = self.pixels if self.points is None else self.points
        return np.asarray(np.isfinite(numbers[:, WRIST]).all(axis=1))


@dataclass(frozen=True)
class Landmarks:
    """The hands of a film by side; a single hand may have the side `hand`."""

    times: F64  # (t,) s, from 0
    size: tuple[int, int]  # height, width
    hands: Mapping[str, Hand]
    n_swaps: int = 0  # frames in which left and right were exchanged
    seconds: float = 0.0  # used by the estimator


def save_landmarks(path: Path, found: Landmarks) -> None:
    """Write `landmarks.npz` atomically."""
    from recap.run_directory import whole_file

    arrays: dict[str, Any] = {"time_s": found.times, "size": np.array(found.size)}
    for side, hand in found.hands.items():
        prefix = f"{side}_" if side in SIDES else ""
        for name in ("pixels", "shape", "points", "confidence"):
            values = getattr(hand, name)
            if values is not None:
                arrays[prefix + name] = values
    with whole_file(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load_landmarks(path: Path) -> Landmarks:
    """Read `landmarks.npz`; wrong shapes are errors, and pickles are never loaded."""
    names = {"time_s", "size", *(side + name for side in ("", "left_", "right_") for name in _SHAPES)}
    try:
        arrays = read_npz(path, names)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{path} cannot be read: {cause(error)}; it should be landmarks.npz") from None
    if "time_s" not in arrays or "size" not in arrays:
        raise DatasetError(f"{path} has no time_s or no size: see the layout of landmarks.npz")
    times = arrays["time_s"].reshape(-1)
    if len(times) < 2 or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise DatasetError(f"{path} has times that do not increase, or fewer than two: correct time_s")
    sides = {"": "hand", "left_": "left", "right_": "right"}
    hands = {}
    for prefix, side in sides.items():
        given = {name: arrays[prefix + name] for name in _SHAPES if prefix + name in arrays}
        for name, values in given.items():
            if values.shape != (len(times), *_SHAPES[name]):
                wanted = (len(times), *_SHAPES[name])
                raise DatasetError(f"{path}: {prefix}{name} is of shape {values.shape}, not {wanted}")
        if given:
            hands[side] = _hand(path, prefix, given, len(times))
    if not hands or ("hand" in hands and len(hands) > 1):
        raise DatasetError(f"{path} names no hand: give pixels or points, or left_… and right_…")
    height, width = (int(n) for n in arrays["size"].reshape(-1)[:2])
    return Landmarks(times - times[0], (height, width), hands)


def _hand(path: Path, prefix: str, given: Mapping[str, F64], n: int) -> Hand:
    points = given.get("points")
    if points is None and "wrist" in given and "shape" in given:
        wrist = given["wrist"]
        points = np.einsum("tij,tkj->tki", wrist[:, :3, :3], given["shape"]) + wrist[:, None, :3, 3]
    if points is None and "pixels" not in given:
        raise DatasetError(f"{path}: {prefix or 'the hand'} has no pixels, points or wrist with shape")
    empty = np.full((n, N_LANDMARKS, 2), np.nan)
    return Hand(given.get("pixels", empty), given.get("shape"), points, given.get("confidence"))


def without_swaps(found: Landmarks) -> Landmarks:
    """Names left and right by the hands' positions in the previous frame, and counts the changed frames.

    An estimator names each frame separately. The names in most frames are kept.
    """
    if set(found.hands) != set(SIDES):
        return found
    hands = [found.hands[side] for side in SIDES]
    places = np.stack([hand.pixels[:, [WRIST, MIDDLE_KNUCKLE]].mean(axis=1) for hand in hands])  # (2, t, 2)
    swapped = np.zeros(len(found.times), bool)
    last: list[tuple[float, F64] | None] = [None, None]
    for number, now in enumerate(found.times):
        here = [places[side, number] for side in (0, 1)]
        cost = [0.0, 0.0]  # names kept, names swapped
        known = False
        for side in (0, 1):
            for way, name in enumerate((side, 1 - side)):
                before = last[name]
                if np.isfinite(here[side]).all() and before is not None and now - before[0] <= _FORGET_S:
                    cost[way] += float(np.linalg.norm(here[side] - before[1]))
                    known = True
                elif np.isfinite(here[side]).all():
                    cost[way] += 0.25 * max(found.size)  # a hand that appears
        swapped[number] = known and cost[1] < _SWAP * cost[0]
        for side in (0, 1):
            if np.isfinite(here[side]).all():
                last[1 - side if swapped[number] else side] = (float(now), here[side])
    any_seen = hands[0].seen | hands[1].seen
    if swapped[any_seen].mean() > 0.5:
        swapped = ~swapped & any_seen
    fixed = {side: _mixed(hands[i], hands[1 - i], swapped) for i, side in enumerate(SIDES)}
    return replace(found, hands=fixed, n_swaps=int(swapped.sum()))


def _mixed(a: Hand, b: Hand, from_b: NDArray[np.bool_]) -> Hand:
    def pick(name: str) -> F64 | None:
        ours, theirs = getattr(a, name), getattr(b, name)
        if ours is None or theirs is None:
            return None
        mask = from_b.reshape(-1, *([1] * (ours.ndim - 1)))
        return np.asarray(np.where(mask, theirs, ours))

    pixels = pick("pixels")
    assert pixels is not None
    return Hand(pixels, pick("shape"), pick("points"), pick("confidence"))


def one_hand(found: Landmarks, which: str, name: str = "the film") -> Landmarks:
    """Only the requested hand: left, right, or one (the only hand)."""
    if which != "one":
        hand = found.hands.get(which) or found.hands.get("hand")
        if hand is None or not hand.seen.any():
            raise InputError(f"{name}: no {which} hand is seen: give --hands one", code="hands.none")
        return replace(found, hands={which: hand})
    found = without_swaps(found)
    counts = {side: int(hand.seen.sum()) for side, hand in found.hands.items()}
    n = len(found.times)
    if len(counts) == 2 and min(counts.values()) > 0.1 * n:
        both = int(np.logical_and(*(hand.seen for hand in found.hands.values())).sum())
        if both > 0.1 * n:
            raise InputError(
                f"{name}: two hands are seen, in {both} of {n} frames: give --hands left, right or both",
                code="hands.two",
            )
    if len(counts) == 2:  # one hand, alternately named left and right
        left, right = (found.hands[side] for side in SIDES)
        main, other = (left, right) if counts["left"] >= counts["right"] else (right, left)
        hand = _mixed(main, other, ~main.seen & other.seen)
        return replace(found, hands={max(counts, key=lambda side: counts[side]): hand})
    return found


def at_times(found: Landmarks, times: NDArray[Any]) -> Landmarks:
    """Interpolates to other times (n,), between frames at most two steps apart; otherwise not seen.

    At its own times a film of fixed rate is unchanged.
    """
    old = found.times
    after = np.clip(np.searchsorted(old, times - 1e-6), 0, len(old) - 1)
    exact = np.abs(old[after] - times) < 1e-6
    before = np.where(exact, after, np.maximum(after - 1, 0))
    step = np.where(exact, 1.0, old[after] - old[before])
    near = exact | ((step > 1e-9) & (step <= 2 * np.median(np.diff(old)) + 1e-6) & (times <= old[-1] + 1e-6))
    near &= times >= old[0] - 1e-6
    share = np.where(exact | (step <= 1e-9), 0.0, (times - old[before]) / np.where(step > 1e-9, step, 1.0))

    def moved(values: F64 | None) -> F64 | None:
        if values is None:
            return None
        s = share.reshape(-1, *([1] * (values.ndim - 1)))
        mixed = np.where(s == 0, values[before], (1 - s) * values[before] + s * values[after])
        return np.asarray(np.where(near.reshape(s.shape), mixed, np.nan))

    hands = {}
    for side, hand in found.hands.items():
        pixels = moved(hand.pixels)
        assert pixels is not None
        hands[side] = Hand(pixels, moved(hand.shape), moved(hand.points), moved(hand.confidence))
    return replace(found, times=np.asarray(times, np.float64), hands=hands)

"""From landmarks of films to a tracked demonstration: poses in metres, gaps, grasps, quality, files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recap.errors import InputError
from recap.geometry3 import matrix_to_quaternion, quaternion_to_matrix
from recap.hands.camera import Camera
from recap.hands.landmarks import SIDES, Hand, Landmarks, at_times, one_hand, save_landmarks, without_swaps
from recap.hands.metric import find_offset, from_cameras, from_one_camera
from recap.hands.quality import Quality, measure, refuse_poor
from recap.hands.settings import LiftSettings
from recap.hands.tool import ToolPath, bridged, grip_events, openness, snapped, tool_path
from recap.run_directory import new_folder
from recap.types import F64

LEAST_FRAMES = 8  # a run of fewer is no motion


@dataclass(frozen=True)
class LiftedHand:
    """One hand as a demonstration."""

    path: ToolPath
    gripper: F64  # (t,)
    quality: Quality


@dataclass(frozen=True)
class Lifted:
    """A demonstration by hand, on an even clock."""

    times: F64  # (t,) s of the film
    fps: float  # of the film
    speed: float
    hands: Mapping[str, LiftedHand]
    films: tuple[Landmarks, ...]  # at those times
    offsets: tuple[float, ...] = (0.0,)  # s by which each shows it later

    @property
    def seen(self) -> NDArray[np.bool_]:
        """(t,): all hands are."""
        return np.asarray(np.logical_and.reduce([hand.path.seen for hand in self.hands.values()]))


def lift(
    films: Sequence[Landmarks],
    cameras: Sequence[Camera],
    settings: LiftSettings,
    what: str = "the film",
    depth: Sequence[NDArray[Any]] | None = None,
) -> Lifted:
    """A demonstration from what an estimator found in one film, or in several of the same motion."""
    cameras = [camera.for_size(*film.size, what) for camera, film in zip(cameras, films, strict=True)]
    steps = np.diff(films[0].times)
    if len(steps) < LEAST_FRAMES:
        raise InputError(f"{what} has {len(steps) + 1} frames: film the whole motion", code="hands.film")
    fps = round_rate(float(1 / np.median(steps)))
    times = np.arange(int(np.floor(films[0].times[-1] * fps + 1e-6)) + 1) / fps
    found_hands = [
        without_swaps(film) if settings.hands == "both" else one_hand(film, settings.hands) for film in films
    ]
    wanted = SIDES if settings.hands == "both" else tuple(found_hands[0].hands)
    offsets = [0.0]
    for camera, film in zip(cameras[1:], found_hands[1:], strict=True):
        side = wanted[0] if wanted[0] in film.hands else next(iter(film.hands))
        offsets.append(find_offset((cameras[0], camera), (found_hands[0], film), (wanted[0], side)))
    chosen = [at_times(film, times + shift) for film, shift in zip(found_hands, offsets, strict=True)]
    tool = _tool(settings.tool)
    hands = {}
    for side in wanted:
        views = [_of(film, side, what) for film in chosen]
        if len(films) > 1 and all(view.points is None for view in views):
            found = from_cameras(cameras, views)
        else:
            found = from_one_camera(cameras[0], views[0], settings.hand_size, depth)
        points, filled = bridged(found.points, times, settings.bridge, settings.finger)
        path = tool_path(points, settings.finger, settings.opening, tool)
        share = openness(path)
        events = grip_events(share) if path.moves or settings.opening is not None else []
        gripper = snapped(share, events) if settings.gripper == "events" else share
        swaps = sum(film.n_swaps for film in chosen)
        quality = measure(times, points, path, filled, found.error_px, events, swaps)
        hands[side] = LiftedHand(path, gripper, quality)
    refuse_poor({side: h.quality for side, h in hands.items()}, films[0].size[1], settings.min_coverage, what)
    lifted = Lifted(times, fps, 1.0, hands, tuple(chosen), tuple(offsets))
    if not runs(lifted.seen):
        raise InputError(f"{what}: no hand is seen for {LEAST_FRAMES} frames on end", code="hands.quality")
    return lifted


def runs(seen: NDArray[np.bool_], least: int = LEAST_FRAMES) -> list[tuple[int, int]]:
    """Stretches [begin, end) without a gap, of `least` frames or more."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], seen, [False]]).astype(int))).reshape(-1, 2)
    return [(int(a), int(b)) for a, b in edges if b - a >= least]


def poses_of(lifted: Lifted) -> dict[str, NDArray[Any]]:
    """The arrays of poses.npz; times are those at the robot's speed."""
    arrays: dict[str, NDArray[Any]] = {
        "time_s": lifted.times * lifted.speed,
        "seen": lifted.seen.astype(np.uint8),
        "speed": np.array(lifted.speed),
    }
    for side, hand in lifted.hands.items():
        prefix = f"{side}_" if len(lifted.hands) > 1 else ""
        arrays[prefix + "xyz"] = hand.path.position
        quaternion = np.full((len(lifted.times), 4), np.nan)
        quaternion[hand.path.seen] = matrix_to_quaternion(hand.path.rotation[hand.path.seen])
        arrays[prefix + "quaternion"] = quaternion
        arrays[prefix + "gripper"] = hand.gripper
        arrays[prefix + "opening_m"] = hand.path.opening
    return arrays


def write_demonstration(
    out: Path, lifted: Lifted, task: str, film: Path | None, preview: Camera | None = None
) -> None:
    """A folder that `recap pool add` takes, there whole or not at all."""
    from recap.hands.preview import draw_preview, film_at

    if out.exists():
        raise InputError(f"{out} is there already: give another --out", code="hands.out")
    with new_folder(out) as partial:
        with (partial / "poses.npz").open("wb") as file:
            np.savez_compressed(file, **poses_of(lifted))  # type: ignore[arg-type]
        (partial / "task.txt").write_text(task + "\n", "utf-8")
        (partial / "quality.json").write_text(json.dumps(report(lifted), indent=1) + "\n", "utf-8")
        save_landmarks(partial / "landmarks.npz", lifted.films[0])
        if film is not None:
            film_at(film, lifted, partial / "video.mp4")
            if preview is not None:
                draw_preview(film, lifted, preview, partial / "preview.mp4")


def report(lifted: Lifted) -> dict[str, Any]:
    """What `quality.json` has."""
    seconds = lifted.films[0].seconds
    n = max(1, len(lifted.films[0].times))
    return {
        "fps": lifted.fps,
        "speed": lifted.speed,
        "offsets_s": [round(shift, 4) for shift in lifted.offsets],
        "estimator_ms_a_frame": round(1000 * seconds / n, 2) if seconds else None,
        "hands": {
            side: {key: _json(value) for key, value in asdict(hand.quality).items()}
            for side, hand in lifted.hands.items()
        },
    }


def _json(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4) if np.isfinite(value) else None
    return [_json(inner) for inner in value] if isinstance(value, (tuple, list)) else value


def _of(film: Landmarks, side: str, what: str) -> Hand:
    hand = film.hands.get(side)
    if hand is None and len(film.hands) == 1:  # one camera may name the only hand otherwise
        hand = next(iter(film.hands.values()))
    if hand is None or not hand.seen.any():
        raise InputError(f"{what}: no {side} hand is seen: give --hands one", code="hands.none")
    return hand


def _tool(numbers: Sequence[float]) -> tuple[F64, F64] | None:
    if not numbers:
        return None
    values = np.array(numbers, np.float64)
    return quaternion_to_matrix(values[3:]), values[:3]


def round_rate(fps: float) -> float:
    """30 for 29.9998: times are written with few digits."""
    nearest = round(fps)
    return float(nearest) if nearest and abs(fps - nearest) < 0.005 * nearest else fps


def stretched(lifted: Lifted, speed: float) -> Lifted:
    """The same at another speed."""
    return replace(lifted, speed=speed)

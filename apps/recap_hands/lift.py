"""From landmarks of films to a demonstration: poses in metres, gaps, grasps, quality and files."""

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
from recap.pool.importers.tracked import LEAST_FRAMES, round_rate, runs
from recap.run_directory import new_folder
from recap.types import F64
from recap_hands.camera import Camera
from recap_hands.landmarks import SIDES, Landmarks, at_times, one_hand, save_landmarks, without_swaps
from recap_hands.metric import find_offset, from_cameras, from_one_camera
from recap_hands.quality import Quality, measure, refuse_poor
from recap_hands.settings import LiftSettings
from recap_hands.tool import ToolPath, bridged, grip_events, openness, snapped, tool_path


@dataclass(frozen=True)
class LiftedHand:
    """One hand of a demonstration."""

    path: ToolPath
    gripper: F64  # (t,)
    quality: Quality


@dataclass(frozen=True)
class Lifted:
    """A demonstration by hands, at a fixed rate."""

    times: F64  # (t,) s of the film
    fps: float  # of the film
    speed: float
    hands: Mapping[str, LiftedHand]
    films: tuple[Landmarks, ...]  # at those times
    offsets: tuple[float, ...] = (0.0,)  # s by which each film is later

    @property
    def seen(self) -> NDArray[np.bool_]:
        """(t,): frames with all hands."""
        return np.asarray(np.logical_and.reduce([hand.path.seen for hand in self.hands.values()]))


def lift(
    films: Sequence[Landmarks],
    cameras: Sequence[Camera],
    settings: LiftSettings,
    names: Sequence[str] = (),
    depth: Sequence[NDArray[Any]] | None = None,
) -> Lifted:
    """Make a demonstration from the landmarks of one film, or of several films of the same motion.

    Args:
        names: of the films, for error messages.
        depth: one image per frame of the film, as in `from_one_camera`.
    """
    names = names or ["the film"] * len(films)
    what = names[0]
    cameras = [c.for_size(*film.size, name) for c, film, name in zip(cameras, films, names, strict=True)]
    if depth is not None and len(films) > 1:
        raise InputError(
            "depth goes with one film: leave --depth or the other films out", code="hands.metric"
        )
    steps = np.diff(films[0].times)
    if len(steps) < LEAST_FRAMES:
        raise InputError(f"{what} has {len(steps) + 1} frames: film the whole motion", code="hands.film")
    fps = round_rate(float(1 / np.median(steps)))
    times = np.arange(int(np.floor(films[0].times[-1] * fps + 1e-6)) + 1) / fps
    seen = [_wanted(film, settings.hands, name) for film, name in zip(films, names, strict=True)]
    wanted = tuple(seen[0].hands)
    if settings.hands != "both":  # one camera may name the only hand differently
        seen = [replace(film, hands={wanted[0]: hand}) for film in seen for hand in film.hands.values()]
    if len(films) > 1:
        for film, name in zip(seen, names, strict=True):
            if any(np.isnan(hand.pixels).all() for hand in film.hands.values()):
                raise InputError(f"{name}: several films need pixels in landmarks.npz", code="hands.metric")
    offsets = [0.0]
    for camera, film in zip(cameras[1:], seen[1:], strict=True):
        offsets.append(find_offset((cameras[0], camera), (seen[0], film), wanted[0]))
    chosen = [at_times(film, times + shift) for film, shift in zip(seen, offsets, strict=True)]
    nearest = np.searchsorted((films[0].times[1:] + films[0].times[:-1]) / 2, times)  # frame of the film
    tool = _tool(settings.tool)
    hands = {}
    for side in wanted:
        views = [film.hands[side] for film in chosen]
        if len(films) > 1:
            found = from_cameras(cameras, views)
        else:
            found = from_one_camera(cameras[0], views[0], settings.hand_size, depth, nearest)
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


def poses_of(lifted: Lifted) -> dict[str, NDArray[Any]]:
    """The arrays of poses.npz, with times at the robot's speed."""
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
    """Write a folder for `recap pool add`, atomically."""
    from recap_hands.preview import draw_preview, film_at

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
    """The content of `quality.json`."""
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


def _wanted(film: Landmarks, which: str, name: str) -> Landmarks:
    """The requested hands; one that is never seen is an error."""
    found = without_swaps(film) if which == "both" else one_hand(film, which, name)
    for side in SIDES if which == "both" else tuple(found.hands):
        if side not in found.hands or not found.hands[side].seen.any():
            missing, hint = f"no {side} hand", "film both, or give --hands one"
            if which == "one":
                missing, hint = "no hand", "film it closer, whole and in better light"
            raise InputError(f"{name}: {missing} is seen: {hint}", code="hands.none")
    return found


def _tool(numbers: Sequence[float]) -> tuple[F64, F64] | None:
    if not numbers:
        return None
    values = np.array(numbers, np.float64)
    return quaternion_to_matrix(values[3:]), values[:3]


def stretched(lifted: Lifted, speed: float) -> Lifted:
    """The same demonstration at another speed."""
    return replace(lifted, speed=speed)

"""Checks of a demonstration: shapes, types, and whether its numbers are plausible.

An error refuses the import. A warning is a guess that a person should check.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recap.errors import RecapError
from recap.geometry3 import ARM_DIM, GRIPPER, arm_starts, quaternion_start, rotation6_error
from recap.pool.content import faults, fields_of
from recap.pool.importers.source import Damage
from recap.types import F32, F64, Episode

Severity: TypeAlias = Literal["error", "warning"]

_STILL = 1e-6  # change relative to the magnitude below which a column is constant
_FPS = (1.0, 1000.0)
_WIDE = 256  # columns; wider vectors are not compared column by column
_DEGREES = 180 / np.pi
_SCALES = {1000.0: "metres and millimetres", 100.0: "metres and centimetres", _DEGREES: "radians and degrees"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check, on one line."""

    severity: Severity
    code: str  # short and stable, such as "not-finite"
    where: str  # the field, such as "proprio" or "image:top"
    message: str
    count: int = 1  # number of episodes with it
    example: str = ""  # the first of these

    def __str__(self) -> str:
        place = f" ({self.count} episodes, first '{self.example}')" if self.count > 1 else ""
        if self.count == 1 and self.example:
            place = f" ('{self.example}')"
        return " ".join(f"{self.severity}: {self.where}: {self.message}{place}".split())


_error, _warning = partial(Finding, "error"), partial(Finding, "warning")


def check_episode(episode: Episode) -> list[Finding]:
    """Everything found in one episode; values are checked only if the shapes agree."""
    findings = [*starmap(_error, faults(episode)), *_types(episode)]
    codes = {finding.code for finding in findings}
    if not codes & {"shape", "not-finite", "dtype", "short"}:
        timed = () if codes & {"fps", "time-order"} else (_time,)
        for check in (*timed, _motion, _channels, _units, _poses):
            findings += check(episode)
    findings += [*_images(episode), *_words(episode)]
    return [replace(finding, example=episode.id) for finding in findings]


def check_dataset(episodes: Iterable[Episode]) -> list[Finding]:
    """Findings of many episodes, merged with a count, and those that only appear across episodes."""
    merged: dict[tuple[str, str, str], Finding] = {}
    shapes: dict[str, tuple[object, str]] = {}
    ids: set[str] = set()
    contents: dict[bytes, str] = {}
    for episode in episodes:
        found = [*check_episode(episode), *_compare(episode, shapes), *_repeated(episode, ids, contents)]
        for finding in found:
            key = (finding.severity, finding.code, finding.where)
            first = merged.get(key, replace(finding, count=0, example=episode.id))
            merged[key] = replace(first, count=first.count + 1)
    if not ids:
        return [_error("empty", "source", "there are no episodes; check the path or the mapping")]
    return sorted(merged.values(), key=lambda finding: finding.severity)  # errors first, otherwise in order


def damage_findings(damages: Iterable[Damage], skipped: bool) -> list[Finding]:
    """One finding per damage, so that every skipped episode is named."""
    remedy = "it is left out" if skipped else "restore the file, or give --skip-damaged"
    return [
        Finding(
            "warning" if skipped else "error",
            "orphan" if damage.episode is None else "damaged",
            "source" if damage.episode is None else f"episode {damage.episode}",
            f"{damage.why}; {remedy}",
        )
        for damage in damages
    ]


def _types(episode: Episode) -> Iterator[Finding]:
    n = len(episode.timestamps)
    for name, values in fields_of(episode).items():
        dtype = np.dtype(np.float64 if name == "timestamps" else np.float32)
        if values.dtype != dtype:
            yield _error("dtype", name, f"it is {values.dtype}, not {dtype}; convert it")
        elif values.ndim == 2 and not values.shape[1]:
            yield _error(
                "shape", name, f"it is of shape {values.shape}, not ({n}, 1 or more); map another key"
            )
    if n < 2:
        yield _error("short", "timestamps", f"{n} frames are no demonstration; leave it out")


def _time(episode: Episode) -> Iterator[Finding]:
    fps, steps = episode.fps, np.diff(episode.timestamps)
    if not _FPS[0] <= fps <= _FPS[1]:
        message = f"{fps:g} frames per second is odd for a robot; check the unit of time"
        yield _warning("fps-odd", "fps", message)
    median = float(np.median(steps))
    if abs(median * fps - 1) > 0.1:
        message = (
            f"frames are {median:.4g} s apart, which is {1 / median:.4g} Hz and not {fps:g}; correct one"
        )
        yield _error("fps-differs", "timestamps", message)
    if steps.max() > 3.5 * median:
        message = f"there is a gap of {steps.max():.3g} s where frames are {median:.3g} s apart"
        yield _warning("time-gap", "timestamps", f"{message}; frames are lost")


def _images(episode: Episode) -> Iterator[Finding]:
    for camera, frames in episode.images.items():
        where = f"image:{camera}"
        if not len(frames):
            continue
        try:
            first = frames[0]
        except RecapError as error:
            yield _error("image-damaged", where, str(error))
            continue
        if first.dtype != np.uint8 or first.ndim != 3 or first.shape[2] != 3:
            message = f"an image is {first.dtype} {first.shape}, not uint8 (h, w, 3); convert it"
            yield _error("image-shape", where, message)


def _words(episode: Episode) -> Iterator[Finding]:
    if not episode.task.strip():
        message = 'there is no instruction, so it cannot be found by words; give --map task="…"'
        yield _warning("task-empty", "task", message)


def _motion(episode: Episode) -> Iterator[Finding]:
    if _moves(episode.proprio).any():
        return
    if any(_moves(values).any() for values in episode.objects.values()):
        yield _warning("still-robot", "proprio", "objects move but the robot does not; check the key")
    else:
        message = "nothing moves in this demonstration; leave it out or map the key that is the robot's state"
        yield _error("still", "proprio", message)


def _channels(episode: Episode) -> Iterator[Finding]:
    for where, values in (("proprio", episode.proprio), ("action", episode.actions)):
        starts = arm_starts(values)
        if starts:
            yield from _arms(where, values, starts)
            continue
        if values.shape[1] > _WIDE:
            message = f"{values.shape[1]} numbers a frame are more than a robot has; map some, as in KEY[0:9]"
            yield _warning("wide", where, message)
            continue  # comparing all pairs of columns would take too long
        moves = _moves(values)
        if moves.any() and not moves.all():
            still = _few([str(i) for i in np.flatnonzero(~moves)])
            message = f"these columns never change: {still}; not connected, or not used in this task?"
            yield _warning("constant", where, message)
        yield from _repeats(where, values, moves)
    if np.array_equal(episode.proprio, episode.actions) and _moves(episode.proprio).any():
        message = "it repeats the state of the same frame, so it commands nothing; map action=next:KEY"
        yield _warning("action-is-state", "action", message)


def _arms(where: str, values: F32, starts: Sequence[int]) -> Iterator[Finding]:
    """Check each arm as a whole, because constant or equal columns can be normal within an arm."""
    arms = [values[:, start : start + ARM_DIM] for start in starts]
    for start, arm in zip(starts, arms, strict=True):
        if not _moves(arm).any() and _moves(values).any():
            message = f"the arm in columns {start} to {start + ARM_DIM - 1} never moves; is it connected?"
            yield _warning("constant", where, message)
    if len(arms) == 2 and np.array_equal(arms[0], arms[1]) and _moves(arms[0]).any():
        yield _warning("repeats", where, "both arms do exactly the same; map each to its own keys")


def _repeats(where: str, values: F32, moves: NDArray[np.bool_]) -> Iterator[Finding]:
    """Columns that equal an earlier one."""
    columns = np.flatnonzero(moves)
    first = {i: next(j for j in columns if np.array_equal(values[:, i], values[:, j])) for i in columns}
    exact = [f"{i} = {j}" for i, j in first.items() if i != j]
    if exact:
        yield _warning("repeats", where, f"columns repeat others: {_few(exact)}; is one a copy?")


def _units(episode: Episode) -> Iterator[Finding]:
    """Check that actions and states have the same units, for columns that both have."""
    state, action = episode.proprio.astype(np.float64), episode.actions.astype(np.float64)
    for name, values in episode.objects.items():
        if values.shape[1] == 3 and (reach := np.abs(values[:, 2]).max()) > 4 * np.pi:
            message = f"its angle reaches {reach:.4g}, which looks like degrees, not radians"
            yield _warning("degrees", f"object:{name}", message)
    factors = [  # ratio of action to state, for columns in which the action follows the state
        float(np.std(a) / np.std(s))
        for s, a, _ in _shared(state, action)
        if np.std(s) > 0 and _correlation(s, a) > 0.95
    ]
    for factor, units in _SCALES.items():
        for value, words in ((factor, "larger"), (1 / factor, "smaller")):
            n = sum(abs(found / value - 1) < 0.05 for found in factors)
            if n and 2 * n >= len(factors):
                message = f"it is {factor:.4g} times {words} than the state it follows: {units}?"
                yield _warning("degrees" if factor == _DEGREES else "scale", "action", message)
                return
    if _looks_like_deltas(state, action):
        message = "it follows the change of the state, not the state: deltas? say so with --map action_space="
        yield _warning("deltas", "action", f"{message}… or map action=next:KEY")
        return
    ratio = _size(action) / max(_size(state), 1e-12)
    if ratio > 50 or ratio < 1 / 50:
        words = f"{ratio:.3g} times larger" if ratio > 1 else f"{1 / max(ratio, 1e-12):.3g} times smaller"
        yield _warning("scale", "action", f"its numbers are {words} than the state's: other units?")


def _poses(episode: Episode) -> Iterator[Finding]:
    for where, values in (("proprio", episode.proprio), ("action", episode.actions)):
        starts = arm_starts(values)
        for start in starts:
            worst = float(rotation6_error(values[:, start + 3 : start + 9]).max())
            if worst > 0.02:
                message = f"the 6-D rotation in columns {start + 3} to {start + 8} is off by {worst:.2g}; "
                message += "normalise it, or map the quaternion with @wxyz"
                yield _error("rotation", where, message)
            gripper = values[:, start + GRIPPER]
            if gripper.min() < -0.05 or gripper.max() > 1.05:
                message = f"the gripper in column {start + GRIPPER} runs from {gripper.min():.3g} to "
                message += f"{gripper.max():.3g}, not from 0 to 1; scale it"
                yield _error("gripper", where, message)
        first = None if starts else quaternion_start(values.astype(np.float64))
        if first is not None:
            message = f"columns {first} to {first + 3} look like a quaternion, whose sign may jump; "
            message += "map it with @xyzw or @wxyz to make it a 6-D rotation"
            yield _warning("quaternion", where, message)


def _compare(episode: Episode, shapes: dict[str, tuple[object, str]]) -> Iterator[Finding]:
    """Check what all episodes of a dataset must share."""
    facts: list[tuple[str, object, Severity, str]] = [
        ("proprio", episode.proprio.shape[1:], "error", "map the same columns"),
        ("action", episode.actions.shape[1:], "error", "map the same columns"),
        ("fps", round(episode.fps, 6), "warning", "resample to one rate"),
        ("image", tuple(sorted(episode.images)), "warning", "map the same cameras"),
        ("object", tuple(sorted(episode.objects)), "warning", "map the same objects"),
        ("embodiment", episode.embodiment, "warning", "are these demonstrations of one robot?"),
    ]
    for where, fact, severity, remedy in facts:
        first, example = shapes.setdefault(where, (fact, episode.id))
        if fact != first:
            message = f"it is {_plain(fact)} here and {_plain(first)} in '{example}'; {remedy}"
            yield Finding(severity, "differs", where, message)


def _repeated(episode: Episode, ids: set[str], contents: dict[bytes, str]) -> Iterator[Finding]:
    if episode.id in ids:
        yield _error("id-repeats", "id", "another episode has this name already; rename one")
    ids.add(episode.id)
    digest = hashlib.sha256(episode.proprio.tobytes() + episode.actions.tobytes()).digest()
    first = contents.setdefault(digest, episode.id)
    if first != episode.id:
        yield _warning("copy", "source", f"it repeats '{first}' number for number; leave one out")


def _moves(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which columns change."""
    wide = values.astype(np.float64)
    moves: NDArray[np.bool_] = np.ptp(wide, axis=0) > _STILL * np.maximum(1, np.abs(wide).max(axis=0))
    return moves


def _shared(state: F64, action: F64) -> Iterator[tuple[F64, F64, F64]]:
    """State, action and change of the state for each column that changes in both."""
    n = min(state.shape[1], action.shape[1], _WIDE)
    for i in np.flatnonzero(_moves(state[:, :n]) & _moves(action[:, :n])):
        yield state[1:, i], action[:-1, i], np.diff(state[:, i])


def _looks_like_deltas(state: F64, action: F64) -> bool:
    """Decided by the first three columns, which are positions in every known layout."""
    votes = [
        _correlation(a, d) > 0.8 and _correlation(a, s) < 0.8
        for s, a, d in _shared(state[:, :3], action[:, :3])
        if len(d) >= 4
    ]
    return bool(votes) and 2 * sum(votes) > len(votes)


def _correlation(a: F64, b: F64) -> float:
    a, b = a - a.mean(), b - b.mean()
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths > 0 else 0.0


def _size(values: F64) -> float:
    return float(np.percentile(np.abs(values), 99))


def _few(items: Sequence[str], limit: int = 6) -> str:
    return ", ".join(items[:limit]) + (f" and {len(items) - limit} more" if len(items) > limit else "")


def _plain(fact: object) -> str:
    return (", ".join(map(str, fact)) or "nothing") if isinstance(fact, tuple) else str(fact)

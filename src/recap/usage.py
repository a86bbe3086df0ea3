"""Logs which demonstrations robots used and how episodes ended, and finds suspect demonstrations.

A log has one line of JSON for each chunk of actions, with its match, and one for the end of each episode
whose outcome the robot reports.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from logging import LogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import numpy as np

from recap.errors import DatasetError, InputError
from recap.types import Retrieval

MAX_BYTES, N_FILES = 64 * 2**20, 8  # of a log; then the oldest lines are dropped
ASTRAY = 0.05  # share of all (episode, demonstration) pairs that count as led astray
MIN_RUNS = 3  # episodes needed to judge a demonstration


@dataclass(frozen=True, slots=True)
class Use:
    """One chunk: its match, and how well the robot followed it."""

    episode_id: str
    t: int
    distance: float
    missed_by: float | None = None  # increase of the distance to the demonstration during the chunk


@dataclass
class Run:
    """One episode of a robot."""

    name: str
    uses: list[Use] = field(default_factory=list)
    success: bool | None = None  # None: not reported

    def add(self, episode_id: str, t: int, distance: float, off_course: float | None) -> None:
        """Add one chunk; `off_course` is the distance to the demonstration after the chunk before."""
        if self.uses and off_course is not None:
            last = self.uses[-1]
            self.uses[-1] = replace(last, missed_by=off_course - last.distance)
        self.uses.append(Use(episode_id, t, distance))


@dataclass(frozen=True, slots=True)
class Suspect:
    """Statistics of one demonstration: the episodes that used it, compared with all others."""

    episode_id: str
    n_runs: int  # episodes that used it
    n_astray: int  # of these, in how many the robot ended up far from the demonstration
    n_ended: int  # of these, how many have a known outcome
    n_failed: int
    p_astray: float  # p-value of n_astray
    p_failed: float
    accused: bool


class UsageLog:
    """Writes a log to files of bounded size."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._out = RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=N_FILES - 1, encoding="utf-8")

    def use(self, robot: str, run: int, step: int, **what: Any) -> None:
        """Log a chunk; `what` has the fields of `Use`, off_course, confidence, pool_version and held."""
        self._write({"robot": robot, "run": run, "step": step, **what})

    def outcome(self, robot: str, run: int, success: bool) -> None:
        self._write({"robot": robot, "run": run, "success": success})

    def close(self) -> None:
        self._out.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        known = {key: None if value != value else value for key, value in line.items()}  # JSON has no nan
        text = json.dumps({"time": now, **known}, allow_nan=False)
        self._out.handle(LogRecord("recap.usage", 20, "", 0, text, None, None))


def of_reply(match: Mapping[str, Any] | None, found: Retrieval | None) -> dict[str, Any]:
    """The fields of a log line for a retrieval; `match` refers to the recorded demonstration."""
    what: dict[str, Any] = dict(match or dict.fromkeys(("episode_id", "t", "distance")))
    for key in ("off_course", "confidence", "pool_version"):
        what[key] = None if found is None else getattr(found, key)
    return what


def read_runs(paths: Iterable[Path]) -> list[Run]:
    """Read the episodes of logs, oldest lines first."""
    runs: dict[tuple[str, int], Run] = {}
    for path in paths:
        if not path.is_file():
            raise InputError(f"there is no log {path}: recap serve --log {path} writes one")
        older = sorted(path.parent.glob(f"{path.name}.[0-9]"), key=lambda file: file.suffix, reverse=True)
        for file in (*older, path):
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    try:
                        _note(runs, json.loads(line))
                    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                        if line.endswith(b"\n"):  # otherwise the server is still writing this line
                            what = f"{file}, line {number} is no line of a log"
                            raise DatasetError(f"{what}: give what recap serve --log wrote") from None
    return [run for run in runs.values() if run.uses]


def _note(runs: dict[tuple[str, int], Run], line: Mapping[str, Any]) -> None:
    key = str(line["robot"]), int(line["run"])
    run = runs.setdefault(key, Run(f"{key[0]}#{key[1]}"))
    if "success" in line:
        run.success = bool(line["success"])
    elif line.get("episode_id") is not None:
        off = line.get("off_course")
        off = None if off is None else float(off)
        run.add(str(line["episode_id"]), int(line["t"]), float(line["distance"]), off)


def blame(runs: Sequence[Run], alpha: float = 0.05) -> list[Suspect]:
    """All demonstrations, most suspect first; at most a share `alpha` of the accused is expected to be sound.

    A demonstration is accused if it leads robots astray: during its chunks the distance to it grows unusually
    much, more often than by chance. An episode counts once per demonstration, because its chunks are not
    independent. Outcomes are reported but accuse nothing: a demonstration of a hard scene is used in episodes
    that fail anyway.
    """
    missed: dict[tuple[int, str], float] = {}
    for number, run in enumerate(runs):
        for name in {use.episode_id for use in run.uses}:
            off = [u.missed_by for u in run.uses if u.episode_id == name and u.missed_by is not None]
            if off:
                missed[number, name] = float(np.mean(off))
    limit = max(float(np.quantile([*missed.values()], 1 - ASTRAY)), 0.0) if missed else math.inf
    n_astray = sum(off > limit for off in missed.values())
    ended = [run for run in runs if run.success is not None]
    n_failed = sum(not run.success for run in ended)
    found = []
    for name in sorted({use.episode_id for run in runs for use in run.uses}):
        own = [off > limit for (_, whose), off in missed.items() if whose == name]
        used = [run for run in ended if any(use.episode_id == name for use in run.uses)]
        failed = sum(not run.success for run in used)
        astray = at_least(sum(own), len(own), n_astray, len(missed)) if len(own) >= MIN_RUNS else 1.0
        by_end = at_least(failed, len(used), n_failed, len(ended)) if used else 1.0
        n_runs = sum(any(use.episode_id == name for use in run.uses) for run in runs)
        found.append(Suspect(name, n_runs, sum(own), len(used), failed, astray, by_end, False))
    found.sort(key=lambda suspect: (suspect.p_astray, suspect.p_failed, suspect.episode_id))
    # Benjamini-Hochberg: the expected share of false accusations is at most alpha.
    ranks = [i for i, suspect in enumerate(found, 1) if suspect.p_astray <= alpha * i / len(found)]
    return [replace(suspect, accused=i < max(ranks, default=0)) for i, suspect in enumerate(found)]


def at_least(k: int, n: int, marked: int, total: int) -> float:
    """Probability of k or more marked in n drawn from a total with `marked`: Fisher's exact test."""
    ways = sum(math.comb(marked, i) * math.comb(total - marked, n - i) for i in range(k, min(n, marked) + 1))
    return ways / math.comb(total, n)

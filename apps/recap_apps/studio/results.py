"""Past evaluations, found by their eval_info.json: rates, curves over time, and reports."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recap.errors import InputError, RecapError
from recap.evaluation.run_directory import INFO, read_info
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.statistics import wilson
from recap.evaluation.summary import summarise
from recap.types import EpisodeResult

MAX_DEPTH = 4  # folders below the root that are searched
MAX_RUNS = 200
CURVE_STEP = 10  # control steps between two points of a curve
REPORTS = (".html",)


@dataclass
class Results:
    """The evaluations below a folder, cached while their files do not change."""

    root: Path
    _known: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = field(default_factory=dict)

    def list(self) -> list[dict[str, Any]]:
        """Evaluations, newest first; an unreadable one has an error text."""
        files = sorted(self._files(), key=lambda file: file.stat().st_mtime, reverse=True)
        return [self._read(file) for file in files[:MAX_RUNS]]

    def report(self, path: str) -> Path:
        """A report in the folder of an evaluation, by its path below the root."""
        root = self.root.resolve()
        file = (root / path).resolve()
        beside = file.suffix in REPORTS and (file.parent / INFO).is_file()
        if not file.is_relative_to(root) or not file.is_file() or not beside:
            raise InputError(f"there is no report {path!a}: the list of results names those there are")
        return file

    def _files(self) -> Iterator[Path]:
        root = str(self.root)
        for folder, inner, names in os.walk(root):
            if folder[len(root) :].count(os.sep) >= MAX_DEPTH:
                inner.clear()
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            if INFO in names:
                yield Path(folder) / INFO

    def _read(self, file: Path) -> dict[str, Any]:
        status = file.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        if file not in self._known or self._known[file][0] != stamp:
            self._known[file] = (stamp, self._summary(file))
        reports = sorted(p for p in file.parent.iterdir() if p.suffix in REPORTS and p.is_file())
        names = [p.relative_to(self.root).as_posix() for p in reports]
        return {**self._known[file][1], "reports": names, "time_s": status.st_mtime}

    def _summary(self, file: Path) -> dict[str, Any]:
        name = file.parent.relative_to(self.root).as_posix()
        try:
            spec, results = read_info(file)
            return {"name": name, **tell(spec, results)}
        except (RecapError, OSError) as error:
            return {"name": name, "error": " ".join(str(error).split())}
        except Exception as error:  # a user's own env may raise anything
            return {"name": name, "error": f"{type(error).__name__}: {' '.join(str(error).split())}"}


def tell(spec: EvalSpec, results: Sequence[EpisodeResult]) -> dict[str, Any]:
    """The values of an evaluation for a page."""
    summary = summarise(spec, results)
    valid = [result for result in results if result.outcome != "error"]
    thresholds = [threshold_key(threshold) for threshold in spec.thresholds]
    longest = max(map(spec.steps_of, spec.tasks))
    return {
        "agent": spec.agent.policy,
        "env": spec.env,
        "pusher": spec.options.get("pusher", ""),
        "block": spec.options.get("block", ""),
        "retrieval": spec.agent.retrieval,
        "pool": spec.pool,
        "n": len(results),
        "n_errors": summary.n_errors,
        "thresholds": thresholds,
        "tasks": [{"name": group.name, **group.to_json()} for group in summary.tasks],
        "groups": [{"name": group.name, **group.to_json()} for group in summary.groups],
        "curves": {threshold: _curve(valid, threshold, longest) for threshold in thresholds},
    }


def _curve(valid: Sequence[EpisodeResult], threshold: str, max_steps: int) -> list[list[float]]:
    """[step, share solved by then, low, high] with Wilson's interval at each step."""
    n = len(valid)
    if not n:
        return []
    firsts = [r.first_step[threshold] for r in valid]
    points = []
    for step in range(0, max_steps + 1, CURVE_STEP):
        k = sum(first is not None and first <= step for first in firsts)
        points.append([step, round(k / n, 4), *(round(bound, 4) for bound in wilson(k, n))])
    return points

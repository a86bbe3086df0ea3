"""Demonstrations that led robots astray, from the logs of a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recap.evaluation.statistics import wilson
from recap.usage import blame, read_runs
from recap_apps.studio.library import Library

MAX_ROWS = 200


def suspects(library: Library, logs: Sequence[Path], alpha: float = 0.05) -> dict[str, Any]:
    """Suspects that the library still has, worst first, with the evidence against each."""
    library.refresh()
    runs = read_runs(logs)
    known = {entry.id: entry for entry in library.entries}
    rows = []
    for one in blame(runs, alpha):
        entry = known.get(one.episode_id)
        if entry is None:
            continue
        failed = wilson(one.n_failed, one.n_ended).in_per_cent() if one.n_ended else ""
        rows.append({**asdict(one), "failed": failed, "quarantine": entry.quarantine, "task": entry.task})
    ended = [run for run in runs if run.success is not None]
    return {
        "rows": rows[:MAX_ROWS],
        "n": len(rows),
        "n_runs": len(runs),
        "n_ended": len(ended),
        "n_failed": sum(not run.success for run in ended),
    }

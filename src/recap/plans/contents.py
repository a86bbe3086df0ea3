"""The report's table of contents, from the plan: titles, order, labels and the paper's rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recap.evaluation.report_files import MANIFEST
from recap.plans.plan import EVALUATIONS, Evaluation, Part, Plan
from recap.plans.rollouts import is_finished
from recap.run_directory import read_json, write_whole


def write_contents(plan: Plan, out: Path) -> Path | None:
    """Write `evaluations/report.json` of what is finished, if anything is; parts of other plans stay."""
    folder = out / EVALUATIONS
    told = {}
    names: dict[str, list[str]] = {}
    for name, label in plan.labels.items():
        finished = [e for e in plan.evaluations_of(name) if is_finished(out, e)]
        names[name] = [e.name for e in finished]
        for i, evaluation in enumerate(finished):
            told[evaluation.name] = {"label": _label(label, name, evaluation, len(finished))}
            if i == 0 and name in plan.papers:
                told[evaluation.name]["paper"] = plan.papers[name]
    if not told:
        return None
    parts = [body for part in plan.parts for body in _bodies(part, plan, names)]
    file = folder / MANIFEST
    old: dict[str, Any] = read_json(file) if file.exists() else {}
    ours = {part["title"] for part in parts}
    kept = [part for part in old.get("parts", []) if part["title"] not in ours]
    body = {
        "title": old.get("title") or plan.title or "Evaluations",
        "lead": plan.lead if not kept else old.get("lead", ""),
        "runs": {**old.get("runs", {}), **told},
        "parts": [*kept, *parts],
    }
    write_whole(file, json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    return file


def _bodies(part: Part, plan: Plan, finished: Mapping[str, list[str]]) -> Iterator[dict[str, Any]]:
    """The part with every first training seed; then, where there are more, the others."""
    firsts: list[str] = []
    others: list[str] = []
    for name in part.names:
        seeds = [run for run in plan.runs if run.family == name]
        later = {e.name for run in seeds[1:] for e in run.evaluations}
        firsts += [e for e in finished[name] if e not in later]
        others += [e for e in finished[name] if e in later]
    reference = next(iter(finished.get(part.reference or "", [])), None)
    for title, runs in ((part.title, firsts), (f"{part.title}: more training seeds", others)):
        if runs:
            body: dict[str, Any] = {"title": title, "runs": runs, "text": part.text}
            yield body if reference is None else {**body, "reference": reference}


def _label(label: str, name: str, evaluation: Evaluation, n: int) -> str:
    """Its family's; with seed and title, where there are several."""
    rest = evaluation.name.removeprefix(f"{name}-")
    if n == 1 or rest == evaluation.name:
        return label
    seed, _, title = rest.partition("-")
    return f"{label}, seed {seed}" if title in ("", "all") else f"{label}, seed {seed}, {title}"

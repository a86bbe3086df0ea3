"""The report's table of contents, from the plan: titles, order, labels and the paper's rows."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from recap.run_directory import read_json, write_whole
from recap_research.plans.plan import EVALUATIONS, Evaluation, Part, Plan
from recap_research.plans.rollouts import is_finished
from recap_research.report.files import MANIFEST


def write_contents(plan: Plan, out: Path) -> Path | None:
    """Write `evaluations/report.json` of what is finished, if anything is; parts of other plans stay."""
    folder = out / EVALUATIONS
    told = {}
    for name, label in plan.labels.items():
        finished = [e for e in plan.evaluations_of(name) if is_finished(out, e)]
        for i, evaluation in enumerate(finished):
            told[evaluation.name] = {"label": _label(label, name, evaluation, len(finished))}
            if i == 0 and name in plan.papers:
                told[evaluation.name]["paper"] = plan.papers[name]
    if not told:
        return None
    bodies = [_body(part, plan, told) for part in plan.parts]
    parts = [body for body in bodies if body is not None]
    file = folder / MANIFEST
    old: dict[str, Any] = read_json(file) if file.exists() else {}
    ours = {part["title"] for part in parts}
    kept = [part for part in old.get("parts", []) if part["title"] not in ours]
    body = {
        **old,
        "title": "Evidence" if kept else plan.title or "Evaluations",
        "lead": "" if kept else plan.lead,
        "runs": {**old.get("runs", {}), **told},
        "parts": [*kept, *parts],
    }
    write_whole(file, json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    return file


def _body(part: Part, plan: Plan, finished: Collection[str]) -> dict[str, Any] | None:
    """The part with every first training seed; where there are more, with all of them by recipe too."""
    first_seeds = {run.family: run.name for run in reversed(plan.runs)}
    later = {e.name for run in plan.runs if first_seeds[run.family] != run.name for e in run.evaluations}
    families = {
        name: [e.name for e in plan.evaluations_of(name) if e.name in finished] for name in part.names
    }
    firsts = [name for names in families.values() for name in names if name not in later]
    if not firsts:
        return None
    body: dict[str, Any] = {"title": part.title, "runs": firsts, "text": part.text}
    references = [] if part.reference is None else plan.evaluations_of(part.reference)
    reference = next((e.name for e in references if e.name in finished), None)
    if reference is not None:
        body["reference"] = reference
    if later & {name for names in families.values() for name in names}:
        body["families"] = [
            {"label": plan.labels[name.partition("/")[0]], "runs": names}
            for name, names in families.items()
            if names
        ]
    return body


def _label(label: str, name: str, evaluation: Evaluation, n: int) -> str:
    """Its family's; with seed and title, where there are several."""
    rest = evaluation.name.removeprefix(f"{name}-")
    if n == 1 or rest == evaluation.name:
        return label
    seed, _, title = rest.partition("-")
    return f"{label}, seed {seed}" if title in ("", "all") else f"{label}, {title}, seed {seed}"

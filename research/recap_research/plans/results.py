"""What a plan came to, as one table: success over training seeds, beside what it cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recap.evaluation.run_directory import read_info
from recap.evaluation.runner import WITHOUT_POOL
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.run_directory import write_whole
from recap.training.data import demonstrations, where
from recap_research.plans.ledger import Ledger
from recap_research.plans.plan import EVALUATIONS, Evaluation, Part, Plan
from recap_research.plans.pools import seconds_of
from recap_research.plans.rollouts import is_finished
from recap_research.plans.settings import as_markdown, compare_settings
from recap_research.training_seeds import Rolled, gain_of, share_of

RESULTS = "results"
GROUPS = ("seen", "unseen")


def write_results(plan: Plan, out: Path, ledger: Ledger) -> list[dict[str, Any]]:
    """Write `results/TITLE.json` and `.md`: a row for each family or agent and evaluation of it."""
    rows = [row for name in plan.labels for row in _rows(plan, name, out, ledger)]
    folder = out / RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    stem = "-".join(plan.title.lower().split()) or "plan"
    write_whole(folder / f"{stem}.json", json.dumps({"rows": rows}, indent=1, ensure_ascii=False) + "\n")
    write_whole(folder / f"{stem}.md", "\n".join([*as_table(rows), *_details(plan, out)]) + "\n")
    return rows


def _details(plan: Plan, out: Path) -> Iterable[str]:
    """For each part the gains over its reference, and what its trained rows have in common."""
    for part in plan.parts:
        for words, found in (
            ("gains", list(gains(plan, part, out))),
            ("settings", compare_settings(plan, part.names)),
        ):
            if found:
                yield from ("", f"{part.title}: {words}", "", as_markdown(found))


def _rows(plan: Plan, name: str, out: Path, ledger: Ledger) -> Iterable[dict[str, Any]]:
    """One for each evaluation that all seeds share."""
    titles: dict[str, list[Evaluation]] = {}
    families = {e.name: run.name for run in plan.runs for e in run.evaluations}
    for evaluation in plan.evaluations_of(name):
        if is_finished(out, evaluation):
            own = families.get(evaluation.name, evaluation.name)
            titles.setdefault(evaluation.name.removeprefix(own).lstrip("-"), []).append(evaluation)
    for title, evaluations in titles.items():
        spec = evaluations[0].spec
        runs = [families[e.name] for e in evaluations if e.name in families]
        costs = [ledger.seconds_of(run) for run in runs]
        known = [row for row in ledger.rows() if runs and row.get("run") == runs[0]]
        success: dict[str, Any] = {}
        rolled = [read_info(out / EVALUATIONS / e.name) for e in evaluations]
        for group in GROUPS:
            for threshold in map(threshold_key, spec.thresholds):
                share = share_of(rolled, group, threshold)
                if share is not None:
                    success[f"{group} > {threshold}"] = {
                        "models": share.models,
                        "n": share.n,
                        "mean": share.mean,
                        "interval": share.interval,
                        "text": str(share),
                    }
        yield {
            "name": name,
            "label": plan.labels[name],
            "evaluation": title,
            "seeds": len(evaluations),
            "success": success,
            "target_demonstrations_s": known[-1].get("demonstrations_s") if known else None,
            "pool_demonstrations_s": _pool_seconds(plan, name, spec),
            "gpu_s": _mean([c["compile_s"] + c["training_s"] for c in costs if c]),
            "training_s": _mean([c["training_s"] for c in costs if c]),
        }


def gains(plan: Plan, part: Part, out: Path) -> Iterable[list[str]]:
    """Rows of a table: each family of the part less its reference on the same starts, with 95 % intervals."""
    if part.reference is None:
        return
    base = _finished(plan, part.reference, out)
    thresholds = [threshold_key(t) for t in plan.evaluations_of(part.reference)[0].spec.thresholds]
    columns = [(group, threshold) for group in GROUPS for threshold in thresholds]
    rows = []
    for name in part.names:
        rolled = _finished(plan, name, out) if name != part.reference else []
        found = [gain_of(rolled, base, group, threshold) for group, threshold in columns]
        if any(gain is not None for gain in found):
            cells = ["–" if gain is None else str(gain) for gain in found]
            rows.append([plan.labels[name.partition("/")[0]], str(len(rolled)), *cells])
    if rows:
        label = plan.labels[part.reference.partition("/")[0]]
        yield [f"less {label} ({len(base)})", "seeds", *(f"{g} > {t}, points" for g, t in columns)]
        yield from rows


def as_table(rows: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Markdown."""
    keys = list(dict.fromkeys(key for row in rows for key in row["success"]))
    head = ["", "seeds", *(f"{key}, %" for key in keys), "robot's demonstrations, s", "pool's, s", "GPU, s"]
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join("---" for _ in head) + " |"
    for row in rows:
        several = len({r["evaluation"] for r in rows if r["name"] == row["name"]}) > 1
        label = f"{row['label']}, {row['evaluation']}" if several else row["label"]
        success = [row["success"][key]["text"] if key in row["success"] else "–" for key in keys]
        costs = (row["target_demonstrations_s"], row["pool_demonstrations_s"], row["gpu_s"])
        cells = [label, str(row["seeds"]), *success, *("–" if c is None else f"{c:.0f}" for c in costs)]
        yield "| " + " | ".join(cells) + " |"


def _finished(plan: Plan, name: str, out: Path) -> list[Rolled]:
    return [read_info(out / EVALUATIONS / e.name) for e in plan.evaluations_of(name) if is_finished(out, e)]


def _pool_seconds(plan: Plan, name: str, spec: EvalSpec) -> float | None:
    """Of the pool that is looked into at test time, or learned from instead."""
    config = next((run.config for run in plan.runs if run.family == name), None)
    if config is not None and config.co_training:
        return round(seconds_of(where(demonstrations(config.pool), config.pool_where)), 1)
    retrieves = spec.agent.policy not in WITHOUT_POOL if config is None else config.policy.retrieval
    place = spec.pool or spec.suite.default_pool
    return round(seconds_of(demonstrations(place)), 1) if retrieves and place is not None else None


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 1) if values else None

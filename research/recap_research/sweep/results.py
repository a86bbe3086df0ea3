"""The results of a sweep: a row for each family and agent, and the contents of its report."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from recap.evaluation.run_directory import read_info
from recap.evaluation.runner import WITHOUT_POOL
from recap.evaluation.spec import threshold_key
from recap.run_directory import read_json, write_whole
from recap.training.config import TrainConfig
from recap.training.data import demonstrations, spread, where
from recap_research.report.files import MANIFEST
from recap_research.sweep.pools import seconds_of
from recap_research.sweep.sweep import EVALUATIONS, Evaluation, Part, Sweep
from recap_research.training_seeds import share_of

RESULTS, SECONDS = "results", "seconds.jsonl"
GROUPS = ("seen", "unseen")


def note_seconds(sweep: Sweep, run: str, seconds: float) -> None:
    """Add the duration of a training, or of a part of it."""
    with (sweep.out / SECONDS).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"run": run, "seconds": round(seconds, 1)}) + "\n")


def write_results(sweep: Sweep) -> None:
    """Write `results/TITLE.json` with a row for each evaluation, and the contents of the report."""
    if not sweep.out.exists():
        return
    rows = [row for name in sweep.labels for row in _rows(sweep, name)]
    stem = "-".join(sweep.title.lower().split())
    text = json.dumps({"rows": rows}, indent=1, ensure_ascii=False) + "\n"
    write_whole(sweep.out / RESULTS / f"{stem}.json", text)
    _write_contents(sweep)


def _rows(sweep: Sweep, name: str) -> Iterable[dict[str, Any]]:
    """One row for each evaluation that all seeds have."""
    titles: dict[str, list[Evaluation]] = {}
    families = {e.name: run for run in sweep.runs for e in run.evaluations}
    for evaluation in sweep.finished_of(name):
        own = families[evaluation.name].name if evaluation.name in families else evaluation.name
        titles.setdefault(evaluation.name.removeprefix(own).lstrip("-"), []).append(evaluation)
    spent = _seconds(sweep)
    for title, evaluations in titles.items():
        runs = [families[e.name] for e in evaluations if e.name in families]
        config = runs[0].config if runs else None
        rolled = [read_info(sweep.folder(e)) for e in evaluations]
        success: dict[str, Any] = {}
        for group in GROUPS:
            for threshold in map(threshold_key, evaluations[0].spec.thresholds):
                share = share_of(rolled, group, threshold)
                if share is not None:
                    success[f"{group} > {threshold}"] = {
                        "models": share.models,
                        "n": share.n,
                        "mean": share.mean,
                        "interval": share.interval,
                        "text": str(share),
                    }
        trained = [spent[run.name] for run in runs if run.name in spent]
        yield {
            "name": name,
            "label": sweep.labels[name],
            "evaluation": title,
            "seeds": len(evaluations),
            "success": success,
            "target_demonstrations_s": None if config is None else _target_seconds(config),
            "pool_demonstrations_s": _pool_seconds(config, evaluations[0]),
            "gpu_s": round(sum(trained) / len(trained), 1) if trained else None,
        }


def _seconds(sweep: Sweep) -> dict[str, float]:
    """The duration of each training over all its parts; an incomplete last line is ignored."""
    totals: dict[str, float] = {}
    file = sweep.out / SECONDS
    for line in file.read_text("utf-8").splitlines() if file.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        totals[row["run"]] = totals.get(row["run"], 0.0) + float(row["seconds"])
    return totals


def _target_seconds(config: TrainConfig) -> float:
    shown = spread(where(demonstrations(config.target), config.target_where), config.n_demonstrations)
    return round(seconds_of(shown), 1)


def _pool_seconds(config: TrainConfig | None, evaluation: Evaluation) -> float | None:
    """The duration of the pool that is used at test time, or for co-training."""
    spec = evaluation.spec
    if config is not None and config.co_training:
        return round(seconds_of(where(demonstrations(config.pool), config.pool_where)), 1)
    retrieves = spec.agent.policy not in WITHOUT_POOL if config is None else config.policy.retrieval
    place = spec.pool or spec.suite.default_pool
    return round(seconds_of(demonstrations(place)), 1) if retrieves and place is not None else None


def _write_contents(sweep: Sweep) -> None:
    """Write `evaluations/report.json` with the finished evaluations; parts of other sweeps are kept."""
    runs: dict[str, dict[str, str]] = {}
    for name, label in sweep.labels.items():
        finished = sweep.finished_of(name)
        for i, evaluation in enumerate(finished):
            runs[evaluation.name] = {"label": _label(label, name, evaluation, len(finished))}
            if i == 0 and name in sweep.papers:
                runs[evaluation.name]["paper"] = sweep.papers[name]
    if not runs:
        return
    bodies = [_part(part, sweep, runs) for part in sweep.parts]
    parts = [body for body in bodies if body is not None]
    file = sweep.out / EVALUATIONS / MANIFEST
    old: dict[str, Any] = read_json(file) if file.exists() else {}
    ours = {part["title"] for part in parts}
    kept = [part for part in old.get("parts", []) if part["title"] not in ours]
    body = {
        **old,
        "title": "Evidence" if kept else sweep.title,
        "lead": "" if kept else sweep.lead,
        "runs": {**old.get("runs", {}), **runs},
        "parts": [*kept, *parts],
    }
    write_whole(file, json.dumps(body, indent=1, ensure_ascii=False) + "\n")


def _part(part: Part, sweep: Sweep, finished: Collection[str]) -> dict[str, Any] | None:
    """The part with the first training seed of each row, plus all seeds by recipe if there are several."""
    first_seeds = {run.family: run.name for run in reversed(sweep.runs)}
    later = {e.name for run in sweep.runs if first_seeds[run.family] != run.name for e in run.evaluations}
    families = {
        name: [e.name for e in sweep.evaluations_of(name) if e.name in finished] for name in part.names
    }
    firsts = [name for names in families.values() for name in names if name not in later]
    if not firsts:
        return None
    body: dict[str, Any] = {"title": part.title, "runs": firsts, "text": part.text}
    references = [] if part.reference is None else sweep.evaluations_of(part.reference)
    reference = next((e.name for e in references if e.name in finished), None)
    if reference is not None:
        body["reference"] = reference
    if later & {name for names in families.values() for name in names}:
        body["families"] = [
            {"label": sweep.labels[name.partition("/")[0]], "runs": names}
            for name, names in families.items()
            if names
        ]
    return body


def _label(label: str, name: str, evaluation: Evaluation, n: int) -> str:
    """The label of the family, with seed and title if there are several."""
    rest = evaluation.name.removeprefix(f"{name}-")
    if n == 1 or rest == evaluation.name:
        return label
    seed, _, title = rest.partition("-")
    return f"{label}, seed {seed}" if title in ("", "all") else f"{label}, {title}, seed {seed}"

"""The causal effect of retrieved tokens: the same starts with these tokens masked, and controls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recap.errors import InputError
from recap.evaluation.run_directory import Key, read_info
from recap.evaluation.runner import evaluate
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.statistics import rate_interval, seed_table, wilson
from recap.evaluation.summary import succeeded
from recap.types import EpisodeResult
from recap_worlds.pusht.tasks import SEEN_ANGLES, angle_key

SUBSETS = ("successes", "failures")


@dataclass(frozen=True)
class Condition:
    """One change to a rollout. Controls show the effect of any change."""

    name: str
    mask: str | None = None
    noise_seed: int = 0

    @property
    def control(self) -> bool:
        """True if retrieved tokens are not masked."""
        return self.mask is None or self.mask.startswith("sham")

    def of(self, spec: EvalSpec) -> EvalSpec:
        """The spec with this condition."""
        return spec.with_agent(mask=self.mask, noise_seed=spec.agent.noise_seed + self.noise_seed)


def conditions(layers: Sequence[int]) -> list[Condition]:
    """Other noise; then for each layer and all layers, masked retrieved tokens and as many other tokens."""
    found = [Condition("other noise", noise_seed=1)]
    for layer in [*map(str, layers), *(["all"] if len(layers) > 1 else [])]:
        words = "all layers" if layer == "all" else f"layer {layer}"
        found += [
            Condition(f"retrieved blocked, {words}", f"retrieved@{layer}"),
            Condition(f"sham, {words}", f"sham@{layer}"),
        ]
    return found


@dataclass(frozen=True)
class Subsets:
    """Episodes of a baseline run, up to the same number for each angle."""

    threshold: str
    keys: dict[str, list[Key]]  # subset -> its episodes
    available: dict[str, dict[str, int]]  # subset -> angle -> number of candidates

    def all(self) -> list[Key]:
        """The episodes of both subsets."""
        return [key for subset in SUBSETS for key in self.keys[subset]]


def choose_subsets(
    results: Sequence[EpisodeResult], threshold: float, per_angle: int, *, unseen_only: bool = True
) -> Subsets:
    """Up to `per_angle` successes and failures of each angle, by seed, without successes at the start."""
    key = threshold_key(threshold)
    seen = {angle_key(a) for a in SEEN_ANGLES} if unseen_only else set()
    valid = [r for r in results if r.outcome != "error" and r.task not in seen and r.first_step[key] != 0]
    chosen: dict[str, list[Key]] = {subset: [] for subset in SUBSETS}
    available: dict[str, dict[str, int]] = {subset: {} for subset in SUBSETS}
    for task in dict.fromkeys(r.task for r in valid):
        for subset in SUBSETS:
            fitting = [r for r in valid if r.task == task and succeeded(r, key) == (subset == "successes")]
            available[subset][task] = len(fitting)
            chosen[subset] += [(r.task, r.seed) for r in sorted(fitting, key=lambda r: r.seed)[:per_angle]]
    if not chosen["successes"] and not chosen["failures"]:
        raise InputError("the run has no episodes to choose from at these angles: evaluate unseen angles")
    return Subsets(key, chosen, available)


def run_masking(
    baseline: Path,
    layers: Sequence[int],
    out: Path,
    *,
    threshold: float = 0.85,
    per_angle: int = 5,
    workers: int = 1,
    batch_size: int = 8,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run the chosen episodes again under every condition, each in its own folder in `out`. Resumable."""
    spec, results = read_info(baseline)
    subsets = choose_subsets(results, threshold, per_angle)
    rows = []
    for condition in conditions(layers):
        found: dict[Key, EpisodeResult] = {}
        # A run has the same seeds at every angle, so each angle is a separate run.
        for task in dict.fromkeys(task for task, _ in subsets.all()):
            seeds = tuple(sorted({seed for t, seed in subsets.all() if t == task}))
            one = replace(condition.of(spec), tasks=(task,), seeds=seeds)
            name = condition.name.replace(",", "").replace(" ", "-")
            place = out / name / f"angle{task}"
            evaluate(one, place, workers=workers, batch_size=batch_size)
            found |= {(r.task, r.seed): r for r in read_info(place)[1]}
        rows.append(condition_row(condition, subsets, found))
        say(f"{condition.name}: " + ", ".join(f"{s} {_told(rows[-1][s])}" for s in SUBSETS))
    return {
        "kind": "masking",
        "threshold": subsets.threshold,
        "layers": list(layers),
        "available": subsets.available,
        "chosen": {s: [f"{task}:{seed}" for task, seed in keys] for s, keys in subsets.keys.items()},
        "rows": rows,
    }


def condition_row(condition: Condition, subsets: Subsets, found: dict[Key, EpisodeResult]) -> dict[str, Any]:
    """The rate of successes that stay one and of failures that become one, by angle and overall."""
    row: dict[str, Any] = {"name": condition.name, "mask": condition.mask, "control": condition.control}
    for subset in SUBSETS:
        keys = [k for k in subsets.keys[subset] if k in found and found[k].outcome != "error"]
        outcomes = {key: succeeded(found[key], subsets.threshold) for key in keys}
        tasks = dict.fromkeys(task for task, _ in keys)
        row[subset] = _rate(outcomes) | {
            "by_angle": {t: _rate({k: v for k, v in outcomes.items() if k[0] == t}) for t in tasks},
            "errors": len(subsets.keys[subset]) - len(keys),
        }
    return row


def _rate(outcomes: dict[Key, bool]) -> dict[str, Any]:
    k, n = sum(outcomes.values()), len(outcomes)
    several = len({task for task, _ in outcomes}) > 1  # starts repeat across angles
    won = {key: float(v) for key, v in outcomes.items()}
    low, high = rate_interval(seed_table(won)[None]) if several else wilson(k, n)
    return {"successes": k, "n": n, "rate": k / n if n else None, "low": low, "high": high}


def _told(rate: dict[str, Any]) -> str:
    return f"{rate['successes']}/{rate['n']}"

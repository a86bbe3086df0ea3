"""Experiments on a trained policy, each with one command, resumable; `recap report` makes a page of them.

    python research/benchmarks/evidence.py attention --policy pusht-nano --seeds 500:510 --out runs/evidence
    python research/benchmarks/evidence.py masking --policy pusht-nano --out runs/evidence --threshold 0.95
    python research/benchmarks/evidence.py failures --policy pusht-nano --out runs/evidence --threshold 0.95
    python research/benchmarks/evidence.py gate --policy pusht-nano --seeds 500:510 --out runs/evidence
    python research/benchmarks/evidence.py progression --policy pusht-nano --seeds 500:510 --out runs/evidence
    recap report runs/evidence --out report.html

`--policy` is an included policy, a checkpoint's path, or `replay`. Masking and failures use the results of
attention. Seeds 42…91 are for headline results only.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recap.assembly import AgentConfig
from recap.cli.one_line import run_script
from recap.cli.ranges import parse_numbers, parse_seeds
from recap.cli.terminal import progress_bar
from recap.errors import InputError
from recap.evaluation.agents import Trial
from recap.evaluation.run_directory import INFO
from recap.evaluation.runner import evaluate
from recap.evaluation.settings import seeds_text
from recap.evaluation.spec import EvalSpec, threshold_key
from recap.evaluation.summary import succeeded
from recap.pictures import write_png
from recap.pool.opening import open_pool
from recap.run_directory import read_json, write_whole
from recap_research.analysis.attention import summarise_attention
from recap_research.analysis.failures import analyse_failures, label, oracle_matches
from recap_research.analysis.masking import run_masking
from recap_research.analysis.overlays import attention_strip
from recap_research.analysis.traces import read_traces, trace
from recap_worlds.pusht.tasks import SEEN_ANGLES, angle_key

CONFIDENCES = (0.0, 0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True)
class Task:
    """The options of every experiment."""

    spec: EvalSpec
    out: Path
    options: argparse.Namespace

    @property
    def command(self) -> str:
        """The command line."""
        return shlex.join(["python", "research/benchmarks/evidence.py", *sys.argv[1:]])

    def run(self, spec: EvalSpec, name: str) -> Path:
        """Run or resume an evaluation."""
        place = self.out / name
        with progress_bar(name) as progress:
            evaluate(spec, place, workers=self.options.workers, progress=progress)
        return place

    def traced(self, spec: EvalSpec, name: str, *, probe: bool = False) -> Path:
        """Run or resume an evaluation with traces."""
        place = self.out / name
        with progress_bar(name) as progress:
            trace(spec, place, probe=probe, workers=self.options.workers, progress=progress)
        return place

    def write(self, file: Path, body: dict[str, Any], run: Path | None = None) -> None:
        """Write a result with its source."""
        origin: dict[str, Any] = {"command": self.command, "label": self.spec.agent.policy}
        if run is not None:
            info = read_json(run / INFO)
            found = info.get("provenance", {})
            pool = info["config"]["pool"] or "the standard pool"
            origin |= {
                "seeds": seeds_text(info["config"]["seeds"]),
                "pool": f"{pool}, version {found.get('pool_version')}",
                "checkpoint": found.get("checkpoint"),
            }
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps({**body, **origin}, indent=1) + "\n")
        print(f"Results: {file}")


def attention(task: Task) -> None:
    """Trace with the probe, find the layers, draw one rollout."""
    run = task.traced(task.spec, "attention/run", probe=True)
    spec, results, traces = read_traces(run)
    probed = [t.figures for t in traces.values() if t.figures is not None]
    body = {"kind": "attention", **summarise_attention(probed)}
    layers = {axis: int(peak["layer"]) for axis, peak in body["axes"].items() if peak is not None}
    key = threshold_key(spec.thresholds[0])
    won = next((r for r in results if r.outcome != "error" and succeeded(r, key)), results[0])
    if layers:
        strip = attention_strip(spec, Trial(won.task, won.seed), layers)
        body["overlays"] = [f"goal_{won.task}_seed_{won.seed}.png"]
        write_png(task.out / "attention" / body["overlays"][0], strip)
    task.write(task.out / "attention" / "attention.json", body, run)
    for axis, peak in body["axes"].items():
        print(axis, peak)


def _found(task: Task) -> dict[str, Any]:
    """The result of `attention`."""
    file = task.out / "attention" / "attention.json"
    if not file.exists():
        raise InputError(f"{file} is not there: run attention first, with the same --out")
    body: dict[str, Any] = read_json(file)
    return body


def _found_layers(task: Task) -> dict[str, int]:
    body = _found(task)
    return {axis: int(peak["layer"]) for axis, peak in body["axes"].items() if peak is not None}


def masking(task: Task) -> None:
    """Mask retrieved tokens at the layers with peaks, or at every layer."""
    wanted = task.options.layers
    baseline = task.out / "attention" / "run"
    if wanted == "peaks":
        layers = sorted(set(_found_layers(task).values()))
    elif wanted == "each":
        layers = list(range(len(next(iter(_found(task)["mass"].values())))))
    else:
        layers = [int(n) for n in wanted.split(",") if n.isdecimal()]
        if len(layers) < len(wanted.split(",")):
            raise InputError(f"unknown layers '{wanted}': give peaks, each, or numbers such as 2,4")
    body = run_masking(
        baseline,
        layers,
        task.out / "masking",
        threshold=task.options.threshold,
        per_angle=task.options.per_angle,
        workers=task.options.workers,
    )
    task.write(task.out / "masking" / "masking.json", body, baseline)


def failures(task: Task) -> None:
    """Clusters, retrieval and attention at failure, and the gain of an oracle match."""
    baseline = task.out / "attention" / "run"
    spec, results, traces = read_traces(baseline)
    body = analyse_failures(results, traces, task.options.threshold, _found_layers(task))
    if task.options.matches > 1:
        episodes = label(results, traces, task.options.threshold)
        lost = [e for e in episodes if e.cluster != "success"]
        won = [e for e in episodes if e.cluster == "success"][: max(3, len(lost))]
        with progress_bar("oracle") as progress:
            body["oracle"] = oracle_matches(
                spec,
                [*lost, *won],
                n_matches=task.options.matches,
                every=task.options.every,
                progress=progress,
            )
    task.write(task.out / "failures" / "failures.json", body, baseline)
    print(body["total"], body.get("oracle", {}).get("clusters"))


def gate(task: Task) -> None:
    """Stop for good when confidence falls below a threshold: success and abstention."""
    points: list[dict[str, Any]] = []
    for least in CONFIDENCES:
        reaction = "stop" if least else "ignore"
        spec = task.spec.with_agent(min_confidence=least, reaction=reaction)
        run = task.traced(spec, f"gate/confidence-{least:g}")
        _, results, traces = read_traces(run)
        gone = [(r, traces[r.task, r.seed].abstained) for r in results if r.outcome != "error"]
        acted = [r for r, abstained in gone if not abstained]
        key = threshold_key(spec.thresholds[0])
        more = {"abstained": sum(a for _, a in gone) / len(gone)}
        if acted:
            more[f"> {key} of the rest"] = sum(succeeded(r, key) for r in acted) / len(acted)
        points.append({"value": least, "run": run.name, **more})
    text = (
        "The agent stops for good at its first look whose confidence is below the threshold. Abstained: "
        "episodes in which it did; the rest acted to the end. An episode has dozens of looks, so that a rare "
        "alarm at a look is a frequent one in an episode."
    )
    body = {"kind": "sweep", "title": "Stopping when unsure", "x": "least confidence", "text": text}
    task.write(task.out / "gate" / "sweep.json", {**body, "points": points})


def snapshots() -> list[tuple[str, set[float]]]:
    """The goals of five nested snapshots of the pool."""
    by_30 = {float(a) for a in range(-60, 61, 30)}
    by_15 = {float(a) for a in range(-60, 61, 15)}
    by_10 = {float(a) for a in range(-60, 61, 10)}
    by_5 = {float(a) for a in range(-60, 61, 5)}
    seen = set(SEEN_ANGLES)
    return [
        ("training goals only", seen),
        ("and every 30°", seen | by_30),
        ("every 15°", seen | by_15),
        ("and every 10°", seen | by_15 | by_10),
        ("every 5°", by_5),
    ]


def progression(task: Task) -> None:
    """One live pool that grows; the policy is evaluated after each addition, and each is a tag."""
    from recap.pool.store import Pool  # the other experiments do not need Lance

    source = open_pool("pusht-25x40").view()
    place = task.out / "progression" / "pool"
    pool = Pool.open(place) if place.exists() else Pool.create(place)
    names = []
    first = task.run(task.spec.with_agent(matching="none"), "progression/none")
    labels = {f"progression/{first.name}": {"label": "nothing retrieved"}}
    for number, (words, angles) in enumerate(snapshots()):
        name = f"progression/{number}"
        names.append(name)
        labels[name] = {"label": words}
        if (task.out / name / INFO).exists():
            continue
        there = set(pool.ids())
        wanted = [source.episode(i) for i in source.episode_ids if i not in there]
        new = [e for e in wanted if e.goal is not None and round(float(np.degrees(e.goal[2])), 3) in angles]
        if new:
            pool.add(new)
        if f"snapshot-{number}" not in pool.tags():
            pool.tag(f"snapshot-{number}")
        task.run(replace(task.spec, pool=str(place)), name)
    manifest = task.out / "report.json"
    body = read_json(manifest) if manifest.exists() else {}
    body["runs"] = {**body.get("runs", {}), **labels}
    body["progression"] = {"title": "A growing pool", "first": "progression/none", "snapshots": names}
    write_whole(manifest, json.dumps(body, indent=1) + "\n")


EXPERIMENTS: dict[str, Callable[[Task], None]] = {
    "attention": attention,
    "masking": masking,
    "failures": failures,
    "gate": gate,
    "progression": progression,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one experiment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--policy", default="pusht-nano", help="a shipped name, a path, or replay")
    parser.add_argument("--retrieval", default="", help="of replay, such as contact; a policy has its own")
    parser.add_argument("--pusher", default="triangle")
    parser.add_argument("--angles", default="-60:60:15")
    parser.add_argument("--seeds", default="500:510")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--threshold", type=float, default=0.85, help="success, for masking and failures")
    parser.add_argument("--layers", default="peaks", help="to mask: peaks, each, or 2,4")
    parser.add_argument("--per-angle", type=int, default=5, help="successes and failures to mask")
    parser.add_argument("--matches", type=int, default=8, help="the oracle chooses among; 1: no oracle")
    parser.add_argument("--every", type=int, default=4, help="look that the oracle is asked at")
    options = parser.parse_args(arguments)
    spec = EvalSpec(
        AgentConfig(options.policy, retrieval=options.retrieval, device=options.device),
        "pusht",
        {"pusher": options.pusher},
        tasks=tuple(angle_key(angle) for angle in parse_numbers(options.angles)),
        seeds=parse_seeds(options.seeds),
    )
    EXPERIMENTS[options.experiment](Task(spec, options.out, options))


if __name__ == "__main__":
    run_script(main)

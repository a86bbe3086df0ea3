"""A small, complete folder of made runs and analyses for the tests of the report."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recap.assembly import AgentConfig
from recap.evaluation.run_directory import open_run
from recap.evaluation.spec import EvalSpec
from recap.evaluation.summary import summarise
from recap.pictures import write_png
from recap.types import EpisodeResult
from recap.video import write_video
from recap_research.analysis.attention import Figures, summarise_attention
from recap_research.analysis.failures import analyse_failures
from recap_research.analysis.masking import choose_subsets, condition_row, conditions
from recap_research.analysis.traces import Look, Trace

GOALS = ("-45", "-30", "0", "+30", "+45")
SEEDS = tuple(range(500, 510))
HOSTILE = '<script>alert("x")</script> & "quotes"'


def pusht(policy: str, options: Mapping[str, str] | None = None, **settings: Any) -> EvalSpec:
    """An evaluation on PushT."""
    return EvalSpec(AgentConfig(policy), "pusht", options or {}, **settings)


def results(spec: EvalSpec, rate: float, seed: int) -> list[EpisodeResult]:
    """Results with successes at about this rate."""
    rng = np.random.default_rng(seed)
    found = []
    for trial in spec.trials():
        best = float(rng.choice([0.97, 0.9, rng.uniform(0, 0.8)], p=[0.6 * rate, 0.4 * rate, 1 - rate]))
        steps = {key: int(rng.integers(40, 250)) if best > float(key) else None for key in ("0.85", "0.95")}
        won = steps["0.95"] is not None
        outcome = "success" if won else "failure"
        found.append(EpisodeResult(trial.task, trial.seed, outcome, 300, {"coverage": best}, steps))
    return found


def write_run(path: Path, spec: EvalSpec, episodes: list[EpisodeResult], **origin: Any) -> None:
    """Write a run directory as `recap eval` does."""
    with open_run(path, spec) as run:
        for one in episodes:
            run.append(one)
        run.write_info(summarise(spec, run.sorted_results()).to_json(), origin)


def trace_of(one: EpisodeResult, rng: np.random.Generator) -> Trace:
    """A few looks, with attention that differs between success and failure."""
    looks = tuple(
        Look(10 * i, (0.0,) * 8, 0.05, float(rng.uniform(5, 20)), float(rng.uniform(0, 1)), "pool:3", True)
        for i in range(4)
    )
    ratios = 1 + rng.normal(0, 0.05, (6, 3))
    ratios[2] += 1.0 if one.outcome == "success" else 0.5
    slots = ("retrieved_frame_0/top", "retrieved_frame_1/top", "frame/top", "retrieved_action", "action")
    mass = rng.dirichlet(np.ones(len(slots)), (6, 2))  # (layers, heads, slots)
    regions = ("t_block", "t_block_next", "predicted_end")
    return Trace(
        one.task,
        one.seed,
        looks,
        Figures(
            {slot: mass[:, :, i] for i, slot in enumerate(slots)},
            {f"{s}>{r}": ratios + 0.1 * i for i, s in enumerate(slots[:3]) for r in regions},
            {"t_block&predicted_end": np.array(0.6)},
        ),
    )


def write_toy_report(folder: Path) -> dict[str, Any]:
    """Fill the folder; returns the contents of its JSON files."""
    plain = pusht("pusht-nano", {"pusher": "triangle"}, tasks=GOALS, seeds=SEEDS, pool_version=3)
    ours = results(plain, 0.8, 0)
    write_run(
        folder / "runs/ours", plain, ours, checkpoint="0123456789ab", pool_version=3, n_demonstrations=900
    )
    write_run(folder / "runs/none", plain.with_agent(matching="none"), results(plain, 0.2, 1))
    write_run(folder / "runs/replay", plain.with_agent(policy="replay"), results(plain, 0.5, 2))
    for i in range(3):
        write_run(folder / f"grow/{i}", replace(plain, pool_version=i), results(plain, 0.3 + 0.25 * i, 3 + i))
    for n in (0, 10, 100):
        write_run(folder / f"size/{n}", plain, results(plain, 0.2 + 0.007 * n, 10 + n))
    points = [{"value": n, "run": str(n), "abstained": n / 200} for n in (0, 10, 100)]
    written: dict[str, Any] = {
        "size/sweep": {"kind": "sweep", "title": "Pool size", "x": "demonstrations", "points": points}
    }
    rng = np.random.default_rng(0)
    traces = {(one.task, one.seed): trace_of(one, rng) for one in ours}
    attention = summarise_attention([t.figures for t in traces.values() if t.figures is not None])
    origin = {
        "command": "python research/benchmarks/evidence.py",
        "seeds": "500:510",
        "checkpoint": "0123456789ab",
    }
    written["look/attention"] = {"kind": "attention", **attention, "overlays": ["strip.png"], **origin}
    subsets = choose_subsets(ours, 0.85, 2)
    again = {(r.task, r.seed): r for r in results(plain, 0.4, 9)}
    rows = [condition_row(condition, subsets, again) for condition in conditions([2, 4])]
    written["mask/masking"] = {
        "kind": "masking",
        "threshold": "0.85",
        "available": subsets.available,
        "rows": rows,
        **origin,
    }
    found = analyse_failures(ours, traces, 0.85, {"intake": 2, "commit": 4})
    oracle = {
        "states": 12,
        "nearest_px": 1.5,
        "other_noise_px": 2.0,
        "oracle_px": 3.25,
        "gain_px": 1.25,
        "gain_interval_px": [0.5, 2.0],
        "harmful": 0.25,
        "harm_avoidable": 0.125,
        "harm_avoidable_by_noise": 0.0625,
    }
    written["fail/failures"] = {**found, "oracle": {"n_matches": 8, "clusters": {"moves": oracle}}}
    row = {"residual": 9.0, "corrected": 8.0, "paired": 5.0, "perfect": 2.0, "still": 16.0}
    row |= {"corrected_ratio": 0.5, "low": 0.4, "high": 0.6}
    pair = {"episode_id": HOSTILE, "ratio": 3.5, "misaligned": True}
    written["gate/check"] = {
        "kind": "check",
        "target": HOSTILE,
        "pool": "pool",
        "n_target": 4,
        "n_pool": 9,
        "rows": [{"horizon": 4, **row}, {"horizon": 8, **row}],
        "verdict": "passes",
        "chunk_size": 8,
        "pairs": [pair],
    }
    manifest = {
        "title": f"A report {HOSTILE}",
        "lead": "Made up.",
        "runs": {
            "runs/ours": {"label": f"ours {HOSTILE}", "paper": "ours"},
            "runs/none": {"label": "nothing retrieved", "paper": "no-retrieval"},
            "grow/0": {"label": "two goals"},
        },
        "parts": [
            {
                "title": "Baselines",
                "runs": ["runs/none", "runs/replay", "runs/ours"],
                "reference": "runs/none",
                "text": HOSTILE,
            },
            {
                "title": "Trainings",
                "runs": ["runs/none", "grow/0"],
                "reference": "runs/none",
                "families": [
                    {"label": "nothing retrieved", "runs": ["runs/none"]},
                    {"label": "grown", "runs": ["grow/0", "grow/1", "grow/2", "grow/1"]},  # twice counts once
                ],
            },
        ],
        "progression": {"first": "runs/none", "snapshots": ["grow/0", "grow/1", "grow/2"]},
    }
    written["report"] = manifest
    for name, body in written.items():
        file = folder / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(body), "utf-8")
    picture = np.full((64, 96, 3), 200, np.uint8)
    write_png(folder / "look/strip.png", picture)
    won = [one for one in ours if one.outcome == "success"]
    lost = [one for one in ours if one.outcome == "failure"]
    for one in lost[:7] + won[:3]:
        film = folder / f"runs/ours/videos/{one.task}_{one.seed}_{one.outcome}"
        write_png(Path(f"{film}.png"), picture)
        write_video(Path(f"{film}.mp4"), [np.full_like(picture, 10 * i) for i in range(20)], 10)
    return written

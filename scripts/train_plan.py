"""Train and evaluate the policies of a plan on one GPU: data once, one autoencoder, then run after run.

    python scripts/train_plan.py scripts/plans/pusht-nano.json --out runs/nano

A plan is a JSON file:

    {"autoencoder": "pusht-nano",
     "runs": [{"name": "ours", "preset": "pusht-nano", "set": ["n_iterations=1800"], "seeds": [0, 1, 2],
               "evaluate": {"unseen": {"seeds": [500, 520]}}}],
     "agents": {"replay": {"seeds": [500, 520]}}}

The autoencoder is that of a policy; without one the first run trains it. Each policy is rolled out as soon as
it is trained, on seeds from the first up to the last of two, in processes of their own and into `results.json`;
`agents` are others to roll out beside it. Beside each checkpoint lie its config, metrics and log.
Demonstrations come from packed snapshots: neither Lance nor a video decoder is needed. A run that is there
already is not trained again, and no run begins after `--stop-after` seconds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

BEGAN = time.time()
N_PARALLEL = 35  # episodes that one process rolls out side by side


def log(*words: object) -> None:
    """A line with the time since the start."""
    print(f"[{time.time() - BEGAN:6.1f}]", *words, flush=True)


def evaluate(job: tuple[str, str, dict[str, Any], str]) -> dict[str, Any]:
    """Roll one checkpoint out; a row for each episode."""
    import torch

    from recap.evaluation.agents import make_agent
    from recap.evaluation.rollouts import EvalSpec, run_trials

    torch.set_num_threads(1)
    name, path, changes, device = job
    began = time.time()
    spec = EvalSpec(path, pusher="triangle", device=device, **changes)
    results = list(run_trials(make_agent(path, spec), spec, spec.trials(), N_PARALLEL))
    errors = [r.error for r in results if r.outcome == "error"]
    if errors:
        log("ERROR", name, str(errors[0])[-500:])
    return {
        "name": name,
        "spec": {**spec.to_json(), "agent": name},
        "seconds": round(time.time() - began, 1),
        "episodes": [
            {
                "seed": r.seed,
                "angle": r.task,
                "outcome": r.outcome,
                "steps": r.steps,
                "max_coverage": round(r.max_coverage, 4),
                "first_step": dict(r.first_step),
            }
            for r in results
        ],
    }


class Rollouts:
    """Evaluations that run in processes of their own while training goes on."""

    def __init__(self, out: Path, n_workers: int) -> None:
        self.out = out
        self._pool = multiprocessing.get_context("spawn").Pool(n_workers)
        self._waiting: dict[str, list[Any]] = {}
        self._rows: dict[str, dict[str, Any]] = {}

    def start(self, name: str, agent: str, changes: dict[str, Any], device: str) -> None:
        """Begin one, its seeds ([first, end]) spread over the processes."""
        chosen = dict(changes)
        first, end = chosen.pop("seeds")
        n_angles = len(chosen.get("angles", range(9)))
        step = max(1, N_PARALLEL // n_angles)
        parts = [{**chosen, "seeds": tuple(range(a, min(a + step, end)))} for a in range(first, end, step)]
        jobs = [(name, agent, part, device) for part in parts]
        self._waiting[name] = [self._pool.apply_async(evaluate, (job,)) for job in jobs]

    def gather(self, until: float) -> bool:
        """Write down what is done; whether all is, waiting until that time."""
        while True:
            for name, parts in list(self._waiting.items()):
                if all(part.ready() for part in parts):
                    del self._waiting[name]
                    self._finish(name, [part.get() for part in parts])
            if not self._waiting or time.time() >= until:
                return not self._waiting
            time.sleep(0.5)

    def _finish(self, name: str, parts: list[dict[str, Any]]) -> None:
        whole = {**parts[0], "episodes": [episode for part in parts for episode in part["episodes"]]}
        whole["spec"]["seeds"] = sorted({episode["seed"] for episode in whole["episodes"]})
        self._rows[name] = whole
        unseen = [e for e in whole["episodes"] if e["angle"] not in ("-45", "+45")]
        shares = [sum(e["max_coverage"] > c for e in unseen) / max(1, len(unseen)) for c in (0.85, 0.95)]
        seconds = max(part["seconds"] for part in parts)
        log("EVALUATED", name, len(unseen), "unseen:", [round(s, 3) for s in shares], f"{seconds} s")
        (self.out / "results.json").write_text(json.dumps(list(self._rows.values())), "utf-8")


def spoken_progress(name: str, rollouts: Rollouts) -> Callable[[str, int, int], None]:
    """A line every quarter of a minute."""
    last = [time.time()]

    def progress(what: str, done: int, total: int) -> None:
        if time.time() - last[0] > 15 or done == total:
            last[0] = time.time()
            log(name, what, done, "of", total)
            rollouts.gather(0)

    return progress


def main() -> None:
    """Train the plan's runs in order, and evaluate beside it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--eval-device", default="cuda")
    parser.add_argument("--eval-workers", type=int, default=8)
    parser.add_argument("--stop-after", type=float, default=1e9, metavar="SECONDS")
    arguments = parser.parse_args()
    deadline = BEGAN + arguments.stop_after

    import torch

    from recap.policies.checkpoint import from_pretrained, save_pretrained
    from recap.training.config import preset
    from recap.training.data import TrainingData, load_data
    from recap.training.trainer import train

    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    plan = json.loads(arguments.plan.read_text("utf-8"))
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    rollouts = Rollouts(out, arguments.eval_workers)
    for name, changes in plan.get("agents", {}).items():
        rollouts.start(name, changes.pop("agent", name), changes, arguments.eval_device)
    loaded: tuple[object, TrainingData] | None = None
    autoencoder = plan.get("autoencoder")
    for run in plan["runs"]:
        config = preset(run["preset"], run.get("set", []))
        for seed in run.get("seeds", [0]):
            name = f"{run['name']}-{seed}"
            if time.time() > deadline:
                log("no time for", name)
                continue
            chosen = replace(config, seed=seed)
            if config.policy.sees and autoencoder is not None:
                chosen = replace(chosen, autoencoder=str(autoencoder))
            key = (
                config.policy,
                config.pairs,
                config.target,
                config.pool,
                config.pool_angles,
                config.held_out,
            )
            if loaded is None or loaded[0] != key:
                loaded = (key, load_data(config, workers=os.cpu_count() or 1))
                data = loaded[1]
                log("data", len(data.train), "moments,", len(data.held_out), "held out,", len(data.pictures))
            outcome = train(chosen, out / name, data=loaded[1], progress=spoken_progress(name, rollouts))
            if config.policy.sees and autoencoder is None:
                autoencoder = out / name / "autoencoder"
            facts = json.loads((outcome.last / "config.json").read_text("utf-8"))["training"]
            folder = out / f"{name}-half"
            save_pretrained(from_pretrained(outcome.last), folder, facts, half=True)
            log(
                "trained",
                name,
                outcome.iterations,
                "best",
                outcome.best_iteration,
                f"{outcome.seconds:.0f} s",
            )
            for title, changes in run.get("evaluate", {}).items():
                rollouts.start(f"{name}/{title}", str(folder), changes, arguments.eval_device)
            rollouts.gather(0)
    log("all there" if rollouts.gather(deadline) else "stopped before all was evaluated")


if __name__ == "__main__":
    main()

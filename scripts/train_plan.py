"""Train and evaluate the policies of a plan on one GPU: data once, one autoencoder, then run after run.

    python scripts/train_plan.py scripts/plans/pusht-nano.json --out runs/nano

A plan is a JSON file:

    {"autoencoder": "pusht-nano",
     "runs": [{"name": "ours", "preset": "pusht-nano", "set": ["n_iterations=1800"], "seeds": [0, 1, 2],
               "evaluate": {"unseen": {"seeds": [500, 520]}}}],
     "agents": {"replay": {"seeds": [500, 520]}}}

The autoencoder is that of a policy; without one the first run trains it. Each policy is rolled out as soon as
it is trained, on seeds from the first of two up to the second, in processes of their own, to `evaluations/`;
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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recap.evaluation.rollouts import EvalSpec
    from recap.types import EpisodeResult

BEGAN = time.time()
N_PARALLEL = 35  # episodes that one process rolls out side by side


def log(*words: object) -> None:
    """A line with the time since the start."""
    print(f"[{time.time() - BEGAN:6.1f}]", *words, flush=True)


def evaluate(spec: EvalSpec) -> list[EpisodeResult]:
    """Roll one part of an evaluation out."""
    import torch

    from recap.evaluation.agents import make_agent
    from recap.evaluation.rollouts import run_trials

    torch.set_num_threads(1)
    return list(run_trials(make_agent(spec.agent, spec), spec, spec.trials(), N_PARALLEL))


class Rollouts:
    """Evaluations that run in processes of their own while training goes on; each ends as a run directory."""

    def __init__(self, out: Path, n_workers: int, device: str) -> None:
        self.out, self.device = out, device
        self._pool = multiprocessing.get_context("spawn").Pool(n_workers)
        self._waiting: dict[str, tuple[EvalSpec, list[Any]]] = {}

    def start(self, name: str, agent: str, changes: dict[str, Any]) -> None:
        """Begin one, its seeds (from the first of two up to the second) spread over the processes."""
        from recap.evaluation.rollouts import EvalSpec

        chosen = {key: tuple(value) if isinstance(value, list) else value for key, value in changes.items()}
        chosen["seeds"] = tuple(range(*changes["seeds"]))
        spec = EvalSpec(agent, pusher="triangle", device=self.device, **chosen)
        step = max(1, N_PARALLEL // len(spec.angles))
        parts = [spec.seeds[i : i + step] for i in range(0, len(spec.seeds), step)]
        jobs = [self._pool.apply_async(evaluate, (replace(spec, seeds=part),)) for part in parts]
        self._waiting[name] = spec, jobs

    def gather(self, until: float) -> bool:
        """Write down what is done; whether all is, waiting until that time."""
        while True:
            for name, (spec, jobs) in list(self._waiting.items()):
                if all(job.ready() for job in jobs):
                    del self._waiting[name]
                    self._finish(name, spec, [result for job in jobs for result in job.get()])
            if not self._waiting or time.time() >= until:
                return not self._waiting
            time.sleep(0.5)

    def _finish(self, name: str, spec: EvalSpec, results: list[EpisodeResult]) -> None:
        from recap.evaluation.run_directory import open_run
        from recap.evaluation.summary import summarise

        with open_run(self.out / "evaluations" / name, spec) as run:
            for result in results:
                run.append(result)
            summary = summarise(spec, run.sorted_results())
            run.write_info(summary.to_json())
        for group in summary.groups:
            log("EVALUATED", name, group.name, {key: str(rate) for key, rate in group.rates.items()})


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
    rollouts = Rollouts(out, arguments.eval_workers, arguments.eval_device)
    for name, changes in plan.get("agents", {}).items():
        rollouts.start(name, changes.pop("agent", name), changes)
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
                rollouts.start(f"{name}-{title}", str(folder), changes)
            rollouts.gather(0)
    log("all there" if rollouts.gather(deadline) else "stopped before all was evaluated")


if __name__ == "__main__":
    main()

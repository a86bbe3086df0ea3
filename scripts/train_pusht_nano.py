"""Train the shipped PushT policies: one autoencoder, then a policy for each training seed.

    python scripts/train_pusht_nano.py --out runs/nano --seeds 0 1 2

About six minutes on one H200 for the first seed, two for each further. Beside each checkpoint lie its config,
metrics and log; `--evaluate` also rolls each out as soon as it is trained, in processes of their own, into
`results.json`. Demonstrations come from packed snapshots: neither Lance nor a video decoder is needed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

BEGAN = time.time()


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
    results = list(run_trials(make_agent(path, spec), spec, spec.trials(), 90))
    errors = [r.error for r in results if r.outcome == "error"]
    if errors:
        log("ERROR", name, str(errors[0])[-500:])
    row = {
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
    unseen = [r for r in results if r.task not in ("-45", "+45")]
    shares = [sum(r.max_coverage > c for r in unseen) / max(1, len(unseen)) for c in (0.85, 0.95)]
    log(
        "EVALUATED",
        name,
        len(results),
        "unseen at 0.85 and 0.95:",
        [round(s, 3) for s in shares],
        row["seconds"],
    )
    return row


def main() -> None:
    """Train, and evaluate beside it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="pusht-nano")
    parser.add_argument("--set", nargs="*", default=[], help="settings, as in recap train --set")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--out", type=Path, default=Path("runs/nano"))
    parser.add_argument("--evaluate", nargs="*", default=[], help="name=JSON of EvalSpec changes")
    parser.add_argument("--agents", nargs="*", default=[], help="other agents to evaluate: agent=JSON")
    parser.add_argument("--eval-device", default="cuda")
    parser.add_argument("--eval-workers", type=int, default=8)
    arguments = parser.parse_args()

    import torch

    from recap.policies.checkpoint import from_pretrained, save_pretrained
    from recap.training.autoencoder import reconstruction
    from recap.training.config import preset
    from recap.training.data import load_data
    from recap.training.trainer import train

    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.eval_workers) as pool:
        waiting = [
            pool.apply_async(evaluate, ((name, name, json.loads(text), "cpu"),))
            for name, _, text in (item.partition("=") for item in arguments.agents)
        ]
        config = preset(arguments.preset, arguments.set)
        data = load_data(config)
        log(
            "data",
            len(data.train),
            "moments,",
            len(data.held_out),
            "held out,",
            len(data.pictures),
            "pictures",
        )
        for seed in arguments.seeds:
            folder = out / f"seed-{seed}"
            chosen = replace(config, seed=seed)
            first = out / f"seed-{arguments.seeds[0]}" / "autoencoder"
            if first.is_dir() and config.policy.sees:
                chosen = replace(chosen, autoencoder=str(first))
            shown = [time.time()]

            def progress(
                what: str, done: int, total: int, seed: int = seed, shown: list[float] = shown
            ) -> None:
                if time.time() - shown[0] > 15 or done == total:
                    shown[0] = time.time()
                    log("seed", seed, what, done, "of", total)

            outcome = train(chosen, folder, data=data, progress=progress)
            policy = from_pretrained(outcome.last)
            facts = json.loads((outcome.last / "config.json").read_text("utf-8"))["training"]
            save_pretrained(policy, out / f"nano-{seed}", facts, half=True)
            if policy.encoder is not None:
                log("autoencoder", round(reconstruction(policy.encoder, data.pictures[::200]), 2), "dB")
            log(
                "trained seed",
                seed,
                outcome.iterations,
                "best",
                outcome.best_iteration,
                round(outcome.seconds, 1),
                "s",
            )
            for name, _, text in (item.partition("=") for item in arguments.evaluate):
                job = (f"{name}-{seed}", str(out / f"nano-{seed}"), json.loads(text), arguments.eval_device)
                waiting.append(pool.apply_async(evaluate, (job,)))
        results = []
        for job_done in waiting:
            results.append(job_done.get())
            (out / "results.json").write_text(json.dumps(results), "utf-8")
    log("done")


if __name__ == "__main__":
    main()

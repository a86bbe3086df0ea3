"""The rows of the paper's PushT table in its setting, in a lease of minutes on one GPU.

    python research/scripts/train_foresight.py prepare data/triangle --mirror --out data.npz
    python research/scripts/paper_rows.py train data.npz --state state --out results --stop-after 540 \\
        few:0 many:0:on,off few:1
    python research/scripts/paper_rows.py roll-out data.npz --state state --out results --stop-after 560

A job is `few` (the published 200 demonstrations less those held out) or `many`, a training seed, and rows.
`train` trains one row after another and reports the predicted share of the change; `roll-out` runs in
parallel and counts successes. Finished work stays in `state`, and another call resumes; a row that cannot end
in time is not started.

Trainings and replay were tried at toy size on a CPU; no row was measured yet.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import train_foresight as foresight
from train_foresight import ANGLES, SAMPLINGS, Data, base_config, fit, fit_autoencoder, log, with_settings

from recap import config as configs
from recap.policies.autoencoder import FrameEncoder
from recap.policies.checkpoint import from_pretrained
from recap.training.autoencoder import load_autoencoder
from recap.training.batches import BatchSource
from recap.training.config import TrainConfig
from recap_research.foresight import Foresight, Way
from recap_research.lockstep import roll_out
from recap_research.lockstep_worlds import Worlds
from recap_research.recorded import read

FEW = 180  # of the published 200; the others are held out
NEXT = ["policy.future_image=false", "policy.future_state=false", "policy.future_change=false"]
NEXT += ["policy.future_clean=false", "scale_future=false"]
ALONE = ["policy.retrieval=false", "policy.residual=false"]
ROWS = {
    "on": [],
    "off": NEXT,
    "no-retrieval": ALONE,
    "co-training": [*ALONE, "co_training=true"],
    "no-retrieval-off": [*ALONE, *NEXT],
    "absolute": ["policy.residual=false"],
    "absolute-off": ["policy.residual=false", *NEXT],
}
USUAL = ("on", "off", "no-retrieval", "co-training")
WAYS = (
    Way("jointly, a sample in 2 steps, temperature 0.5", steps=2, temperature=0.5),
    Way("jointly, a sample in 5 steps", steps=5),
    Way("jointly, mean of 8 samples in 5 steps", steps=5, samples=8),
)
TOKENS = {"on": 9, "off": 7, "absolute": 9, "absolute-off": 7, "no-retrieval-off": 3}  # slots; others 5


def setting(size: int, batch: int) -> TrainConfig:
    """The paper's config with one predicted image, at the end of the chunk."""
    changes = ["policy.future_steps=[]", "augment.action_given=0", f"batch_size={batch}"]
    changes += [f"policy.image.size={size}", f"policy.image.camera_size={size}"]
    return with_settings(base_config(), changes)


def jobs_of(words: list[str]) -> list[tuple[str, str, int, str]]:
    """Name, data size, seed and row of each job."""
    found = []
    for word in words:
        budget, seed, *rows = word.split(":")
        for row in rows[0].split(",") if rows else USUAL:
            found.append((f"{budget}-{row}-{seed}", budget, int(seed), row))
    return found


def keep(folders: list[Path], row: dict[str, Any]) -> None:
    """Append a row to the results in each folder."""
    for folder in folders:
        with (folder / "rows.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def done(state: Path, what: str) -> list[str]:
    """Names of the finished rows of this kind."""
    file = state / "rows.jsonl"
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    return [row["name"] for row in rows if row["what"] == what]


def pace_of(config: TrainConfig, data: Data, encoder: FrameEncoder, out: Path) -> float:
    """Seconds per iteration after compilation."""
    fit(config, data, encoder, math.inf, out)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]
    before, last = rows[-2], rows[-1]
    return float((last["seconds"] - before["seconds"]) / (last["iteration"] - before["iteration"]))


def train(options: argparse.Namespace) -> None:
    """Train one row after another until the time is over."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64
    foresight.LOOK_EVERY_S = math.inf  # evaluated only at the end
    foresight.LOG_EVERY = options.log_every
    base = with_settings(setting(options.size, options.batch), options.set)
    both = [options.state, options.out]
    kept = options.state / "autoencoder"
    if not kept.exists():
        base = replace(base, autoencoder_batch=64)
        begun = load_autoencoder("pusht-nano", device)
        encoder = fit_autoencoder(options.data, base, device, options.autoencoder_iterations, begun)
        encoder.network.save_pretrained(kept)
    encoder = load_autoencoder(str(kept), device)
    log("autoencoder")
    every = Data(options.data, base, encoder)
    few = every.first(FEW)
    log(len(every.latents), "frames encoded;", len(every.train.length), "demonstrations")
    plan = options.state / "plan.json"
    pace = json.loads(plan.read_text("utf-8")) if plan.exists() else {}
    for name, budget, seed, row in jobs_of(options.jobs):
        if name in done(options.state, "training"):
            continue
        slots = TOKENS.get(row, 5)
        needed = pace.get("seconds", options.seconds) * slots / 9 + options.spare
        if time.monotonic() - foresight.BEGAN + needed > options.stop_after:
            log("no time for", name, round(needed), "s")
            continue
        data = few if budget == "few" else every
        config = replace(with_settings(base, ROWS[row]), seed=seed)
        if not pace:  # the first row sets the number of iterations for the others
            each = pace_of(replace(config, n_iterations=options.warm), data, encoder, options.state / "pace")
            n = max(options.least, min(options.iterations, int(options.seconds / each) // 50 * 50))
            pace = {"iterations": n, "seconds": n * each, "seconds_each": each, "of": name}
            plan.write_text(json.dumps(pace) + "\n", "utf-8")
            log("plan", pace)
        config = replace(config, n_iterations=pace["iterations"])
        began, out = time.monotonic(), options.state / name
        policy = fit(config, data, encoder, math.inf, out)
        found: dict[str, Any] = {"what": "training", "name": name, "row": row, "budget": budget, "seed": seed}
        found |= {"seconds": round(time.monotonic() - began, 1), "demonstrations": len(data.train.length)}
        found |= {"iterations": config.n_iterations, "batch": config.batch_size}
        (out / "done").touch()
        source = BatchSource(
            data.samples(config, "held_out"), data.latents, policy.statistics, config.policy, device
        )
        found["held_out"] = foresight.held_out_losses(policy.model, source, device)
        found["losses"] = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        if config.policy.future_image:
            moments = np.linspace(0, len(data.held_out.proprio) - 1, options.moments).astype(np.int64)
            seen = Foresight(policy, source, data.held_out, moments).run(WAYS)
            far = config.policy.chunk_size
            found["explained"] = [r for r in seen if r["steps_ahead"] == far]
            for r in found["explained"]:
                log(name, r["what"], r["explained"], r["interval"])
        found["configuration"] = configs.plain(config)
        keep(both, found)
        log(name, "trained and judged,", found["seconds"], "s", found["held_out"])
    (options.state / "trained").touch()


def roll_policies_out(options: argparse.Namespace) -> None:
    """Evaluate replay, and every policy as soon as it is trained, with the paper's sampling and with ours."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pool = read(options.data)["everywhere"]
    episodes = [(seed, float(angle)) for angle in ANGLES for seed in range(*options.seeds)]
    worlds = Worlds(episodes, "triangle", max(1, (os.cpu_count() or 2) - 2))
    unseen = np.array([abs(angle) != 45 for _, angle in episodes])
    ready = ["replay"]
    while True:
        over = time.monotonic() - foresight.BEGAN > options.stop_after
        for name in ready:
            policy = (
                None
                if name == "replay"
                else from_pretrained(str(options.state / name / "policy"), str(device))
            )
            for sampling in SAMPLINGS[: 1 if policy is None else 2]:
                if over:
                    break
                began = time.monotonic()
                best = roll_out(policy, pool, worlds, sampling, device)
                row = {"what": "rollouts", "name": f"{name}:{sampling.n_steps}", "policy": name}
                row |= {"sampling": configs.plain(sampling), "seeds": list(options.seeds)}
                row["coverage"] = [
                    [s, a, round(float(b), 4)] for (s, a), b in zip(episodes, best, strict=True)
                ]
                for side, chosen in (("unseen", unseen), ("seen", ~unseen)):
                    row[side] = {
                        str(past): f"{int((best[chosen] > past).sum())} of {int(chosen.sum())}"
                        for past in (0.85, 0.95)
                    }
                keep([options.state, options.out], row)
                seconds = round(time.monotonic() - began, 1)
                log(row["name"], "unseen", row["unseen"], "seen", row["seen"], seconds, "s")
        names = done(options.state, "rollouts")
        folders = sorted(
            (f.parent for f in options.state.glob("*/done")), key=lambda f: (f / "done").stat().st_mtime
        )
        ready = [f.name for f in folders if f"{f.name}:{SAMPLINGS[1].n_steps}" not in names]
        if over or (not ready and (options.state / "trained").exists()):
            break
        time.sleep(1)
    worlds.close()
    log("left:", *ready)


def main() -> None:
    """Run the command `train` or `roll-out`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True)
    for verb, run in (("train", train), ("roll-out", roll_policies_out)):
        one = verbs.add_parser(verb)
        one.add_argument("data", type=Path)
        one.add_argument("--state", type=Path, required=True)
        one.add_argument("--out", type=Path, required=True)
        one.add_argument("--stop-after", type=float, required=True, help="seconds from here")
        one.set_defaults(run=run)
        if verb == "roll-out":
            one.add_argument("--seeds", type=int, nargs=2, default=(42, 92), metavar=("FIRST", "END"))
            continue
        one.add_argument("--seconds", type=float, default=110.0, help="of a training of `on`")
        one.add_argument("--spare", type=float, default=25.0, help="to compile, and to judge")
        one.add_argument("--iterations", type=int, default=4000, help="at most")
        one.add_argument("--least", type=int, default=1500, help="iterations")
        one.add_argument("--warm", type=int, default=300, help="iterations that tell the pace")
        one.add_argument("--log-every", type=int, default=100, help="iterations")
        one.add_argument("--batch", type=int, default=256)
        one.add_argument("--size", type=int, default=96, help="of a side of an image")
        one.add_argument("--autoencoder-iterations", type=int, default=600)
        one.add_argument("--moments", type=int, default=240)
        one.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
        one.add_argument("jobs", nargs="+", metavar="few|many:SEED[:ROW,…]")
    options = parser.parse_args()
    for folder in (options.state, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    options.run(options)


if __name__ == "__main__":
    main()

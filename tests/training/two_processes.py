"""Runs of two processes: first with replicated weights, then sharded; started by torchrun.

Each process writes the shares it held, and how it was stopped, to `rank-N.json`. The last run is killed.
"""

import json
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recap.policies.policy import TrainedPolicy
from recap.training import trainer
from recap.training.data import load_data
from recap.training.presets import preset
from recap.training.sharding import local

torch.set_num_threads(1)
trainer.LOG_EVERY = 1
RANK = int(os.environ["RANK"])
held: list[dict[str, float]] = []
save = trainer._Run._save


def share(tensors: Iterable[Tensor]) -> float:
    """The share of the tensors' bytes that this process keeps in memory."""
    some = list(tensors)
    kept = sum(local(t).untyped_storage().nbytes() for t in some)
    return kept / sum(t.numel() * t.element_size() for t in some)


def measured(run: Any) -> None:
    """Save as usual, but first record the shares that this process holds."""
    moments = [v for state in run.optimizer.state.values() for v in state.values() if v.ndim]
    parts = {"weights": run.raw_model.parameters(), "smoothed": run.ema.parameters(), "moments": moments}
    held.append({name: share(tensors) for name, tensors in parts.items()})
    save(run)


def roll_out(iteration: int, policy: TrainedPolicy) -> dict[str, float]:
    """Called in the main process only: the policy must not need the others."""
    return {"fingerprint": int(policy.fingerprint, 16)}


def press_ctrl_c(what: str, done: int, total: int, note: str) -> None:
    """Interrupt one process only, as torchrun signals one before the other."""
    if (what, done, RANK) == ("iterations", 3, 1):
        os.kill(os.getpid(), signal.SIGINT)


def die(run: Any) -> None:
    """Kill the second process while the first waits for its part of the weights."""
    if RANK == 1 and run.iteration == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    save(run)


if __name__ == "__main__":
    target, pool, folder, *changes = sys.argv[1:]
    out = Path(folder)
    config = replace(preset("debug", changes), target=target, pool=pool)
    options: dict[str, Any] = {"data": load_data(config), "device": "cpu"}
    trainer.train(replace(config, fsdp=False), out / "copies", **options)
    trainer._Run._save = measured  # type: ignore[method-assign]
    rollout = roll_out if RANK == 0 else None
    trainer.train(config, out / "straight", rollout=rollout, rollout_every=3, **options)
    stopped = ""
    try:
        trainer.train(config, out / "stopped", progress=press_ctrl_c, **options)
    except KeyboardInterrupt as stop:
        stopped = str(stop)
    trainer.train(config, out / "stopped", **options)
    (out / f"rank-{RANK}.json").write_text(json.dumps({"held": held, "stopped": stopped}))
    trainer._Run._save = die  # type: ignore[method-assign]
    trainer.train(config, out / "dead", **options)

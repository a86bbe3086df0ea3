"""What a plan costs: what it will, by rates that were measured, and what it did, a line for each piece."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recap.policies.config import NetworkConfig, SamplingConfig
from recap.policies.layout import build_layout
from recap.training.config import AugmentConfig, TrainConfig
from recap_research.plans.plan import Plan, Run

LEDGER = "ledger.jsonl"

# Seconds of the nano network on one H200.
DATA_S = 60.0  # pairs and pictures of 200 demonstrations; twice that of the union
N_DEMONSTRATIONS = 200
COMPILE_S = 60.0  # of one table of slots
BEGIN_S = 15.0  # latents, once compiled
ITERATION_S = 100 / 1800
AUTOENCODER_S = 135 / 2800  # an iteration
EPISODE_S = 60 / 450  # beside a training


@dataclass(frozen=True)
class Estimate:
    """Seconds of one run."""

    data_s: float
    compile_s: float
    training_s: float
    evaluation_s: float  # beside what is trained next

    @property
    def total_s(self) -> float:
        """Until the next run begins."""
        return self.data_s + self.compile_s + self.training_s


def data_kind(config: TrainConfig) -> TrainConfig:
    """All that the arrays depend on, the rest as usual: runs that are equal in it share them."""
    policy = replace(
        config.policy,
        residual=False,  # formed when a batch is drawn
        future_image=True,  # a policy that does not predict it leaves it aside
        future_state=True,
        future_change=False,
        embodiment="",
        network=NetworkConfig(),
        sampling=SamplingConfig(),
        n_action_steps=1,
        subtrajectories=False,
    )
    return replace(
        TrainConfig("", policy),
        augment=AugmentConfig(mirror=config.augment.mirror),  # some data are not fit for it
        pairs=config.pairs,
        target=config.target,
        pool=config.pool,
        target_where=config.target_where,
        pool_where=config.pool_where,
        n_demonstrations=config.n_demonstrations,
        co_training=config.co_training,
        own_share=config.own_share,
        held_out=config.held_out,
    )


def kind_key(kind: TrainConfig) -> str:
    """What tells one kind from another."""
    text = json.dumps(kind.to_json(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def estimate(plan: Plan, there: Iterable[str] = ()) -> dict[str, Estimate]:
    """Of every run but those that are there already, in order."""
    kinds: set[str] = set()
    layouts: set[tuple[str, ...]] = set()
    encoders: set[str | None] = {"pusht-nano", None}
    skipped = set(there)
    found = {}
    for run in plan.runs:
        if run.name in skipped:
            continue
        config = run.config
        kind, layout = kind_key(data_kind(config)), layout_of(config)
        training = config.n_iterations * ITERATION_S
        if config.autoencoder not in encoders and not Path(str(config.autoencoder), "config.json").exists():
            training += config.autoencoder_iterations * AUTOENCODER_S
        episodes = sum(len(e.spec.trials()) for e in run.evaluations)
        found[run.name] = Estimate(
            0.0 if kind in kinds else _data_s(config),
            BEGIN_S if layout in layouts or not config.compile else COMPILE_S,
            training,
            episodes * EPISODE_S,
        )
        kinds.add(kind)
        layouts.add(layout)
        encoders.add(config.autoencoder)
    return found


def beginning_s(config: TrainConfig, *, data: bool, encoder: bool, compiled: bool) -> float:
    """What passes at least before a training can be stopped; each is whether it is there already."""
    compiling = BEGIN_S if compiled or not config.compile else COMPILE_S
    seeing = 0.0 if encoder else config.autoencoder_iterations * AUTOENCODER_S
    return compiling + seeing + (0.0 if data else _data_s(config))


def layout_of(config: TrainConfig) -> tuple[str, ...]:
    """The table of slots, which is compiled once."""
    return tuple(slot.name for slot in build_layout(config.policy).slots)


def _data_s(config: TrainConfig) -> float:
    share = min(1.0, (config.n_demonstrations or N_DEMONSTRATIONS) / N_DEMONSTRATIONS)
    return DATA_S * share * (2 if config.co_training else 1)


class Ledger:
    """`ledger.jsonl`: a line for each training and each evaluation, as it ends."""

    def __init__(self, out: Path) -> None:
        self.file = out / LEDGER

    def note(self, **values: Any) -> None:
        """Add a line; seconds are rounded."""
        row = {k: round(v, 1) if isinstance(v, float) else v for k, v in values.items()}
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """All lines; a torn last one is left out."""
        found = []
        for line in self.file.read_text("utf-8").splitlines() if self.file.exists() else []:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def seconds_of(self, run: str) -> Mapping[str, float]:
        """What a training took, over all its pieces; empty without any."""
        totals: dict[str, float] = {}
        for row in self.rows():
            if row.get("run") == run and "training_s" in row:
                for key in ("data_s", "compile_s", "training_s"):
                    totals[key] = totals.get(key, 0.0) + float(row[key])
        return totals

    def gpu_minutes(self) -> float:
        """Of all trainings: evaluations run beside them."""
        trained = [row for row in self.rows() if "training_s" in row]
        return sum(float(row["compile_s"]) + float(row["training_s"]) for row in trained) / 60


def describe(plan: Plan, there: Iterable[str] = ()) -> Iterable[str]:
    """The plan in lines: what each run would take, and what it all comes to."""
    done = set(there)
    estimates = estimate(plan, done)
    yield f"{'run':<34} {'data':>5} {'begin':>5} {'train':>5} {'evaluate':>8} {'since start':>11}   s"
    spent = 0.0
    for run in plan.runs:
        if run.name in done:
            yield f"{run.name:<34} done"
            continue
        one = estimates[run.name]
        spent += one.total_s
        yield (
            f"{run.name:<34} {one.data_s:5.0f} {one.compile_s:5.0f} {one.training_s:5.0f} "
            f"{one.evaluation_s:8.0f} {spent:11.0f}   {words(run)}"
        )
    beside = sum(len(e.spec.trials()) for e in plan.agents) * EPISODE_S
    if beside:
        yield f"{'agents':<34} {'':5} {'':5} {'':5} {beside:8.0f}"
    last = max((one.evaluation_s for one in estimates.values()), default=0.0)
    evaluated = beside + sum(one.evaluation_s for one in estimates.values())
    total = max(spent + last, evaluated)  # they run beside each other
    yield f"{len(estimates)} runs to train, about {total / 60:.0f} minutes on one GPU."


def words(run: Run) -> str:
    """What a run is, in a few words."""
    begun = f", from {Path(run.config.init).name}" if run.config.init else ""
    return f"{run.config.preset}, {run.config.n_iterations} iterations{begun}"

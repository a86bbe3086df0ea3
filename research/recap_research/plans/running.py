"""A plan carried out: data once a kind, run after run, evaluations beside it; a stopped one goes on."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recap.errors import RunDirectoryError
from recap.run_directory import read_json, write_whole
from recap.training.config import TrainConfig
from recap.training.data import demonstrations, spread, where
from recap.training.data_cache import TrainingData
from recap.training.statistics import statistics_of
from recap_research.plans.contents import write_contents
from recap_research.plans.ledger import Ledger, beginning_s, data_kind, kind_key, layout_of
from recap_research.plans.plan import POOLS, Log, Plan, Run, checkpoint_of
from recap_research.plans.pools import collect_pools, seconds_of
from recap_research.plans.preparing import Preparation
from recap_research.plans.results import write_results
from recap_research.plans.rollouts import Rollouts, is_finished

CONFIGS, DATA, TRAINING = "configs", "data", "training"
SAVE_S = 20.0  # to write down where a training stands


def finished_runs(plan: Plan, out: Path) -> set[str]:
    """Runs that need no training: all is evaluated, and what goes on from them is trained too.

    Raises:
        RunDirectoryError: `out` holds a run of that name with other settings.
    """
    for run in plan.runs:
        _check_config(run, out)
    done: set[str] = set()
    needed: set[str] = set()
    for run in reversed(plan.runs):
        place = str(checkpoint_of(out, run.name))
        known = _config_file(run, out).exists()
        trained = known and (checkpoint_of(out, run.name) / "config.json").exists()
        evaluated = known and all(is_finished(out, e) for e in run.evaluations)
        if (evaluated and place not in needed) or (trained and evaluated):
            done.add(run.name)
        elif run.config.init is not None:
            needed.add(run.config.init)
    return done


def run_plan(
    plan: Plan, out: Path, *, workers: int, stop_after: float, log: Log, device: str | None = None
) -> bool:
    """Train and evaluate what is not there yet; whether all of the plan is there now.

    Args:
        workers: processes that evaluate; 0: this one does.
        stop_after: seconds after which it stops by itself, everything kept.
        device: cpu to train there; otherwise what is found.
    """
    deadline = time.time() + stop_after
    out.mkdir(parents=True, exist_ok=True)
    done = finished_runs(plan, out)
    ledger = Ledger(out)
    for name in collect_pools(plan.pools, out / POOLS, _cores(device)):
        log("collected", name)
    try:
        with Rollouts(out, workers, ledger, log) as rollouts, Preparation(_cores(device)) as preparation:
            trainer = _Trainer(out, ledger, rollouts, preparation, deadline, log, device)
            whole = _carry_out(plan, done, rollouts, trainer)
    finally:
        write_contents(plan, out)
        write_results(plan, out, ledger)
    log("all there" if whole else "not all there: the same command goes on")
    log(f"trainings so far: {ledger.gpu_minutes():.1f} minutes")
    return whole


def _carry_out(plan: Plan, done: set[str], rollouts: Rollouts, trainer: _Trainer) -> bool:
    """Agents first, then run after run; whether all is there."""
    for agent in plan.agents:
        rollouts.start(agent)
    whole = True
    trainer.foresee([run for run in plan.runs if run.name not in done])
    for run in plan.runs:
        if run.name in done:
            trainer.log(run.name, "is done")
        elif trainer.train(run):
            for evaluation in run.evaluations:
                rollouts.start(evaluation)
        else:
            whole = False
            trainer.log("no time for", run.name)
        rollouts.gather(0)
    return rollouts.gather(trainer.deadline) and whole and not rollouts.failed


class _Trainer:
    """Trains run after run; the data of every kind stay in memory."""

    def __init__(
        self,
        out: Path,
        ledger: Ledger,
        rollouts: Rollouts,
        preparation: Preparation,
        deadline: float,
        log: Log,
        device: str | None,
    ) -> None:
        self.out, self.ledger, self.rollouts, self.deadline = out, ledger, rollouts, deadline
        self.preparation, self.log, self.device = preparation, log, device
        self._data: dict[str, TrainingData] = {}  # by kind
        self._compiled: set[tuple[str, ...]] = set()

    def foresee(self, runs: Sequence[Run]) -> None:
        """Begin with the data of those that are not trained, in their order."""
        untrained = [run for run in runs if not (checkpoint_of(self.out, run.name) / "config.json").exists()]
        kinds = [data_kind(run.config) for run in untrained]
        self.preparation.begin({self._data_file(kind): kind for kind in kinds})

    def train(self, run: Run) -> bool:
        """Train one run to its end, or as far as there is time; whether its policy is there."""
        folder = checkpoint_of(self.out, run.name)
        if (folder / "config.json").exists() and _config_file(run, self.out).exists():
            return True
        begun = run.config.init
        if begun is not None and Path(begun).is_relative_to(self.out) and not Path(begun).exists():
            return False  # there was no time for it either
        if self._left() < self._beginning_s(run):
            return False
        from recap.policies.checkpoint import from_pretrained, save_pretrained
        from recap.training.trainer import train

        data, data_s = self._data_of(run)
        self._autoencoder(run, data)
        clock = _Clock(run.name, self.log, lambda: self.rollouts.gather(0))
        outcome = train(
            run.config,
            self.out / TRAINING / run.name,
            data=data,
            progress=clock.tick,
            max_seconds=self._left(),
            device=self.device,
        )
        self._compiled.add(layout_of(run.config))
        gc.collect()  # before the next one needs the memory
        self.ledger.note(
            run=run.name,
            iterations=outcome.iterations,
            demonstrations_s=seconds_of(
                spread(
                    where(demonstrations(run.config.target), run.config.target_where),
                    run.config.n_demonstrations,
                )
            ),
            data_s=data_s,
            compile_s=clock.begun_s,
            training_s=clock.total_s - clock.begun_s,
        )
        if outcome.iterations < run.config.n_iterations:
            return False
        facts = json.loads((outcome.last / "config.json").read_text("utf-8"))["training"]
        save_pretrained(from_pretrained(outcome.last), folder, facts, half=True)
        file = _config_file(run, self.out)
        file.parent.mkdir(exist_ok=True)
        write_whole(file, json.dumps(run.config.to_json(), indent=1) + "\n")
        self.log("trained", run.name, f"{outcome.iterations} iterations, {clock.total_s:.0f} s")
        return True

    def _left(self) -> float:
        return self.deadline - time.time() - SAVE_S

    def _beginning_s(self, run: Run) -> float:
        """What cannot be stopped in between, so that no command runs past its time."""
        kind = data_kind(run.config)
        return beginning_s(
            run.config,
            data=kind_key(kind) in self._data or self._data_file(kind).exists(),
            encoder=not self._needs_autoencoder(run.config),
            compiled=layout_of(run.config) in self._compiled,
        )

    def _data_file(self, kind: TrainConfig) -> Path:
        return self.out / DATA / kind_key(kind)

    def _data_of(self, run: Run) -> tuple[TrainingData, float]:
        """Made once a kind and kept; only the statistics depend on what is predicted."""
        kind = data_kind(run.config)
        key = kind_key(kind)
        began = time.monotonic()
        if key not in self._data:
            data = self.preparation.take(self._data_file(kind), kind)
            self._data[key] = data
            self.log("data", len(data.train), "moments,", len(data.held_out), "held out,", len(data.pictures))
            if data.left_out:
                self.log("left out as mis-aligned:", *data.left_out)
        data = self._data[key]
        statistics = statistics_of(data.train, run.config.policy)
        return replace(data, statistics=statistics), time.monotonic() - began

    def _autoencoder(self, run: Run, data: TrainingData) -> None:
        """The autoencoder of this frame, trained by the first run that needs it."""
        given = run.config.autoencoder
        if given is None or not self._needs_autoencoder(run.config):
            return
        import torch

        from recap.training.autoencoder import train_autoencoder

        cuda = torch.cuda.is_available() and self.device != "cpu"
        clock = _Clock(f"autoencoder of {run.name}", self.log, lambda: self.rollouts.gather(0))
        n = run.config.autoencoder_iterations
        encoder = train_autoencoder(
            data.pictures,
            n_iterations=n,
            batch_size=run.config.autoencoder_batch,
            seed=0,
            device=torch.device("cuda" if cuda else "cpu"),
            paper=run.config.policy.image.white,
            report=lambda done: clock.tick("autoencoder", done, n),
        )
        partial = Path(given).with_name(f"{Path(given).name}.partial")
        encoder.network.save_pretrained(partial)
        partial.rename(given)
        self.ledger.note(
            run=f"autoencoder {Path(given).name}",
            iterations=n,
            data_s=0.0,
            compile_s=0.0,
            training_s=clock.total_s,
        )

    def _needs_autoencoder(self, config: TrainConfig) -> bool:
        place = Path(config.autoencoder or "")
        own = config.autoencoder is not None and config.init is None and place.is_relative_to(self.out)
        return own and not (place / "config.json").exists()


class _Clock:
    """When a training began to move, and a line every quarter of a minute."""

    def __init__(self, name: str, log: Log, between: Callable[[], object]) -> None:
        self.name, self.log, self.between = name, log, between
        self._began = self._last = time.monotonic()
        self._first: float | None = None

    def tick(self, what: str, done: int, total: int) -> None:
        """One more step."""
        now = time.monotonic()
        if what == "iterations" and self._first is None:
            self._first = now
        if now - self._last > 15 or done == total:
            self._last = now
            self.log(self.name, what, done, "of", total)
            self.between()

    @property
    def begun_s(self) -> float:
        """Until the first iteration was done: latents and compiling."""
        return 0.0 if self._first is None else self._first - self._began

    @property
    def total_s(self) -> float:
        """Until now."""
        return time.monotonic() - self._began


def _cores(device: str | None) -> int:
    """For what is done before a training; on a CPU alone, where a plan is only rehearsed, no processes."""
    return 1 if device == "cpu" else os.cpu_count() or 1


def _config_file(run: Run, out: Path) -> Path:
    return out / CONFIGS / f"{run.name}.json"


def _check_config(run: Run, out: Path) -> None:
    file = _config_file(run, out)
    if not file.exists():
        return
    found: dict[str, Any] = read_json(file)
    wanted = json.loads(json.dumps(run.config.to_json()))
    for key in [*wanted, *found]:
        if wanted.get(key) != found.get(key):
            raise RunDirectoryError(
                f"{out} holds a run {run.name} with another {key}: give another --out, or another name"
            )

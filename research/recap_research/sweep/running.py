"""Run a sweep: trainings one after another, evaluations in parallel. A stopped sweep is resumed."""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from recap.cli.one_line import run_script
from recap.evaluation.run_directory import read_info
from recap.evaluation.runner import evaluate
from recap.evaluation.summary import summarise
from recap.run_directory import CONFIG, hold_run_directory
from recap_research.sweep.results import note_seconds, write_results
from recap_research.sweep.sweep import Evaluation, Log, Run, Sweep
from recap_research.sweep.toy import shrink

BEGIN_S = 90.0  # no training starts with less time left: loading data and compiling cannot be interrupted
SAVE_S = 20.0  # for saving the state of a training
N_PARALLEL = {"pusht": 35}  # episodes that one process rolls out in parallel
USUAL_PARALLEL = 8
LINE_S = 15.0  # between two log lines of a training


class OutOfTimeError(Exception):
    """Stops an evaluation when the time is over; its finished episodes are kept."""


def parser(text: str | None) -> argparse.ArgumentParser:
    """The options of every sweep."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, required=True)
    made.add_argument(
        "--dry-run", action="store_true", help="check it, and say what is there and what is not"
    )
    made.add_argument("--only", nargs="+", metavar="NAME", help="of its runs and agents, only these")
    made.add_argument("--collect", action="store_true", help="only its demonstrations, which need no GPU")
    made.add_argument("--toy", action="store_true", help="all of it in miniature, on the CPU")
    made.add_argument("--device", help="cpu, to train there")
    made.add_argument("--eval-device", default="cuda")
    made.add_argument("--eval-workers", type=int, default=8, help="0: roll out between trainings, here")
    made.add_argument("--stop-after", type=float, default=1e9, metavar="SECONDS")
    return made


def run(text: str | None, build: Callable[[Sweep], None]) -> NoReturn:
    """The main function of a script without options of its own."""
    run_script(lambda: main(parser(text).parse_args(), build))


def main(given: argparse.Namespace, build: Callable[[Sweep], None]) -> int:
    """Build the sweep, then describe or run it; returns 1 if something is left to do."""
    began = time.time()
    cpu = given.toy or given.device == "cpu"
    sweep = Sweep(given.out, "cpu" if cpu else given.eval_device)
    build(sweep)
    if given.only:
        sweep.select(given.only)
    if given.toy:
        shrink(sweep)
    if given.dry_run:
        print("\n".join(describe(sweep)))
        return 0

    def log(*words: object) -> None:
        print(f"[{time.time() - began:6.1f}]", *words, flush=True)

    sweep.collect(1 if given.toy else os.cpu_count() or 1, log)
    if given.collect:
        return 0
    _prepare(cpu)
    whole = carry_out(
        sweep, given.eval_workers, began + given.stop_after, log, "cpu" if cpu else given.device
    )
    return 0 if whole else 1


def describe(sweep: Sweep) -> list[str]:
    """One line for each agent and run with its state."""
    lines = []
    for agent in sweep.agents:
        there = "done" if sweep.is_finished(agent) else f"{len(agent.spec.trials())} episodes"
        lines.append(f"{agent.name:<36} {there}")
    for run in sweep.runs:
        config = run.config
        missing = sum(len(e.spec.trials()) for e in run.evaluations if not sweep.is_finished(e))
        there = "trained" if is_trained(sweep, run) else f"{config.preset}, {config.n_iterations} iterations"
        lines.append(f"{run.name:<36} {there}, {f'{missing} episodes' if missing else 'evaluated'}")
    return lines


def is_trained(sweep: Sweep, run: Run) -> bool:
    """True if the policy is completely trained."""
    file = Path(sweep.policy(run.name)) / "config.json"
    if not file.exists():
        return False
    facts: dict[str, Any] = json.loads(file.read_text("utf-8"))["training"]
    return int(facts["iteration"]) >= run.config.n_iterations


def carry_out(sweep: Sweep, workers: int, deadline: float, log: Log, device: str | None = None) -> bool:
    """Train and evaluate what is missing; returns True if everything is finished.

    If a run of the same name has other settings, this is an error before anything starts.

    Args:
        workers: processes that evaluate during training; 0: evaluations run between trainings.
        deadline: time at which the sweep stops; everything is kept.
        device: cpu to train there; by default a GPU if there is one.
    """
    for run in sweep.runs:
        folder = _folder(sweep, run)
        if (folder / CONFIG).exists():
            with hold_run_directory(folder, run.config.to_json()):
                pass  # it has the same settings
    rollouts = _Rollouts(sweep, workers, deadline, log)
    try:
        for agent in sweep.agents:
            rollouts.start(agent)
        whole = True
        needed = {run.config.init for run in sweep.runs if not all(map(sweep.is_finished, run.evaluations))}
        for run in sweep.runs:
            evaluated = all(map(sweep.is_finished, run.evaluations))
            if evaluated and sweep.policy(run.name) not in needed:
                log(run.name, "is done")
            elif is_trained(sweep, run) or _train(sweep, run, deadline, log, device):
                for evaluation in run.evaluations:
                    rollouts.start(evaluation)
            else:
                whole = False
                log("no time for", run.name)
        whole = rollouts.wait() and whole
    finally:
        rollouts.close()
        write_results(sweep)
    log("all there" if whole else "not all there: the same command goes on")
    return whole


def _train(sweep: Sweep, run: Run, deadline: float, log: Log, device: str | None) -> bool:
    """Train one run to its end, or until the deadline; returns True if its policy is finished."""
    from recap.training.trainer import train

    init = run.config.init
    if init is not None and Path(init).is_relative_to(sweep.out) and not Path(init).exists():
        return False  # there was not enough time
    if deadline - time.time() < BEGIN_S:
        return False
    last = time.monotonic()

    def tell(what: str, done: int, total: int, note: str) -> None:
        nonlocal last
        if time.monotonic() - last > LINE_S or done == total:
            last = time.monotonic()
            log(run.name, what, done, "of", total, note)

    seconds = deadline - time.time() - SAVE_S
    outcome = train(run.config, _folder(sweep, run), progress=tell, max_seconds=seconds, device=device)
    gc.collect()  # frees memory for the next training
    note_seconds(sweep, run.name, outcome.seconds)
    return outcome.iterations >= run.config.n_iterations


def _folder(sweep: Sweep, run: Run) -> Path:
    return Path(sweep.policy(run.name)).parent


class _Rollouts:
    """Runs evaluations one after another in a thread, each with its worker processes."""

    def __init__(self, sweep: Sweep, workers: int, deadline: float, log: Log) -> None:
        self.sweep, self.workers, self.deadline, self.log = sweep, workers, deadline, log
        self._thread = ThreadPoolExecutor(1) if workers else None
        self._jobs: list[Future[bool]] = []
        self._here: list[bool] = []

    def start(self, evaluation: Evaluation) -> None:
        """Run the missing episodes of an evaluation, now or after the previous ones."""
        if self.sweep.is_finished(evaluation):
            return
        if self._thread is None:
            self._here.append(self._run(evaluation))
        else:
            self._jobs.append(self._thread.submit(self._run, evaluation))

    def wait(self) -> bool:
        """Wait for all evaluations; returns True if all succeeded."""
        return all([*self._here, *(job.result() for job in self._jobs)])

    def close(self) -> None:
        """Stop the running evaluation."""
        self.deadline = 0.0
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def _run(self, evaluation: Evaluation) -> bool:
        name, spec = evaluation.name, evaluation.spec
        folder, n_parallel = self.sweep.folder(evaluation), N_PARALLEL.get(spec.env, USUAL_PARALLEL)
        try:
            evaluate(
                spec, folder, workers=max(1, self.workers), batch_size=n_parallel, progress=self._check_time
            )
        except OutOfTimeError:
            self.log("no time for", name)
            return False
        except Exception as error:  # a failing evaluation must not stop the others
            self.log("FAILED", name, f"{type(error).__name__}: {error}")
            return False
        for group in summarise(*read_info(folder)).groups:
            self.log("EVALUATED", name, group.name, {key: str(rate) for key, rate in group.rates.items()})
        return True

    def _check_time(self, done: int, of: int) -> None:
        if time.time() > self.deadline and done < of:
            raise OutOfTimeError


def _prepare(cpu: bool) -> None:
    import diffusers
    import torch

    for name in ("AutoencoderKLWan", "CosmosTransformer3DModel", "UniPCMultistepScheduler"):
        getattr(diffusers, name)  # its lazy import fails where a rollout and a training ask at once
    if cpu:
        torch.set_num_threads(1)
        return
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 32  # one per table of slots; beyond it nothing is compiled

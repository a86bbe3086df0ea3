"""The processes of a run: what accelerate makes of them, and when they may be interrupted."""

from __future__ import annotations

import atexit
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs

from recap.errors import InputError, one_of
from recap.training.config import TrainConfig

# How long processes wait for the main one, which alone judges and rolls out: NCCL's ten minutes are too few.
PATIENCE = timedelta(hours=4)
TRACKERS = ("tensorboard", "wandb")  # accelerate's, besides metrics.jsonl
# Ctrl-C, and what schedulers send before they take a machine away.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def make_accelerator(
    config: TrainConfig, device: str | None = None, log: str = "tensorboard", out: Path | None = None
) -> Accelerator:
    """Processes, precision and trackers: one process, or as many as torchrun started."""
    if log == "wandb" and find_spec("wandb") is None:
        raise InputError("wandb is not installed: pip install wandb, or leave out --log wandb")
    cuda = torch.cuda.is_available() and device != "cpu"
    # To an instruction of one token Cosmos' queries and keys do nothing (`policies/lean.py`): without a
    # gradient of theirs the processes would wait for it.
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    return Accelerator(
        cpu=not cuda,
        mixed_precision="bf16" if config.bf16 and (cuda or cpu_has_bf16()) else "no",
        gradient_accumulation_steps=config.accumulate,
        log_with=one_of("log", log, TRACKERS) if out is not None and find_spec(log) is not None else None,
        project_dir=out,
        kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE), unused],
    )


def cpu_has_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware: then it is twice as fast as float32."""
    return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())


class Stopped(KeyboardInterrupt):
    """A signal asked the run to stop: Ctrl-C, or a scheduler that needs the machine."""

    def __init__(self, message: str = "", number: int = signal.SIGINT) -> None:
        super().__init__(*[message] if message else [])
        self.number = number


@contextmanager
def left_together(accelerator: Accelerator) -> Iterator[None]:
    """Processes that end or stop together leave their group at exit, or threads of gloo may abort them.

    After another error they do not: it may be of one process alone, which would wait for the others.
    """
    try:
        yield
    except Stopped:
        atexit.register(accelerator.state.destroy_process_group)
        raise
    atexit.register(accelerator.state.destroy_process_group)


@contextmanager
def _handled(handler: Callable[[int], None]) -> Iterator[None]:
    """Signals that ask to stop go to the handler; in the main thread, which alone gets them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda n, _: handler(n)) for number in STOPPING}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Every signal that asks to stop does what Ctrl-C does."""

    def stop(number: int) -> None:
        raise Stopped(number=number)

    with _handled(stop):
        yield


@contextmanager
def noted(active: bool = True) -> Iterator[list[int]]:
    """Signals that ask to stop are noted, and nothing else happens."""
    asked: list[int] = []
    with _handled(asked.append) if active else nullcontext():
        yield asked


@contextmanager
def undisturbed(active: bool = True) -> Iterator[None]:
    """Signals wait until the step is whole: half a step could not be resumed bit by bit."""
    with noted(active) as asked:
        yield
    if asked:
        raise Stopped(number=asked[0])

"""The processes of a run: set-up with accelerate, and stop signals."""

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

# Processes wait while the main one validates and rolls out: NCCL's default of ten minutes is too short.
PATIENCE = timedelta(hours=4)
TRACKERS = ("tensorboard", "wandb")  # of accelerate, in addition to metrics.jsonl
# Ctrl-C, and the signals that schedulers send before they take a machine away.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def make_accelerator(
    config: TrainConfig, device: str | None = None, log: str = "tensorboard", out: Path | None = None
) -> Accelerator:
    """Set up processes, precision and trackers, for one process or as many as torchrun started."""
    if log == "wandb" and find_spec("wandb") is None:
        raise InputError("wandb is not installed: pip install wandb, or leave out --log wandb")
    cuda = torch.cuda.is_available() and device != "cpu"
    # With an instruction of one token, the queries and keys of Cosmos' cross-attention have no effect
    # (`policies/lean.py`) and get no gradient; DDP would wait for it.
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
    """True if this CPU has bfloat16 instructions: bfloat16 is then twice as fast as float32."""
    return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())


class Stopped(KeyboardInterrupt):
    """A signal stopped the run: Ctrl-C, or a scheduler that needs the machine."""

    def __init__(self, message: str = "", number: int = signal.SIGINT) -> None:
        super().__init__(*[message] if message else [])
        self.number = number


@contextmanager
def leave_group_at_exit(accelerator: Accelerator) -> Iterator[None]:
    """Leave the process group at exit if the run ends or is stopped; otherwise threads of gloo may abort.

    Not after other errors: if only one process fails, leaving would wait for the others.
    """
    try:
        yield
    except Stopped:
        atexit.register(accelerator.state.destroy_process_group)
        raise
    atexit.register(accelerator.state.destroy_process_group)


@contextmanager
def _signal_handler(handler: Callable[[int], None]) -> Iterator[None]:
    """Pass stop signals to the handler, if this is the main thread: no other thread receives signals."""
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
    """Stop signals have the effect of Ctrl-C."""

    def stop(number: int) -> None:
        raise Stopped(number=number)

    with _signal_handler(stop):
        yield


@contextmanager
def record_signals(active: bool = True) -> Iterator[list[int]]:
    """Stop signals are only recorded, in the list."""
    caught: list[int] = []
    with _signal_handler(caught.append) if active else nullcontext():
        yield caught


@contextmanager
def delay_signals(active: bool = True) -> Iterator[None]:
    """Delay stop signals until the step is complete: half a step could not be resumed exactly."""
    with record_signals(active) as caught:
        yield
    if caught:
        raise Stopped(number=caught[0])

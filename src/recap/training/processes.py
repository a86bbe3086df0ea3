"""The processes of a run: what accelerate makes of them, and when they may be interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs

from recap.training.config import TrainConfig

# How long processes wait for the main one, which alone judges and rolls out: NCCL's ten minutes are too few.
PATIENCE = timedelta(hours=4)


def make_accelerator(config: TrainConfig, device: str | None = None) -> Accelerator:
    """Processes and precision: one process, or as many as torchrun started."""
    cuda = torch.cuda.is_available() and device != "cpu"
    # To an instruction of one token Cosmos' queries and keys do nothing (`policies/lean.py`): without a
    # gradient of theirs the processes would wait for it.
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    return Accelerator(
        cpu=not cuda,
        mixed_precision="bf16" if config.bf16 and (cuda or cpu_has_bf16()) else "no",
        gradient_accumulation_steps=config.accumulate,
        kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE), unused],
    )


def cpu_has_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware: then it is twice as fast as float32."""
    return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())


@contextmanager
def noted(active: bool = True) -> Iterator[list[int]]:
    """Ctrl-C is noted, and nothing else happens."""
    asked: list[int] = []
    if not active or threading.current_thread() is not threading.main_thread():
        yield asked  # signals reach the main thread only
        return
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def undisturbed(active: bool = True) -> Iterator[None]:
    """Ctrl-C waits until the step is whole: half a step could not be resumed bit by bit."""
    with noted(active) as asked:
        yield
    if asked:
        raise KeyboardInterrupt

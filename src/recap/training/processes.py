"""The processes of a run: what accelerate makes of them, and when they may be interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator

from recap.training.config import TrainConfig


def make_accelerator(config: TrainConfig, device: str | None = None) -> Accelerator:
    """Processes and precision: one process, or as many as torchrun started."""
    cuda = torch.cuda.is_available() and device != "cpu"
    plugin: dict[str, Any] = {}
    if config.fsdp and cuda and torch.cuda.device_count() > 1:
        from accelerate import FullyShardedDataParallelPlugin

        plugin["fsdp_plugin"] = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=list(config.policy.network.blocks),
        )
    return Accelerator(
        cpu=not cuda,
        mixed_precision="bf16" if config.bf16 and (cuda or cpu_has_bf16()) else "no",
        gradient_accumulation_steps=config.accumulate,
        **plugin,
    )


def cpu_has_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware: then it is twice as fast as float32."""
    return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C waits until the step is whole: half a step could not be resumed bit by bit."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt

"""Batches made while the one before is learned from."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from recap.policies.model import Batch

Drawn = tuple[Batch, dict[str, Tensor], Tensor]


class Ahead:
    """The batch of an iteration; that of the next one is then begun, in a thread and a stream of its own."""

    def __init__(self, draw: Callable[[int], Drawn], n_iterations: int, device: torch.device) -> None:
        self._draw, self._n_iterations = draw, n_iterations
        cuda: Any = torch.cuda
        self._stream = cuda.Stream(device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "batches")
        self._begun: dict[int, Future[Drawn]] = {}

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def __call__(self, iteration: int) -> Drawn:
        drawn = (self._begun.pop(iteration, None) or self._begin(iteration)).result()
        if self._stream is not None:  # before it is given the next one to do
            now = torch.cuda.current_stream()
            now.wait_stream(self._stream)
            for tensor in _tensors(drawn):
                tensor.record_stream(now)  # its memory is not given away while it is in use here
        if iteration + 1 < self._n_iterations:
            self._begun = {iteration + 1: self._begin(iteration + 1)}
        return drawn

    def _begin(self, iteration: int) -> Future[Drawn]:
        return self._thread.submit(self._work, iteration)

    def _work(self, iteration: int) -> Drawn:
        with torch.cuda.stream(self._stream):  # None: as it is
            return self._draw(iteration)


def _tensors(drawn: Drawn) -> list[Any]:
    batch, noise, level = drawn
    weight = [] if batch.weight is None else [batch.weight]
    return [*batch.values.values(), batch.present, batch.text, *weight, *noise.values(), level]

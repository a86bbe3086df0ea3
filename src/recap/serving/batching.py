"""Batches requests for the policy, which runs on one thread beside the event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from recap.errors import BusyError
from recap.serving.metrics import Metrics

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
T = TypeVar("T")

LINGER_S = 0.004  # wait for clients of the last batch, which send their next requests together


class Batcher(Generic[RequestT, AnswerT]):
    """Answers requests in order. A client has at most one open request, so none starves.

    Args:
        serve: called with a batch on the policy's thread; returns an answer or an exception for each.
        max_waiting: maximum queue length; beyond it, the client that was served most recently is refused.
        max_batch: maximum size of a batch.
        served_at: when the client of a request was last served.
    """

    def __init__(
        self,
        serve: Callable[[Sequence[RequestT]], Sequence[AnswerT | Exception]],
        metrics: Metrics,
        max_waiting: int,
        max_batch: int,
        served_at: Callable[[RequestT], float] = lambda request: 0.0,
    ) -> None:
        self._serve, self._metrics, self._max_batch = serve, metrics, max_batch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recap-policy")
        self._max_waiting, self._served_at = max_waiting, served_at
        self._waiting: deque[tuple[RequestT, float, asyncio.Future[AnswerT]]] = deque()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to serve, on the running event loop."""
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Finish the current batch and cancel the waiting requests."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while self._waiting:
            self._waiting.popleft()[2].cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def ask(self, request: RequestT) -> AnswerT:
        """Wait for the answer; raises BusyError at once if the queue is full."""
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        busy = BusyError(f"busy: {self._max_waiting} requests wait already; try again soon")
        if len(self._waiting) >= self._max_waiting:
            self._metrics.busy.add()
            # Not simply the newest request, or clients with lucky timing would get every free place.
            times = [self._served_at(entry[0]) for entry in self._waiting]
            latest = times.index(max(times))
            if self._served_at(request) >= times[latest]:
                raise busy
            turned_away = self._waiting[latest][2]
            del self._waiting[latest]
            if not turned_away.done():
                turned_away.set_exception(busy)
        self._waiting.append((request, time.perf_counter(), answer))
        self._arrived.set()
        self._metrics.waiting.set(len(self._waiting))
        return await answer

    async def run(self, work: Callable[[], T]) -> T:
        """Run other work on the policy's thread, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _work(self) -> None:
        loop, last = asyncio.get_running_loop(), 1
        while True:
            await self._arrived.wait()
            if len(self._waiting) < min(last, self._max_batch):
                await asyncio.sleep(LINGER_S)
            batch = [self._waiting.popleft() for _ in range(min(self._max_batch, len(self._waiting)))]
            if not self._waiting:
                self._arrived.clear()
            batch = [entry for entry in batch if not entry[2].done()]  # without requests that were cancelled
            last = len(batch)
            self._metrics.waiting.set(len(self._waiting))
            if not batch:
                continue
            now = time.perf_counter()
            for _, since, _ in batch:
                self._metrics.queue.observe(now - since)
            self._metrics.batch.observe(len(batch))
            answers: Sequence[AnswerT | Exception]
            try:
                answers = await loop.run_in_executor(
                    self._thread, self._serve, [request for request, *_ in batch]
                )
            except Exception as error:
                answers = [error] * len(batch)
            for (*_, future), answer in zip(batch, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

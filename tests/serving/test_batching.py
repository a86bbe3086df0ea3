"""Batching: one thread computes, waiting requests form batches, a full queue refuses at once."""

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from recap.errors import BusyError, InputError
from recap.serving.batching import Batcher
from recap.serving.metrics import Metrics


class Slow:
    """Answers once `go` is set, and records its batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.threads: set[str] = set()
        self.go = threading.Event()
        self.begun = threading.Event()

    def __call__(self, asked: Sequence[int]) -> list[int | Exception]:
        self.threads.add(threading.current_thread().name)
        self.batches.append(list(asked))
        self.begun.set()
        assert self.go.wait(10)
        return [InputError(f"no {x}") if x < 0 else 10 * x for x in asked]


async def begin(slow: Slow, metrics: Metrics, max_waiting: int = 4, max_batch: int = 3) -> Batcher[int, int]:
    batcher: Batcher[int, int] = Batcher(slow, metrics, max_waiting, max_batch)
    batcher.start()
    return batcher


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 10)


def test_waiting_requests_are_batched_in_order() -> None:
    slow, metrics = Slow(), Metrics()

    async def story() -> None:
        batcher = await begin(slow, metrics)
        first = asyncio.create_task(batcher.ask(1))
        await until(slow.begun)
        others = [asyncio.create_task(batcher.ask(x)) for x in (2, 3, 4, 5)]
        await asyncio.sleep(0)
        assert metrics.waiting.value == 4
        slow.go.set()
        assert await first == 10
        assert await asyncio.gather(*others) == [20, 30, 40, 50]
        await batcher.stop()

    asyncio.run(story())
    assert slow.batches == [[1], [2, 3, 4], [5]]
    assert len(slow.threads) == 1
    assert metrics.batch.count == 3
    assert metrics.batch.sum == 5


def test_a_request_beyond_the_queue_is_refused_at_once_and_may_be_repeated() -> None:
    slow, metrics = Slow(), Metrics()

    async def story() -> None:
        batcher = await begin(slow, metrics)
        tasks = [asyncio.create_task(batcher.ask(0))]
        await until(slow.begun)
        tasks += [asyncio.create_task(batcher.ask(x)) for x in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="busy"):
            await batcher.ask(9)
        slow.go.set()
        await asyncio.gather(*tasks)
        assert await batcher.ask(9) == 90
        await batcher.stop()

    asyncio.run(story())
    assert metrics.busy.value == 1


def test_an_error_reaches_only_its_own_request_and_cancelled_requests_are_skipped() -> None:
    slow = Slow()

    async def story() -> None:
        batcher = await begin(slow, Metrics())
        first = asyncio.create_task(batcher.ask(1))
        await until(slow.begun)
        bad, good, gone = (asyncio.create_task(batcher.ask(x)) for x in (-2, 3, 4))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        slow.go.set()
        assert await first == 10
        assert await good == 30
        with pytest.raises(InputError, match="no -2"):
            await bad
        await batcher.stop()

    asyncio.run(story())
    assert slow.batches == [[1], [-2, 3]]


def test_an_exception_in_a_batch_does_not_stop_the_batcher() -> None:
    calls: list[int] = []

    def serve(asked: Sequence[int]) -> list[int | Exception]:
        calls.append(len(asked))
        if len(calls) == 1:
            raise RuntimeError("broken")
        return list(asked)

    async def story() -> None:
        batcher: Batcher[int, int] = Batcher(serve, Metrics(), 4, 4)
        batcher.start()
        with pytest.raises(RuntimeError, match="broken"):
            await batcher.ask(1)
        assert await batcher.ask(2) == 2
        names = await batcher.run(lambda: threading.current_thread().name)
        assert names.startswith("recap-policy")
        await batcher.stop()

    asyncio.run(story())


class Client:
    """Asks again right after a reply, and after `patience_s` when refused."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.n_replies, self.served_at = 0, 0.0

    async def drive(self, batcher: Batcher["Client", None], until: float) -> None:
        while time.monotonic() < until:
            try:
                await batcher.ask(self)
                self.n_replies += 1
            except BusyError:
                await asyncio.sleep(self.patience_s)


def test_more_clients_than_the_queue_holds_are_served_fairly() -> None:
    def serve(asked: Sequence[Client]) -> list[Exception | None]:
        time.sleep(0.002)
        for client in asked:
            client.served_at = time.monotonic()
        return [None] * len(asked)

    async def story() -> list[Client]:
        # Half of the clients retry ten times as often. They must not get ten times as many replies.
        clients = [Client(0.001 if i % 2 else 0.01) for i in range(12)]
        batcher: Batcher[Client, None] = Batcher(serve, Metrics(), 2, 1, lambda client: client.served_at)
        batcher.start()
        await asyncio.gather(*(client.drive(batcher, time.monotonic() + 2.0) for client in clients))
        await batcher.stop()
        return clients

    replies = sorted(client.n_replies for client in asyncio.run(story()))
    assert replies[0] >= 0.4 * replies[-1], replies

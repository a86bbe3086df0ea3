"""Distributes work over processes of this machine; each asks for its next item when it is idle."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

from recap.errors import RecapError

Item = TypeVar("Item")
Result = TypeVar("Result")

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class WorkerLostError(RecapError):
    """A worker ended early: killed, out of memory, or crashed."""


def run_in_workers(
    work: Callable[[Iterator[Item]], Iterator[Result]], items: Sequence[Item], n_workers: int
) -> Generator[Result, None, None]:
    """Yield the results of `work` in order of completion; close to stop.

    `work` maps an iterator of items to an iterator of results. With one worker it runs in this process. With
    more it is sent to each, so it must be a module-level function, or a `functools.partial` of one.
    """
    n_workers = min(n_workers, len(items))
    if n_workers <= 1:
        yield from work(iter(items))
        return
    waiting = iter(items)
    processes: dict[Connection, SpawnProcess] = {}
    try:
        with _quiet_single_threaded():
            for _ in range(n_workers):
                ours, theirs = multiprocessing.Pipe()
                process = multiprocessing.get_context("spawn").Process(
                    target=_serve, args=(theirs, work), daemon=True
                )
                process.start()
                theirs.close()
                processes[ours] = process
        while processes:
            for pipe in wait(list(processes)):
                assert isinstance(pipe, Connection)
                yield from _attend(pipe, processes, waiting)
    finally:
        for process in processes.values():
            process.kill()  # they hold no unsaved results
        for process in processes.values():
            process.join()


def _attend(
    pipe: Connection, processes: dict[Connection, SpawnProcess], waiting: Iterator[Any]
) -> Iterator[Any]:
    """Handle one message of a worker: (result,), an error, or None, a request for another item."""
    try:
        message = pipe.recv()
    except (EOFError, OSError):
        process = processes.pop(pipe)
        process.join()
        if process.exitcode != 0:
            code = process.exitcode or 0
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"crashed, exit code {code}"
            why = " (out of memory?)" if code == -signal.SIGKILL else ""
            raise WorkerLostError(f"a worker process {how}{why}") from None
        return
    if isinstance(message, tuple):
        yield from message
    elif isinstance(message, Exception):
        raise message
    else:
        with suppress(OSError):  # it died; the end of its pipe is read next
            pipe.send(list(islice(waiting, 1)))  # empty if no items are left


@contextmanager
def _quiet_single_threaded() -> Iterator[None]:
    """Set what child processes inherit: one thread each, and Ctrl-C blocked."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _serve(pipe: Connection, work: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    # A killed parent closes nothing. Without this thread its workers would finish their current item.
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()

    def ask() -> Iterator[Any]:
        while True:
            pipe.send(None)
            answer = pipe.recv()
            if not answer:
                return
            yield answer[0]

    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        try:
            for result in work(ask()):
                pipe.send((result,))
        except (RecapError, OSError, ModuleNotFoundError) as error:
            pipe.send(error)


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)

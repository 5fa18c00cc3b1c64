"""Simulations in worker processes: one at a time in each, ended at once when the work is to stop, and missed when one dies."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from .policies import Outcome, Requests, completed, resolve
from .rules import OBJECT_RULES, Rules

#: How soon a request to stop is seen while every worker is busy.
_LOOK_S = 0.1
_ARRAYS = ("objects", "sizes", "times", "groups", "bytes_read", "name_text", "name_ends")


class SimulationError(Exception):
    """A simulation failed; the text names it and says why."""


@dataclass(frozen=True)
class Task:
    """One simulation: what it is called in messages, the folder of the trace's arrays, and what is asked."""

    title: str
    arrays: Path
    policy: str
    capacity: int
    windows: int
    rules: Rules = OBJECT_RULES
    seed: int = 1


def save_arrays(requests: Requests, folder: Path) -> None:
    """Write a trace's arrays, so that all workers share one copy of them in memory."""
    folder.mkdir(parents=True)
    for name in _ARRAYS:
        np.save(folder / f"{name}.npy", getattr(requests, name))


class Pool:
    """``workers`` processes. Use as a context; on leaving it they are gone, whatever they were at. Not thread-safe."""

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._workers: list[tuple[Any, Connection]] = []

    def __enter__(self) -> Self:
        # Not forked: threads of libraries would not be there, and their locks would.
        context = multiprocessing.get_context("spawn")
        # Ctrl-C goes to all processes of the terminal; the parent alone acts on it. Blocked from a worker's first moment on.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(self._count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                self._workers.append((process, ours))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process, connection in self._workers:
            process.terminate()
            process.join()
            process.close()
            connection.close()
        self._workers = []

    def run(self, tasks: Sequence[Task], stop: threading.Event) -> Iterator[tuple[int, Outcome]]:
        """The number of each task and its outcome, as they are done; ends early once ``stop`` is set. Raises :class:`SimulationError`."""
        waiting = deque(range(len(tasks)))
        busy: dict[Connection, tuple[int, Any]] = {}
        idle = deque(self._workers)
        while not stop.is_set() and (waiting or busy):
            while waiting and idle:
                process, connection = idle.popleft()
                number = waiting.popleft()
                busy[connection] = (number, process)
                try:
                    connection.send(tasks[number])
                except OSError as error:
                    raise _dead(tasks[number], process) from error
            for ready in wait(list(busy), _LOOK_S):
                assert isinstance(ready, Connection)
                number, process = busy.pop(ready)
                try:
                    answer: Outcome | str = ready.recv()
                except (EOFError, OSError) as error:
                    raise _dead(tasks[number], process) from error
                if isinstance(answer, str):
                    raise SimulationError(f"{tasks[number].title}: {answer}")
                idle.append((process, ready))
                yield number, answer


def _dead(task: Task, process: Any) -> SimulationError:
    process.join()
    return SimulationError(
        f"{task.title}: the process that simulated it ended with {process.exitcode}; "
        "where that is -9 the machine had too little memory: fewer --workers"
    )


def _work(connection: Connection) -> None:
    """A worker: until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    while True:
        try:
            task: Task = connection.recv()
        except EOFError:
            return
        answer: Outcome | str
        try:
            arrays = {name: np.load(task.arrays / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
            answer = completed(resolve(task.policy, task.rules, task.seed).simulate(Requests(**arrays), task.capacity, task.windows))
        except (ValueError, OSError, MemoryError) as error:
            answer = f"{type(error).__name__}: {error}"
        try:
            connection.send(answer)
        except OSError:
            return

"""What commands with a beginning and an end show a person, and how they are asked to end."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

#: A bar that is drawn for each record would cost more than the record.
_REDRAW_S = 0.1


def say(text: str) -> None:
    """Tell a person, on standard error."""
    print(text, file=sys.stderr, flush=True)


class Stopper:
    """SIGINT and SIGTERM set ``event`` (and ``wake``, for who waits for that), as long as the context lasts; a second one has its usual
    effect.
    """

    def __init__(self, wake: threading.Event | None = None) -> None:
        self.event = threading.Event()
        self._wake = wake
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for sign in (signal.SIGINT, signal.SIGTERM):
            self._before[sign] = signal.signal(sign, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.event.set()
        if self._wake is not None:
            self._wake.set()
        self._restore()

    def _restore(self) -> None:
        for sign, handler in self._before.items():
            signal.signal(sign, handler)
        self._before = {}


class Shown:
    """A bar (or, where the end is not known, a count), on a terminal only."""

    def __init__(self, redraw: Callable[[int, int, str], None]) -> None:
        self._redraw = redraw
        self._next_s = 0.0

    def update(self, completed: int, units: int, text: str) -> None:
        """Draw, unless that was done a moment ago: the share that is done, how many of the units that is."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _REDRAW_S
            self._redraw(completed, units, text)


@contextlib.contextmanager
def counter(unit: str, total: int | None = None) -> Iterator[Shown]:
    """Progress on standard error, until ``total`` is completed, or as far as it comes; with the rate of ``unit``."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    ends = (BarColumn(), TaskProgressColumn()) if total else (SpinnerColumn(),)
    columns = [*ends, TextColumn("{task.fields[rate]}"), TextColumn("{task.description}"), TimeElapsedColumn()]
    if total:
        columns.append(TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total, rate="")
        began = time.monotonic()

        def redraw(completed: int, units: int, text: str) -> None:
            rate = units / max(time.monotonic() - began, 0.001)
            progress.update(task, completed=completed, description=text, rate=f"{rate:,.0f} {unit}/s")

        yield Shown(redraw)

"""The demo's progress: a bar on a terminal, and a line for each finished step everywhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_TICK_S = 0.5
Say = Callable[[str], None]


class Steps:
    """Steps of known length, one after the other. Use as a context."""

    def __init__(self, console: Console, total_s: float) -> None:
        self._console = console
        self._began = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<36.36}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=total_s)
        self._done_s = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextlib.contextmanager
    def step(self, name: str, expected_s: float) -> Iterator[Say]:
        """One step: the bar moves with the clock up to the step's share. Yields a function that tells which part of it is being done."""
        began = time.monotonic()
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(_TICK_S):
                self._progress.update(self._task, completed=self._done_s + min(time.monotonic() - began, expected_s))

        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        self._progress.update(self._task, description=name)
        try:
            yield lambda part: self._progress.update(self._task, description=f"{name}: {part}")
        finally:
            ended.set()
            ticker.join()
        self._done_s += expected_s
        self._progress.update(self._task, completed=self._done_s)
        self.say(f"{name}: done in {time.monotonic() - began:.0f} s")

    def say(self, text: str) -> None:
        """A line that stays, with the time since the start."""
        self._console.print(f"[dim]{time.monotonic() - self._began:5.0f} s[/dim]  {escape(text)}", highlight=False)

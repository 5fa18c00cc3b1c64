"""What the stream does beside its queries, in its own session: the dataset side table is made anew, finished days are put together.

Each is a thread that does one thing every so often. What fails is counted and said, and tried again next time: the stream goes on, and what
was there stays. A job of theirs waits for a batch and makes the next one wait.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .compaction import Plan, compact
from .popularity import publish
from .reason import reason
from .table import NoTable, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from smartcache.config import Config

#: The first compaction comes after this share of the time between two: a stream that is started anew each day compacts each day.
FIRST_COMPACTION = 0.1


class Chore:
    """One thread. ``counts`` may be read at any time; ``join`` returns when it has ended, or 10 s after the session was stopped."""

    def __init__(self, name: str, first_s: float, every_s: float, work: Callable[[], None], failures: str, stays: str) -> None:
        """``work`` is done after ``first_s``, then every ``every_s``; it counts in ``counts``, where ``failures`` names those that failed.

        ``stays``: what a failure leaves as it was, for people.
        """
        self._name, self._first_s, self._every_s, self._work, self._failures, self._stays = name, first_s, every_s, work, failures, stays
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.counts: dict[str, int] = {failures: 0}

    def start(self) -> None:
        """Begin to wait for the first time."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """It is not begun again; what is under way ends with the session."""
        self._stop.set()

    def join(self) -> None:
        """Wait for its end, for 10 s at most."""
        self._thread.join(10.0)

    def _run(self) -> None:
        wait_s = self._first_s
        while not self._stop.wait(min(wait_s, threading.TIMEOUT_MAX)):
            wait_s = self._every_s
            try:
                self._work()
            except NoTable:  # before the first batch
                wait_s = min(self._first_s, self._every_s)
            except Exception as error:
                if not self._stop.is_set():
                    self.counts[self._failures] += 1
                    print(f"{self._name}: {reason(error)}; {self._stays}", file=sys.stderr, flush=True)


def chores(spark: SparkSession, config: Config) -> list[Chore]:
    """What the configuration asks for, not started yet."""
    found = []
    if config.side_table.file:
        found.append(side_table(spark, config))
    if config.compaction.stream_every_s:
        found.append(compaction(spark, config))
    return found


def side_table(spark: SparkSession, config: Config) -> Chore:
    """Publish the side table as soon as there is an access table, then every [side_table] refresh_s."""

    def work() -> None:
        published = publish(spark, config, Path(config.side_table.file), time.time_ns() // 1000)
        chore.counts["side_tables_total"] += 1
        chore.counts |= {"side_table_timestamp_seconds": published.version // 1_000_000, "side_table_datasets": published.datasets}

    every_s = config.side_table.refresh_s
    chore = Chore("side table", config.streaming.trigger_s, every_s, work, "side_table_failures_total", "it stays as it was")
    chore.counts |= {"side_tables_total": 0, "side_table_timestamp_seconds": 0, "side_table_datasets": 0}
    return chore


def compaction(spark: SparkSession, config: Config) -> Chore:
    """Put the small files of finished days together, in all tables, every [compaction] stream_every_s."""

    def work() -> None:
        plan = Plan.of(config.compaction, time.time())
        failed: Exception | None = None
        for table in tables_of(config).values():
            try:
                chore.counts["compacted_files_total"] += compact(spark, table, plan).files_before
            except NoTable:  # the first rows for it are still to come
                continue
            except Exception as error:  # the others are compacted all the same
                failed = failed or error
        if failed is not None:
            raise failed
        chore.counts["compactions_total"] += 1
        chore.counts["compaction_timestamp_seconds"] = plan.now_ms // 1000

    every_s = config.compaction.stream_every_s
    stays = "the tables have the same rows"
    chore = Chore("compaction", FIRST_COMPACTION * every_s, every_s, work, "compaction_failures_total", stays)
    chore.counts |= {"compactions_total": 0, "compacted_files_total": 0, "compaction_timestamp_seconds": 0}
    return chore

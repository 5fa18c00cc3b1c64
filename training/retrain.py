"""Retraining over a sliding window: a training set of the last days of the access table, and a challenger trained on it, again and again.

A round is the two commands that a person would give, each in a process of its own (Spark's and TensorFlow's memory go with it):

    smartcache build-dataset --from DAY --output DIR/set-TIME
    smartcache train --dataset DIR/set-TIME --replay TABLE --warm-start champion --drift

so what is registered is a challenger like any other, its epoch chosen by a replay of the access table, its run with the report of how the
opens have changed since the champion's training. Promotion stays ``smartcache promote``'s, by its gates.

A round that was stopped or killed in its training goes on with it, as long as the training set is there. One process for each
``[retraining] dir``, held by a lock, which a command that outlives a killed process holds on to.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any, Final

from smartcache import lock
from smartcache.config import Config
from smartcache.inference import replay
from smartcache.inference.gates import GateError

from .dataset import MANIFEST
from .state import FILE as STATE

_SET: Final = "set-"
_LOCK: Final = ".lock"
LAST: Final = "last.json"
#: How soon a stop is seen while a command runs, and how long the command may take to end then.
_LOOK_S, _END_S = 0.2, 60.0


class RetrainError(Exception):
    """A round that failed, or cannot begin; the text names thing, reason and way out."""


class Stopped(Exception):
    """It was asked to end within a round."""


@dataclass(frozen=True)
class Work:
    """The folder ``[retraining] dir``."""

    folder: Path

    @contextmanager
    def held(self) -> Iterator[int]:
        """Be the one there; the lock's file descriptor. Raises :class:`RetrainError`."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            taken = lock.take(self.folder / _LOCK)
        except OSError as error:
            raise RetrainError(
                f"[retraining] dir {self.folder}: cannot be written ({error.strerror}); name a folder of this user"
            ) from error
        except lock.Held as error:
            raise RetrainError(
                f"[retraining] dir {self.folder}: another `smartcache retrain` (process {error.owner}) is at work here; wait for it"
            ) from error
        try:
            yield taken
        finally:
            os.close(taken)

    def begun(self, most_s: float) -> Path | None:
        """The newest training set, if its training was not ended and it was made less than ``most_s`` ago: an older one has nothing new."""
        for path in self._sets()[-1:]:
            young = time.time() - (path / MANIFEST).stat().st_mtime < most_s
            if young and (path.with_name(f".{path.name}.training") / STATE).is_file():
                return path
        return None

    def fresh(self) -> Path:
        """The folder of the next training set."""
        return self.folder / f"{_SET}{datetime.now(UTC).strftime('%Y%m%dT%H%M%S')}"

    def prune(self, keep: int) -> None:
        """Remove all but the newest ``keep`` training sets, with what their trainings had reached, and those that were not ended."""
        whole = self._sets()
        for path in self.folder.glob(f"{_SET}*"):
            if path not in whole[-keep:]:
                shutil.rmtree(path, ignore_errors=True)
                shutil.rmtree(path.with_name(f".{path.name}.training"), ignore_errors=True)

    def write_last(self, facts: dict[str, Any]) -> None:
        """Say what the last round did; a reader sees the old or the new whole."""
        draft = self.folder / f"{LAST}.tmp"
        draft.write_text(json.dumps(facts, indent=1) + "\n")
        draft.replace(self.folder / LAST)

    def _sets(self) -> list[Path]:
        return sorted(path.parent for path in self.folder.glob(f"{_SET}*/{MANIFEST}"))


def first_day(config: Config) -> datetime:
    """Where the window begins: ``window_days`` before the end of the last day of the access table. Raises :class:`RetrainError`."""
    table = config.streaming.table
    try:
        with replay.snapshot_of(config, table, "[streaming] table ", "train where the table is") as snapshot:
            last = snapshot.days[-1]
    except GateError as error:
        raise RetrainError(str(error)) from error
    return datetime(last.year, last.month, last.day, tzinfo=UTC) + timedelta(days=1) - timedelta(days=config.retraining.window_days)


def once(config: Config, config_file: Path | None, work: Work, lock: int, stop: Event, say: Callable[[str], None]) -> None:
    """One round. Raises :class:`RetrainError` and :class:`Stopped`."""
    began = datetime.now(UTC)
    common = ["--config", str(config_file)] if config_file is not None else []
    dataset = work.begun(config.retraining.every_s)
    if dataset is None:
        dataset, start = work.fresh(), first_day(config)
        say(f"{_clock()} training set of the opens since {start.isoformat(timespec='minutes')}: {dataset}")
        _run(["build-dataset", "--from", start.isoformat(), "--output", str(dataset), *common], lock, stop)
    else:
        say(f"{_clock()} going on with the training on {dataset}")
    options = ["--replay", config.streaming.table, "--drift"]
    if config.retraining.warm_start:
        options += ["--warm-start", "champion"]
    _run(["train", "--dataset", str(dataset), *options, *common], lock, stop)
    work.prune(config.retraining.keep)
    ended = datetime.now(UTC)
    facts = {"began": began.isoformat(timespec="seconds"), "ended": ended.isoformat(timespec="seconds"), "dataset": str(dataset)}
    work.write_last(facts)
    say(f"{_clock()} done in {(ended - began).total_seconds():.0f} s")


def every(config: Config, config_file: Path | None, work: Work, lock: int, stop: Event, say: Callable[[str], None]) -> None:
    """Round after round until stopped; one that fails is said, and the next one comes at its time. Raises :class:`Stopped`."""
    while not stop.is_set():
        began = time.monotonic()
        try:
            once(config, config_file, work, lock, stop, say)
        except RetrainError as error:
            say(f"{_clock()} {error}")
        left = max(0.0, config.retraining.every_s - (time.monotonic() - began))
        say(f"{_clock()} the next round is in {left:.0f} s")
        stop.wait(left)


def _run(arguments: Sequence[str], lock: int, stop: Event) -> None:
    """A command of ours, to its end; what it says it says itself. A stop is handed on to it."""
    if stop.is_set():
        raise Stopped
    # In a session of its own: it ends by our signal alone, and not by the terminal's besides.
    process = subprocess.Popen(
        [sys.executable, "-m", "smartcache", *arguments], pass_fds=[lock], stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while process.poll() is None:
            if stop.wait(_LOOK_S):
                process.terminate()
                _end(process)
    except BaseException:
        process.terminate()
        _end(process)
        raise
    if stop.is_set() and process.returncode != 0:
        raise Stopped
    if process.returncode != 0:
        raise RetrainError(f"`smartcache {arguments[0]}` has failed, status {process.returncode}; its words are above")


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _clock() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

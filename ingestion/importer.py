"""The import of files: each row or line becomes a record, or a dead letter that names file, row, column, rule and value."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from smartcache import traces
from smartcache.traces import SourceError

from . import jobs, trace, trace_files
from .batch import BatchOutput
from .counters import MEANINGS, Counters
from .errors import ParseError
from .gstream import GStreamHandler
from .opens import FStreamHandler
from .output import Record
from .pseudonym import Pseudonyms
from .shoveler import ShovelerHandler

STDIN = Path("-")
#: Where so many rows at the start give no record, the file is not what it was taken for.
HOPELESS_ROWS = 1000
#: Counters of the collector's handlers that are told at the end of shoveled files, and what is no news of these.
_TOLD = frozenset(MEANINGS) - {"records_parsed", "dead_letters"}
_USUAL = frozenset(("ident", "other_packet", "other_record", "other_gstream", "summary"))
#: Errors that are shown; all are counted, and all are dead letters.
SHOWN_ERRORS = 10


@dataclass(slots=True)
class Done:
    """What became of the rows of one file so far."""

    rows: int = 0
    skipped: int = 0
    records: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    at: int = 0

    def line(self) -> str:
        """For a person."""
        return f"{self.rows} rows, {self.records} records" + self.error_text()

    def error_text(self) -> str:
        """Of the errors alone; empty where there are none."""
        errors = ", ".join(f"{count} {cause}" for cause, count in sorted(self.errors.items()))
        return f", {self.errors.total()} errors ({errors})" if errors else ""


class Settings(NamedTuple):
    """What rows are read with: of traces the cache id, what their ``t`` counts from, what is put before their LFNs; and the pseudonyms."""

    cache: str
    start_us: int | None
    prefix: str
    pseudonyms: Pseudonyms


class Importer:
    """Files of one format into ``output``. Not thread-safe."""

    def __init__(self, output: BatchOutput, settings: Settings, say: Callable[[str], None], stop: threading.Event) -> None:
        self._output = output
        self._settings = settings
        self._say = say
        self._stop = stop
        self._shown = 0
        self._shovel: _Shovel | None = None

    def trace(self, path: Path, kind: str, skip: int = 0) -> Iterator[Done]:
        """A trace of the kind ``parquet``, ``csv`` or ``oracle``, without its first ``skip`` rows. Yields after each row."""
        settings, done = self._settings, Done()
        identity = f"{settings.cache}/import/{traces.digest(path)}/"
        for row in trace_files.rows(path, kind):
            if self._stop.is_set():
                return
            done.rows, done.at = row.number, row.at
            if row.number <= skip:
                done.skipped = row.number
            else:
                now_us = time.time_ns() // 1000
                try:
                    if isinstance(row.values, ParseError):
                        raise row.values
                    record = trace.parse(row.values, settings.start_us, settings.prefix, settings.pseudonyms, now_us)
                    record |= {"record_id": f"{identity}{row.number}", "cache": settings.cache, "recv_us": now_us}
                    self._emit(trace.STREAM, record, done)
                except ParseError as error:
                    self._refuse(trace.STREAM, f"{path} row {row.number}", error, done, now_us, row.raw)
            yield done

    def jobs(self, path: Path, skip: int = 0) -> Iterator[Done]:
        """Job documents, one a line, without the first ``skip`` lines. Yields after each line."""
        done = Done()
        for line, at in _lines(path):
            if self._stop.is_set():
                return
            done.rows, done.at = done.rows + 1, at
            if done.rows <= skip:
                done.skipped = done.rows
            elif line.strip():
                now_us = time.time_ns() // 1000
                try:
                    self._emit(jobs.STREAM, jobs.parse(line, self._settings.pseudonyms, now_us), done)
                except ParseError as error:
                    self._refuse(jobs.STREAM, f"{path} line {done.rows}", error, done, now_us)
            yield done

    def shoveler(self, path: Path) -> Iterator[Done]:
        """Messages of the monitoring shoveler, one a line. Yields after each line.

        An open may have its close in a later file of the same command: what still waits is sent by :meth:`end_shoveler`.
        """
        shovel = self._shovel = self._shovel or _Shovel(self)
        done = shovel.tap.done = Done()
        for line, at in _lines(path):
            if self._stop.is_set():
                return
            done.rows, done.at = done.rows + 1, at
            shovel.tap.where = f"{path} line {done.rows}"
            if line.strip():
                shovel.handler.handle(line, "", time.time_ns() // 1000)
            yield done

    def end_shoveler(self) -> Done:
        """After the last file: send opens without their close, and say what was counted. Not after a stop: closes may be still to come."""
        done = Done()
        if self._shovel is not None:
            self._shovel.tap.done, self._shovel.tap.where = done, "at the end"
            self._shovel.fstream.close(time.time_ns() // 1000)
            counted = ", ".join(f"{stream} {metric} {cause} {count}" for (metric, stream, cause), count in self._shovel.counted())
            if counted:
                self._say(f"counted in all files: {counted}")
        return done

    def _emit(self, stream: str, record: Record, done: Done) -> None:
        self._output.record(stream, record)
        done.records += 1

    def _refuse(self, stream: str, where: str, error: ParseError, done: Done, recv_us: int, raw: bytes = b"") -> None:
        # Most rows are not quoted as a whole: they may hold a name.
        self.refuse(stream, f"{error.cause}: {where}: {error.detail}", raw, done, recv_us, error.cause)
        if done.rows - done.skipped == done.errors.total() == HOPELESS_ROWS:
            raise SourceError(f"{where}: none of the first {HOPELESS_ROWS} rows can be used; is it what --format says?")

    def refuse(self, stream: str, reason: str, raw: bytes, done: Done, recv_us: int, cause: str) -> None:
        """Send a dead letter, count it, and show it where it is one of the first."""
        done.errors[cause] += 1
        self._output.dead_letter(stream, reason, raw, recv_us)
        if self._shown < SHOWN_ERRORS:
            self._shown += 1
            self._say(reason if self._shown < SHOWN_ERRORS else f"{reason}\nfurther errors are counted only")


class _Tap:
    """Puts file and line before the reasons of the collector's handlers, and counts what they give."""

    def __init__(self, importer: Importer) -> None:
        self._importer = importer
        self.done = Done()
        self.where = ""

    def record(self, stream: str, record: Record) -> None:
        """See :class:`.output.Output`."""
        try:
            self._importer._emit(stream, record, self.done)
        except ParseError as error:
            self.dead_letter(stream, str(error), b"", record["recv_us"])

    def dead_letter(self, stream: str, reason: str, raw: bytes, recv_us: int) -> None:
        """See :class:`.output.Output`."""
        cause = reason.removeprefix("shoveler: ").partition(":")[0]
        self._importer.refuse(stream, f"{self.where}: {reason}", raw, self.done, recv_us, cause)


class _Shovel:
    """The collector's handlers, one of each for all files of a command."""

    def __init__(self, importer: Importer) -> None:
        self._counters = Counters()
        self.tap = _Tap(importer)
        self.fstream = FStreamHandler(self.tap, self._counters, importer._settings.pseudonyms)
        self.handler = ShovelerHandler(self.tap, self._counters, GStreamHandler(self.tap, self._counters), self.fstream)

    def counted(self) -> list[tuple[tuple[str, str, str], int]]:
        """What a person should know beside records and errors, which are told for each file."""
        return sorted(each for each in self._counters.snapshot().items() if each[1] and each[0][0] in _TOLD and each[0][2] not in _USUAL)


def _lines(path: Path) -> Iterator[tuple[bytes, int]]:
    if path == STDIN:
        for line in traces.lines(path, sys.stdin.buffer):
            yield line, 0
        return
    stream, raw = traces.open_bytes(path)
    with raw, stream:
        for line in traces.lines(path, stream):
            yield line, raw.tell()

"""Where a command with a beginning and an end sends its records: Kafka, or JSON lines in a file.

Unlike the collector, which has to keep pace with UDP, a command can wait: nothing is dropped while the broker is slow or away, the reading
stops instead. Not thread-safe.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol

from smartcache.config import Config

from .errors import ParseError
from .jsontext import encode
from .output import Output, Record, letter
from .topics import DEAD_LETTERS, MAX_MESSAGE_BYTES, headers

#: Records on their way to the broker; with as many the reading waits until half of them were acknowledged.
IN_FLIGHT = 50_000
#: How long the broker may acknowledge nothing before the command gives up.
PATIENCE_S = 120.0
#: The same once the command was asked to end.
LAST_S = 10.0
_TURN_S = 0.02
#: More than what a message has beside its key and its record: headers, and the protocol's own.
_AROUND = 128
#: What is quoted of the key of a record that is too large.
_QUOTED = 60


class BatchError(Exception):
    """Records cannot be delivered; the text says why and what to do."""


class Stopped(Exception):
    """The person who runs the command, or the system, wants it to end."""


class BatchOutput(Output, Protocol):
    """An :class:`.output.Output` that can say when all it was given is safe. Its calls may raise BatchError and Stopped.

    A record that is larger than any message is not taken, wherever it would go: ``record`` raises :class:`ParseError`, cause ``too_large``.
    """

    def flush(self) -> None:
        """Return once every record and dead letter is where it should be."""

    def close(self) -> None:
        """Give up what was not flushed."""


class KafkaOutput:
    """To the topics of ``config``, idempotent, in order per key. Made only where a broker answers."""

    def __init__(self, config: Config, say: Callable[[str], None], stop: threading.Event) -> None:
        """Connect, create the topics that are absent. :class:`BatchError` where that fails."""
        from confluent_kafka import Producer

        from .topics import PRODUCER, BrokerAway, SinkError, Topics, topics

        self._where = f"Kafka at [kafka] bootstrap {config.kafka.bootstrap}"
        self._stop = stop
        self._refused = 0
        self._fatal = ""
        self._topics = topics(config.kafka)
        self._dlq_suffix = config.kafka.dlq_suffix
        client = {"bootstrap.servers": config.kafka.bootstrap, "client.id": "smartcache-batch", "log_level": 0}
        try:
            Topics(config.kafka, {**client, "error_cb": lambda _: None}, say).ensure()
        except BrokerAway as error:
            raise BatchError(f"{self._where} does not answer ({error}); start it, or write to a file with --output") from error
        except SinkError as error:
            raise BatchError(str(error)) from error
        self._producer = Producer(
            {
                **client,
                "error_cb": self._on_error,
                **PRODUCER,
                "queue.buffering.max.messages": 2 * IN_FLIGHT,
                "delivery.report.only.error": True,
                "on_delivery": self._on_failed,
            }
        )

    def record(self, stream: str, record: Record) -> None:
        """See :class:`BatchOutput`; waits while too many are on their way."""
        key, message = _message(record)
        self._produce(self._topics[stream], key, message, headers(stream))

    def dead_letter(self, stream: str, reason: str, raw: bytes, recv_us: int) -> None:
        """See :class:`.output.Output`; waits while too many are on their way."""
        message = encode(letter(stream, reason, raw, recv_us))
        self._produce(self._topics[stream] + self._dlq_suffix, None, message, headers(stream + DEAD_LETTERS))

    def flush(self) -> None:
        """See :class:`BatchOutput`."""
        self._wait(0)
        if self._refused:
            raise BatchError(f"{self._where} refused {self._refused} records; its log says why (larger than message.max.bytes?)")

    def close(self) -> None:
        """See :class:`BatchOutput`."""
        self._producer.purge()
        self._producer.poll(0)

    def _produce(self, topic: str, key: bytes | None, message: str, schema: list[tuple[str, bytes]]) -> None:
        from confluent_kafka import KafkaException

        while True:
            if len(self._producer) >= IN_FLIGHT:
                self._wait(IN_FLIGHT // 2)
            try:
                self._producer.produce(topic, message, key, headers=schema)
            except BufferError:  # by bytes
                self._wait(len(self._producer) // 2)
            except KafkaException as error:
                self._refused += 1
                self._fatal = str(error.args[0].str()) if error.args[0].fatal() else self._fatal
                return
            else:
                self._producer.poll(0)
                return

    def _wait(self, at_most: int) -> None:
        left, since = len(self._producer), time.monotonic()
        while len(self._producer) > at_most:
            self._producer.poll(_TURN_S)
            if self._fatal:
                raise BatchError(f"Kafka's producer cannot go on: {self._fatal}")
            if len(self._producer) < left:
                left, since = len(self._producer), time.monotonic()
            waited = time.monotonic() - since
            if self._stop.is_set() and waited > LAST_S:
                raise Stopped
            if waited > PATIENCE_S:
                raise BatchError(
                    f"{self._where} has acknowledged nothing for {PATIENCE_S:.0f} s; {left} records were not delivered; "
                    "start it again when Kafka is back: what was delivered has the same ids"
                )

    def _on_failed(self, error: Any, message: object) -> None:
        self._refused += error is not None

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self._fatal = str(error.str())


def _key(record: Record) -> bytes:
    """Where and what: cache and LFN, of a job its site and dataset."""
    where, what = ("cache", "lfn") if "cache" in record else ("site", "dataset")
    return f"{record[where]}|{record[what] or ''}".encode()


def _message(record: Record) -> tuple[bytes, str]:
    """The key and the text of a record, which is ASCII; :class:`ParseError` where no message can hold them."""
    key, text = _key(record), encode(record)
    size = len(key) + len(text) + _AROUND
    if size > MAX_MESSAGE_BYTES:
        what = key.decode()
        what = what if len(what) <= _QUOTED else what[:_QUOTED] + "…"
        raise ParseError(
            "too_large", f"the record of {what} makes a message of {size} bytes, and a message has at most {MAX_MESSAGE_BYTES}"
        )
    return key, text


class LinesOutput:
    """JSON lines: records to ``path`` (``-``: standard output), dead letters to ``path`` with the suffix of [kafka] dlq_suffix.

    With standard output the dead letters' reasons go to ``say``.
    """

    def __init__(self, path: str, dlq_suffix: str, say: Callable[[str], None], append: bool = False) -> None:
        """:class:`BatchError` where the file cannot be made."""
        self._say = say
        self._path = path
        self._append = append
        self._dlq_path = None if path == "-" else Path(path + dlq_suffix)
        self._dlq: IO[str] | None = None
        self._file: IO[str]
        if path == "-":
            self._file = sys.stdout
            return
        try:
            self._file = _open_lines(path, append)
        except OSError as error:
            raise BatchError(f"{path} cannot be written ({error.strerror}); name another file with --output") from error

    def record(self, stream: str, record: Record) -> None:
        """See :class:`BatchOutput`."""
        self._write(self._file, _message(record)[1])

    def dead_letter(self, stream: str, reason: str, raw: bytes, recv_us: int) -> None:
        """See :class:`.output.Output`."""
        if self._dlq_path is None:
            self._say(reason)
            return
        if self._dlq is None:
            try:
                self._dlq = _open_lines(str(self._dlq_path), self._append)
            except OSError as error:
                raise BatchError(f"{self._dlq_path} cannot be written ({error.strerror}); name another file with --output") from error
        self._write(self._dlq, encode(letter(stream, reason, raw, recv_us)))

    def flush(self) -> None:
        """See :class:`BatchOutput`."""
        for file in (self._file, self._dlq):
            if file is not None:
                self._guard(file.flush)

    def close(self) -> None:
        """See :class:`BatchOutput`."""
        for file in (self._file, self._dlq):
            if file is not None and file is not sys.stdout:
                self._guard(file.close)

    def _write(self, file: IO[str], line: str) -> None:
        self._guard(lambda: file.write(line + "\n"))

    def _guard(self, act: Callable[[], object]) -> None:
        try:
            act()
        except BrokenPipeError as error:
            raise Stopped from error
        except OSError as error:
            raise BatchError(f"{self._path} cannot be written: {error.strerror}") from error


def _open_lines(path: str, append: bool) -> IO[str]:
    """A file for lines; one that ends within a line, as after a kill -9, gets its end first."""
    file = open(path, "a" if append else "w", encoding="utf-8")  # noqa: SIM115
    if append and file.seekable() and file.tell():
        with open(path, "rb") as written:
            written.seek(-1, os.SEEK_END)
            if written.read() != b"\n":
                file.write("\n")
    return file


class Nowhere:
    """Counts what it is given, by stream, and keeps nothing: for ``--dry-run``."""

    def __init__(self) -> None:
        self.records: Counter[str] = Counter()
        self.letters: Counter[str] = Counter()

    def record(self, stream: str, record: Record) -> None:
        """See :class:`BatchOutput`."""
        _message(record)
        self.records[stream] += 1

    def dead_letter(self, stream: str, reason: str, raw: bytes, recv_us: int) -> None:
        """See :class:`.output.Output`."""
        self.letters[stream] += 1

    def flush(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is kept."""

"""The way from the spool to the producer: where the disk gives nothing for a while, and where Kafka refuses a record."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from collector_site import WAIT_S
from confluent_kafka import Producer

from smartcache.config import load
from smartcache.ingestion import sink as sinks
from smartcache.ingestion.counters import Counters
from smartcache.ingestion.sink import KafkaSink
from smartcache.ingestion.topics import MAX_MESSAGE_BYTES
from smartcache.local.ports import LOOPBACK


class Turns:
    """A sink whose producers have librdkafka's own broker in this process, and the loop around it."""

    def __init__(self, folder: Path) -> None:
        config = folder / "c.toml"
        config.write_text(f'[kafka]\nbootstrap = "{LOOPBACK}:1"\n[spool]\ndir = "{folder / "spool"}"\n')
        self.said: list[str] = []
        self.counters = Counters()
        self.sink = KafkaSink(load(config), self.counters, self.said.append)
        self.sink.open = True  # as once the topics are there
        self.sent = 0

    def turn(self, *values: bytes) -> None:
        for value in values:
            self.sink.encoded("gstream", b"h:1|/f", value)
            self.sent += 1
        self.sink.commit()
        self.sink.poll()
        self.sink.open = True  # as by the thread that asks for the topics after a failure

    def until(self, check: Callable[[], bool], *values: bytes) -> None:
        """Turn, with these records each time."""
        deadline = time.monotonic() + WAIT_S
        while not check():
            assert time.monotonic() < deadline, f"{self.sent} sent, {self.count('records_delivered')} delivered: {self.said}"
            self.turn(*values)
            time.sleep(0.001)  # what a turn takes

    def count(self, metric: str) -> int:
        return self.counters.total(metric, "gstream")


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    monkeypatch.setattr(sinks, "Producer", lambda settings: Producer({**settings, "test.mock.num.brokers": 1}))
    monkeypatch.setattr(sinks, "AGAIN_S", 0.0)
    one = Turns(tmp_path)
    yield one
    one.sink.close(0)


def test_a_record_that_is_refused_costs_a_busy_collector_its_batches_for_a_moment_only(turns):
    """Whatever comes meanwhile waits; were it handed on, there would be no moment at which all is with Kafka."""
    made = turns.sink._producer
    turns.until(lambda: turns.count("records_delivered") > 0, b"before")
    turns.turn(b"x" * MAX_MESSAGE_BYTES)
    turns.until(lambda: turns.sink._singly, b"behind it")
    one_by_one = turns.sink._producer

    def over() -> bool:
        last = turns.sink._singly_until
        assert last is None or all(block.end <= last for block in turns.sink._blocks), "handed on behind what is sent one by one"
        return not turns.sink._singly

    turns.until(over, b"behind it")
    assert len({made, one_by_one, turns.sink._producer}) == 3
    turns.until(lambda: sum(turns.sink.lag.values()) == 0)
    assert turns.count("records_dropped") == turns.counters.get("records_dropped", "gstream", "refused") == 1
    assert turns.count("records_delivered") == turns.sent - 1
    assert turns.counters.total("deliveries_repeated", "kafka") < turns.sent


def test_a_refused_record_that_a_full_spool_drops_meanwhile_ends_the_way_one_by_one_too(turns):
    turns.turn(b"x" * MAX_MESSAGE_BYTES)
    turns.until(lambda: turns.sink._singly)
    turns.sink._spool._settings = turns.sink._spool._settings.model_copy(update={"max_bytes": 1_000_000, "segment_bytes": 200_000})
    turns.sink.open = False
    for _ in range(3):
        turns.sink.encoded("gstream", b"h:1|/f", b"y" * 400_000)
        turns.sink.commit()
    assert turns.sink._spool.begin >= turns.sink._singly_until
    turns.sink.open = True
    turns.until(lambda: sum(turns.sink.lag.values()) == 0)
    assert not turns.sink._singly


def test_a_start_is_not_taken_for_a_broker_that_acknowledges_nothing(turns):
    turns.turn(b"first")
    turns.until(lambda: turns.count("records_delivered") == 1)
    assert turns.said == []
    assert turns.counters.total("deliveries_repeated", "kafka") == 0


def test_a_spool_that_cannot_be_read_is_not_asked_all_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr("smartcache.ingestion.spool.READ_AGAIN_S", 600.0)  # none of it passes between two lines here
    config = tmp_path / "c.toml"
    config.write_text(f'[kafka]\nbootstrap = "{LOOPBACK}:1"\n[spool]\ndir = "{tmp_path / "spool"}"\n')
    said = []
    sink = KafkaSink(load(config), Counters(), said.append)
    try:
        for number in range(5):
            sink.encoded("gstream", b"h:1|/f", b"%d" % number)
        sink.commit()
        sink.open = True  # as once the topics are there; the producer takes records for a broker that is away
        assert sink.eager
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            sink.poll()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert sink.spool_trouble == "cannot be read: Too many open files"
        assert not sink.eager
        assert sink.lag["gstream"] == 5
    finally:
        sink.close(0)
    assert len([text for text in said if "cannot be read" in text]) == 1

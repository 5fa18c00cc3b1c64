"""A broker that refuses the first batch for a partition and takes the second: none of the first may be lost.

A real broker does so for the moment between naming itself the leader of a new partition and leading it. That moment comes when it will, so
something stands before a real broker here and answers for it once.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from collector_site import WAIT_S, Broker
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from smartcache.ingestion.topics import PRODUCER
from smartcache.local import kafka
from smartcache.local.ports import LOOPBACK, free_ports

pytestmark = pytest.mark.slow

TOPIC = "made"
PRODUCE = 0
NOT_LEADER = 6
#: How long the first batch is kept waiting for a second one.
HELD_S = 1.0


class Before:
    """Stands before a broker, and refuses the first batch that comes, once a second one has come, or none does."""

    def __init__(self, port: int, broker_port: int) -> None:
        self._broker_port = broker_port
        self._listener = socket.create_server((LOOPBACK, port))
        self._first = True
        self._open: list[socket.socket] = [self._listener]
        self.refused = False
        self.overtaken = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection((LOOPBACK, self._broker_port))
                self._open += [client, broker]
                for work, ends in ((self._requests, (client, broker)), (_copy, (broker, client))):
                    threading.Thread(target=work, args=ends, daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(client):
                kind, version, number = struct.unpack_from(">hhi", frame, 4)
                if kind == PRODUCE and TOPIC.encode() in frame and self._first:
                    self._first = False
                    client.settimeout(HELD_S)
                    with contextlib.suppress(TimeoutError):
                        second = _frame(client)
                        self.overtaken = True
                        broker.sendall(second)
                    client.settimeout(None)
                    client.sendall(_refusal(version, number))
                    self.refused = True
                else:
                    broker.sendall(frame)


def _frame(source: socket.socket) -> bytes:
    """One request, with its length before it; empty at the end."""
    head = source.recv(4, socket.MSG_WAITALL)
    return head + source.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL) if len(head) == 4 else b""


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while some := source.recv(1 << 16):
            target.sendall(some)


def _refusal(version: int, number: int) -> bytes:
    """ProduceResponse, versions 9 to 12 (kafka.apache.org/protocol): partition 0 of the topic is not led here."""
    assert 9 <= version <= 12, f"the client speaks version {version} of Produce"
    name = TOPIC.encode()
    partition = struct.pack(">ihqqq", 0, NOT_LEADER, -1, -1, -1) + b"\1\0\0"  # no errors of records, no text, no tags
    topic = bytes([len(name) + 1]) + name + b"\2" + partition + b"\0"
    body = struct.pack(">i", number) + b"\0" + b"\2" + topic + struct.pack(">i", 0) + b"\0"
    return struct.pack(">i", len(body)) + body


@pytest.fixture
def site(tmp_path) -> Iterator[tuple[Broker, Before]]:
    port, controller, before = free_ports(3)
    broker = Broker(tmp_path / "kafka", before, controller)
    stands = Before(before, port)
    broker.process = kafka.start(broker.folder, port, controller, advertised_port=before)
    yield broker, stands
    broker.process.stop()
    stands.close()


def test_a_first_batch_that_is_refused_is_not_overtaken(site):
    """librdkafka sends a second batch while the first is on its way where that one has fewer than five records."""
    broker, before = site
    admin = broker.admin()
    for made in admin.create_topics([NewTopic(TOPIC, 1), NewTopic("other", 1)]).values():
        made.result(WAIT_S)
    producer = Producer({**PRODUCER, "bootstrap.servers": f"{LOOPBACK}:{broker.port}"})
    producer.produce("other", b"")
    assert producer.flush(WAIT_S) == 0  # from here on it waits for nothing else, and its first batch has one record
    errors, made, end = [], 0, time.monotonic() + WAIT_S
    while not before.refused:
        assert time.monotonic() < end, "no batch was refused"
        producer.produce(TOPIC, b"%d" % made, on_delivery=lambda error, message: errors.append(error))
        made += 1
        producer.poll(2 * PRODUCER["linger.ms"] / 1000)
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * made
    assert [int(message.value()) for message in broker.everything(TOPIC)] == list(range(made))
    assert not before.overtaken

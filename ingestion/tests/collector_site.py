"""What the tests of the real collector process share: a broker, a collector, packets to send it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from smartcache.local import kafka
from smartcache.local.ports import LOOPBACK
from smartcache.local.process import Process, line_in

PFC, FSTREAM, DECISION = "xcache.pfc.v1", "xcache.fstream.v1", "xcache.decision.v1"
WAIT_S = 120.0


def until(check: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Poll until ``check`` gives something true."""
    deadline = time.monotonic() + timeout_s
    while not (answer := check()):
        assert time.monotonic() < deadline, f"not {what} after {timeout_s} s"
        time.sleep(0.02)
    return answer


def end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """One more than the partition's end; 0 while its leader is not known."""
    try:
        return int(consumer.get_watermark_offsets(partition, timeout=5)[1]) + 1
    except KafkaException:
        return 0


@dataclass
class Broker:
    """A broker that can be taken down and brought back with its data."""

    folder: Path
    port: int
    controller_port: int
    process: Process | None = None

    def start(self) -> None:
        self.process = kafka.start(self.folder, self.port, self.controller_port)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()

    def messages(self, topic: str, count: int) -> list[Any]:
        """All messages of a topic, once there are ``count``, in order within each partition; fails where there are more."""
        consumer = Consumer({"bootstrap.servers": f"{LOOPBACK}:{self.port}", "group.id": "test", "enable.auto.commit": False})
        try:
            partitions = until(lambda: consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions, f"{topic} there")
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            found: list[Any] = []
            deadline = time.monotonic() + WAIT_S
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} messages in {topic}"
                found += [message for message in consumer.consume(1000, timeout=0.2) if message.error() is None]
            each = [TopicPartition(topic, number) for number in partitions]
            assert sum(until(lambda at=one: end_of(consumer, at), f"the end of {topic} known") - 1 for one in each) == count
            return found
        finally:
            consumer.close()

    def everything(self, topic: str) -> list[Any]:
        """All messages that the topic has now, in order within each partition."""
        consumer = Consumer({"bootstrap.servers": f"{LOOPBACK}:{self.port}", "group.id": "test", "enable.auto.commit": False})
        try:
            partitions = [
                TopicPartition(topic, number, 0) for number in consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
            ]
            count = sum(until(lambda at=each: end_of(consumer, at), f"the end of {topic} known") - 1 for each in partitions)
            consumer.assign(partitions)
            found: list[Any] = []
            deadline = time.monotonic() + WAIT_S
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} messages in {topic}"
                found += [message for message in consumer.consume(10_000, timeout=0.2) if message.error() is None]
            return found
        finally:
            consumer.close()

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": f"{LOOPBACK}:{self.port}"})


@dataclass
class Collector:
    """The collector as a process of its own, and a socket that plays XCache."""

    process: Process
    ports: dict[str, int]
    metrics_port: int
    sent: dict[str, int] = field(default_factory=dict)
    _socket: socket.socket = field(default_factory=lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))

    def send(self, stream: str, *datagrams: bytes) -> None:
        """Send, and go on when they were received: UDP loses what comes faster than it is read."""
        for raw in datagrams:
            self._socket.sendto(raw, (LOOPBACK, self.ports[stream]))
        self.sent[stream] = self.sent.get(stream, 0) + len(datagrams)
        until(lambda: self.metric("packets_received_total", stream) == self.sent[stream], f"{self.sent[stream]} packets received")

    def metric(self, name: str, stream: str = "") -> float:
        """A counter over all its causes, or a gauge."""
        with urlopen(f"http://{LOOPBACK}:{self.metrics_port}/metrics", timeout=WAIT_S) as answer:
            text = answer.read().decode()
        label = rf'\{{(?:cause="[^"]*",)?stream="{stream}"\}}' if stream else ""
        return sum(float(value) for value in re.findall(rf"^smartcache_collector_{name}{label} (\S+)$", text, re.MULTILINE))

    def health(self) -> str:
        """What /healthz says; it must be 200."""
        with urlopen(f"http://{LOOPBACK}:{self.metrics_port}/healthz", timeout=WAIT_S) as answer:
            assert answer.status == 200
            return str(answer.read().decode())

    def end(self, sign: signal.Signals = signal.SIGTERM) -> int:
        os.kill(self.process.pid, sign)
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        self._socket.close()
        self.process.kill()


def ready(collector: Collector) -> None:
    collector.process.wait_ready(line_in(collector.process.log, "ready: "), "ready", WAIT_S)


def gpackets(first: int, packets: int, records: int = 20, keys: int = 97) -> list[bytes]:
    """Packets numbered from ``first``, ``records`` in each. A record's size is its number in the whole stream; it goes round the keys."""
    lines = []
    for number in range(first, first + packets):
        head, _, body = gpacket(number, "LFN").rstrip(b"\0").partition(b"\n")
        bodies = []
        for index in range(records):
            serial = number * records + index
            line = body.replace(b'"lfn":"LFN"', b'"lfn":"/f%d"' % (serial % keys))
            bodies.append(line.replace(b'"size":%d,' % number, b'"size":%d,' % serial))
        lines.append(b"\n".join([head, *bodies]) + b"\0")
    return lines


def in_order(messages: list[Any]) -> list[int]:
    """The records' numbers, each once after leaving out what has an id that came before; they must rise within each key."""
    seen: set[str] = set()
    last: dict[bytes, int] = {}
    numbers = []
    for message in messages:
        record = json.loads(message.value())
        if record["record_id"] in seen:
            continue
        seen.add(record["record_id"])
        assert record["size"] > last.get(message.key(), -1), f"{message.key()!r}: {record['size']} after {last[message.key()]}"
        last[message.key()] = record["size"]
        numbers.append(record["size"])
    return sorted(numbers)


def gpacket(number: int, lfn: str, stod: int = 1) -> bytes:
    source = '{"site":"S","host":"h","port":1094,"inst":"i","pgm":"xrootd","ver":"v5.5.3"}'
    header = (
        f'{{"code":"g","pseq":{number % 1000:3d},"stod":{stod},"sid":7,"src":{source},"gs":{{"type":"C","tbeg":{number},"tend":{number}}}}}'
    )
    body = (
        f'{{"event":"file_close","lfn":"{lfn}","size":{number},"blk_size":1,"n_blks":1,"n_blks_done":1,"access_cnt":1,"attach_t":1,'
        '"detach_t":1,"remotes":[],"b_hit":0,"b_miss":0,"b_bypass":0,"n_cks_errs":0}'
    )
    return f"{header}\n{body}\0".encode()


def decision(seq: int) -> bytes:
    return json.dumps(
        {
            "v": 1,
            "cache": "vm:21095",
            "boot_us": 1,
            "seq": seq,
            "t_us": 5,
            "lfn": f"/d{seq % 3}",
            "answer": "admit",
            "reason": "rule",
            "score": None,
            "probability": 1,
            "model": "",
            "latency_us": 3,
            "on_disk": True,
            "size": 5,
            "fill": 0.5,
        }
    ).encode()

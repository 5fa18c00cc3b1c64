"""The real collector process, real UDP, a real Kafka broker."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition

from smartcache.local import kafka
from smartcache.local.ports import LOOPBACK, free_ports
from smartcache.local.process import Process, http_ok, line_in

pytestmark = pytest.mark.slow

PFC, FSTREAM, DECISION = "xcache.pfc.v1", "xcache.fstream.v1", "xcache.decision.v1"
WAIT_S = 60.0


def until(check: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Poll until ``check`` gives something true."""
    deadline = time.monotonic() + timeout_s
    while not (answer := check()):
        assert time.monotonic() < deadline, f"not {what} after {timeout_s} s"
        time.sleep(0.02)
    return answer


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
            partitions = until(lambda: consumer.list_topics(topic, timeout=5).topics[topic].partitions, f"{topic} there")
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
            found: list[Any] = []
            deadline = time.monotonic() + WAIT_S
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} messages in {topic}"
                found += [message for message in consumer.consume(1000, timeout=0.2) if message.error() is None]
            ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=5)[1] for number in partitions]
            assert sum(ends) == count
            return found
        finally:
            consumer.close()


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
        with urlopen(f"http://{LOOPBACK}:{self.metrics_port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        label = rf'\{{cause="[^"]*",stream="{stream}"\}}' if stream else ""
        return sum(float(value) for value in re.findall(rf"^smartcache_collector_{name}{label} (\S+)$", text, re.MULTILINE))

    def end(self, sign: signal.Signals = signal.SIGTERM) -> int:
        os.kill(self.process.pid, sign)
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        self._socket.close()
        self.process.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = Broker(tmp_path / "kafka", *free_ports(2))
    yield one
    if one.process is not None:
        one.process.stop()


@pytest.fixture
def launch(tmp_path: Path, repository: Path, broker: Broker) -> Iterator[Callable[..., Collector]]:
    """Start a collector for ``broker``; it need not be ready yet."""
    running: list[Collector] = []

    def start(**settings: int | str) -> Collector:
        names = ("gstream_port", "fstream_port", "decision_port", "metrics_port")
        ports = dict(zip(names, free_ports(4), strict=True))
        key = tmp_path / "key"
        key.write_text("0123456789abcdef" * 4)
        values = {**ports, "pseudonym_key_file": str(key), "receive_buffer_bytes": 200_000, **settings}
        config = tmp_path / f"collector{len(running)}.toml"
        config.write_text(
            "[collector]\n"
            + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
            + f'[kafka]\nbootstrap = "{LOOPBACK}:{broker.port}"\n'
        )
        argv = [sys.executable, "-m", "smartcache.ingestion.cli", "collect", "--config", str(config)]
        process = Process("collector", argv, tmp_path / f"collector{len(running)}.log", cwd=repository).start()
        streams = {name.removesuffix("_port"): port for name, port in ports.items() if name != "metrics_port"}
        collector = Collector(process, streams, ports["metrics_port"])
        running.append(collector)
        process.wait_ready(http_ok(f"http://{LOOPBACK}:{ports['metrics_port']}/healthz"), "healthy", WAIT_S)
        return collector

    yield start
    for collector in running:
        collector.close()


def ready(collector: Collector) -> None:
    collector.process.wait_ready(line_in(collector.process.log, "ready: "), "ready", WAIT_S)


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


def test_captures_come_out_as_records_and_garbage_as_dead_letters(captured, launch, broker, validate):
    broker.start()
    collector = launch()
    ready(collector)
    collector.send("gstream", *captured("gstream-5.5.3.jsonl"))
    datagrams = captured("fstream-5.5.3.jsonl")
    for start in range(0, len(datagrams), 20):
        collector.send("fstream", *datagrams[start : start + 20])
    collector.send("decision", *(decision(seq) for seq in range(1, 31)))
    for stream in collector.ports:
        collector.send(stream, b"{garbage of " + stream.encode())
    assert collector.end() == 0

    for topic, count in ((PFC, 104), (FSTREAM, 133), (DECISION, 30)):
        messages = broker.messages(topic, count)
        for message in messages:
            record = json.loads(message.value())
            validate(topic, record)
            assert message.key().decode() == f"{record['cache']}|{record['lfn']}"
            assert message.headers() == [("schema", topic.encode())]
        assert {json.loads(message.value())["cache"] for message in messages} == {"vm:21095"}
        letter = json.loads(broker.messages(f"{topic}.dlq", 1)[0].value())
        assert letter.keys() == {"reason", "stream", "recv_us", "raw"}
        quoted = base64.b64decode(letter["raw"])
        assert quoted == (b"{garbage of fstream"[:8] if topic == FSTREAM else b"{garbage of " + letter["stream"].encode())
    log = collector.process.log.read_text()
    assert "127.0.0.1]" not in log
    assert "Traceback" not in log
    assert log.count("\n") <= 4, f"quiet when healthy, but said:\n{log}"


def test_sigterm_sends_opens_that_are_still_open(captured, launch, broker, validate):
    broker.start()
    collector = launch()
    ready(collector)
    whole = [raw for raw in captured("fstream-5.5.3.jsonl") if raw[:1] in b"=uf"]
    first = next(index for index, raw in enumerate(whole) if raw[:1] == b"f")
    opens_only = bytearray(whole[first])
    at, opens = 8, 0
    while at < len(opens_only):  # closes become a record type that does not exist
        opens += opens_only[at] == 1
        if opens_only[at] == 0:
            opens_only[at] = 99
        at += int.from_bytes(opens_only[at + 2 : at + 4], "big")
    collector.send("fstream", *whole[:first], bytes(opens_only))
    assert collector.metric("fstream_opens") == opens > 0
    assert collector.end(signal.SIGINT) == 0
    records = [json.loads(message.value()) for message in broker.messages(FSTREAM, opens)]
    for record in records:
        validate(FSTREAM, record)
        assert record["close_lo_us"] is record["b_read"] is None
        assert record["user"] is not None


def test_a_broker_killed_in_the_middle_loses_nothing_and_keeps_the_order(launch, broker):
    broker.start()
    collector = launch()
    ready(collector)
    packets = [gpacket(number, f"/f{number % 7}") for number in range(900)]
    for start in range(0, 300, 50):
        collector.send("gstream", *packets[start : start + 50])
    broker.kill()
    for start in range(300, 600, 50):
        collector.send("gstream", *packets[start : start + 50])
    collector.process.wait_ready(line_in(collector.process.log, "is away"), "aware that the broker is gone", WAIT_S)
    assert collector.metric("kafka_queue") >= 300
    with urlopen(f"http://{LOOPBACK}:{collector.metrics_port}/healthz", timeout=5) as answer:
        assert answer.status == 200
    broker.start()
    for start in range(600, 900, 50):
        collector.send("gstream", *packets[start : start + 50])
    messages = broker.messages(PFC, 900)
    assert collector.end() == 0
    by_key: dict[bytes, list[int]] = {}
    for message in messages:
        by_key.setdefault(message.key(), []).append(json.loads(message.value())["size"])
    assert len(by_key) == 7
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sorted(number for numbers in by_key.values() for number in numbers) == list(range(900))
    log = collector.process.log.read_text()
    assert log.count("is away") == log.count("is back") == 1


def test_without_a_broker_it_waits_says_so_once_and_keeps_what_comes(launch, broker):
    collector = launch()
    collector.process.wait_ready(line_in(collector.process.log, "waiting for Kafka"), "waiting", WAIT_S)
    collector.send("gstream", gpacket(1, "/early"))
    assert "ready" not in collector.process.log.read_text()
    broker.start()
    ready(collector)
    assert json.loads(broker.messages(PFC, 1)[0].value())["lfn"] == "/early"
    assert collector.process.log.read_text().count("waiting for Kafka") == 1
    assert collector.end() == 0


def test_an_end_without_a_broker_admits_the_loss(launch):
    collector = launch()
    collector.send("gstream", gpacket(1, "/lost"))
    assert collector.end() == 1
    assert "1 records could not be delivered" in collector.process.log.read_text()


def test_the_same_ports_twice_is_refused_with_the_way_out(launch, repository, tmp_path):
    launch()
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "collect", "--config", str(tmp_path / "collector0.toml")]
    second = Process("second", argv, tmp_path / "second.log", cwd=repository).start()
    assert second.wait(WAIT_S) == 1
    assert "cannot be bound" in second.log.read_text()


def test_a_wrong_configuration_is_exit_2(repository, tmp_path):
    config = tmp_path / "wrong.toml"
    config.write_text("[collector]\ngstream_prot = 1\n")
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "collect", "--config", str(config)]
    process = Process("wrong", argv, tmp_path / "log", cwd=repository)
    assert process.start().wait(WAIT_S) == 2
    assert "did you mean 'gstream_port'" in (tmp_path / "log").read_text()


def test_metrics_have_no_names_of_files(launch):
    collector = launch()
    collector.send("gstream", gpacket(1, "/secret/file"), b"broken")
    assert collector.metric("records_parsed_total", "gstream") == 1
    assert collector.metric("dead_letters_total", "gstream") == 1
    with urlopen(f"http://{LOOPBACK}:{collector.metrics_port}/metrics", timeout=5) as answer:
        assert b"secret" not in answer.read()
    with pytest.raises(URLError, match="404"):
        urlopen(f"http://{LOOPBACK}:{collector.metrics_port}/", timeout=5)

"""What the tests of the collector share: captured packets, a stand-in for Kafka that keeps what it is given, the schemas."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from collector_site import WAIT_S, Broker, Collector
from golden_records import datagrams

from smartcache.ingestion.counters import Counters
from smartcache.ingestion.output import letter
from smartcache.local.ports import LOOPBACK, free_ports
from smartcache.local.process import Process, http_ok

REPOSITORY = Path(__file__).resolve().parents[2]
SCHEMAS = REPOSITORY / "ingestion" / "schemas"
TOPICS = {
    "gstream": "xcache.pfc.v1",
    "fstream": "xcache.fstream.v1",
    "decision": "xcache.decision.v1",
    "cinfo": "xcache.cinfo.v1",
    "job": "xcache.job.v1",
}
DEAD_LETTER = "xcache.dead-letter.v1"


class Recorder:
    """An output that keeps what it is given and checks every record against its schema."""

    def __init__(self, validate: Callable[[str, dict[str, Any]], None]) -> None:
        self._validate = validate
        self.records: list[dict[str, Any]] = []
        self.letters: list[tuple[str, bytes]] = []

    def record(self, stream: str, record: dict[str, Any]) -> None:
        self._validate(TOPICS[stream], record)
        self.records.append(record)

    def encoded(self, stream: str, key: bytes, value: bytes) -> None:
        record = json.loads(value)
        assert key.decode() == f"{record['cache']}|{record['lfn']}"
        self.record(stream, record)

    def dead_letter(self, stream: str, reason: str, raw: bytes, recv_us: int) -> None:
        self._validate(DEAD_LETTER, letter(stream, reason, raw, recv_us))
        self.letters.append((reason, raw))


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def captures() -> Path:
    folder = REPOSITORY.parent / "shared" / "captures"
    if not folder.is_dir():
        pytest.skip("no captured packets here")
    return folder


@pytest.fixture(scope="session")
def captured(captures: Path) -> Callable[[str], list[bytes]]:
    """The datagrams of one capture file."""

    def read(name: str) -> list[bytes]:
        return datagrams(captures / name)

    return read


@pytest.fixture(scope="session")
def validate() -> Callable[[str, dict[str, Any]], None]:
    """Raise where a record, after a way through JSON, does not fit its topic's schema."""
    validators = {}
    for topic in (*TOPICS.values(), DEAD_LETTER):
        schema = json.loads((SCHEMAS / f"{topic}.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        # Strict here, open for readers: the producer may not send what the schema does not name.
        validators[topic] = jsonschema.Draft202012Validator({**schema, "additionalProperties": False})

    def check(topic: str, record: dict[str, Any]) -> None:
        validators[topic].validate(json.loads(json.dumps(record, allow_nan=False)))

    return check


@pytest.fixture
def output(validate: Callable[[str, dict[str, Any]], None]) -> Recorder:
    return Recorder(validate)


@pytest.fixture
def counters() -> Counters:
    return Counters()


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

    def start(spool: dict[str, int | str] | None = None, kafka: dict[str, int | str] | None = None, **settings: int | str) -> Collector:
        names = ("gstream_port", "fstream_port", "decision_port", "metrics_port")
        ports = dict(zip(names, free_ports(4), strict=True))
        key = tmp_path / "key"
        key.write_text("0123456789abcdef" * 4)
        values = {**ports, "pseudonym_key_file": str(key), "receive_buffer_bytes": 200_000, **settings}
        config = tmp_path / f"collector{len(running)}.toml"
        address = f"{LOOPBACK}:{broker.port}"
        config.write_text(
            "[collector]\n"
            + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
            + "[kafka]\n"
            + "".join(f"{name} = {json.dumps(value)}\n" for name, value in {"bootstrap": address, **(kafka or {})}.items())
            + "[spool]\n"
            + "".join(f"{name} = {json.dumps(value)}\n" for name, value in {"dir": str(tmp_path / "spool"), **(spool or {})}.items())
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

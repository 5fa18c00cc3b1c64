"""What the tests of the collector share: captured packets, a stand-in for Kafka that keeps what it is given, the schemas."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from smartcache.ingestion.counters import Counters

REPOSITORY = Path(__file__).resolve().parents[2]
SCHEMAS = REPOSITORY / "ingestion" / "schemas"
TOPICS = {"gstream": "xcache.pfc.v1", "fstream": "xcache.fstream.v1", "decision": "xcache.decision.v1"}


class Recorder:
    """An output that keeps what it is given and checks every record against its schema."""

    def __init__(self, validate: Callable[[str, dict[str, Any]], None]) -> None:
        self._validate = validate
        self.records: list[dict[str, Any]] = []
        self.letters: list[tuple[str, bytes]] = []

    def record(self, stream: str, record: dict[str, Any]) -> None:
        self._validate(TOPICS[stream], record)
        self.records.append(record)

    def dead_letter(self, stream: str, reason: str, raw: bytes, recv_us: int) -> None:
        assert stream in TOPICS
        assert recv_us > 0
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
        rows = [json.loads(line) for line in (captures / name).read_text().splitlines()]
        return [bytes.fromhex(row["hex"]) if "hex" in row else row["raw"].encode() for row in rows if "marker" not in row]

    return read


@pytest.fixture(scope="session")
def validate() -> Callable[[str, dict[str, Any]], None]:
    """Raise where a record, after a way through JSON, does not fit its topic's schema."""
    validators = {}
    for topic in TOPICS.values():
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

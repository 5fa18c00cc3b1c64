"""The plugin's decision log."""

import json
import random
from pathlib import Path

import pytest

from smartcache.config import ConfigError
from smartcache.ingestion import pseudonym
from smartcache.ingestion.decision import DecisionHandler

NOW = 1_800_000_000_000_000
SAMPLE = {
    "v": 1,
    "cache": "h:1094",
    "boot_us": 5,
    "seq": 1,
    "t_us": 6,
    "lfn": '/a/"b"\\c',
    "answer": "bypass",
    "reason": "model",
    "score": 0.25,
    "threshold": 0.25,
    "probability": 0.99,
    "model": "reuse_v3",
    "latency_us": 12,
    "on_disk": False,
    "size": -1,
    "fill": 0.123456789,
    "read_share": 0.5,
    "history_scanned": True,
    "history_boot_us": 4,
    "history_seq": 17,
    "side_table": 1_799_999_999_000_000,
    "challenger_model": "reuse_v4",
    "challenger_answer": "admit",
    "challenger_score": 0.75,
    "features": None,
}
LATER = (
    *("challenger_model", "challenger_answer", "challenger_score", "read_share"),
    *("history_scanned", "history_boot_us", "history_seq", "side_table"),
)


def datagram(**changed):
    return json.dumps({**SAMPLE, **changed}).encode()


@pytest.fixture
def handler(output, counters):
    return DecisionHandler(output, counters)


def test_a_datagram_becomes_a_record(handler, output):
    handler.handle(datagram(features=[1.5, 2]), "", NOW)
    expected = {**SAMPLE, "features": [1.5, 2], "record_id": "h:1094/5/1", "recv_us": NOW}
    del expected["v"]
    assert output.records == [expected]


def test_what_an_older_plugin_does_not_say_is_null(handler, output, counters):
    handler.handle(json.dumps({name: value for name, value in SAMPLE.items() if name not in LATER}).encode(), "", NOW)
    assert [output.records[0][name] for name in LATER] == [None] * len(LATER)
    assert counters.total("records_ignored", "decision") == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"v": 2},
        {"cache": ""},
        {"lfn": None},
        {"lfn": "\ud800"},
        {"seq": 0},
        {"seq": 1.0},
        {"t_us": 2**63},
        {"answer": "maybe"},
        {"answer": []},
        {"score": 1.1},
        {"score": float("nan")},
        {"threshold": 1.5},
        {"probability": None},
        {"model": None},
        {"on_disk": 1},
        {"size": -2},
        {"size": -1.0},
        {"fill": -0.5},
        {"read_share": -0.5},
        {"read_share": 4.5},
        {"history_scanned": 1},
        {"challenger_model": 4},
        {"challenger_answer": "maybe"},
        {"challenger_score": 1.5},
        {"history_boot_us": -1},
        {"history_seq": 1.5},
        {"side_table": 0},
        {"features": [None]},
        {"features": [float("inf")]},
        {"latency_us": -1},
    ],
)
def test_wrong_values_are_dead_letters(changed, handler, output, counters):
    handler.handle(datagram(**changed), "", NOW)
    assert output.records == []
    assert counters.total("dead_letters", "decision") == len(output.letters) == 1


def test_who_sends_something_else_is_not_quoted(handler, output):
    handler.handle(b'{"remote":"h:1094","data":"dQAAMGFiY2Q="}', "", NOW)
    handler.handle(datagram()[:-1], "", NOW)
    assert [raw for _, raw in output.letters] == [b'{"remote', datagram()[:-1]]


def test_truncated_and_random(handler, output):
    whole = datagram()
    for length in range(len(whole)):
        handler.handle(whole[:length], "", NOW)
    assert output.records == []
    generator = random.Random(3)
    for _ in range(3000):
        raw = bytearray(datagram(seq=generator.randrange(1, 2**40)))
        for _ in range(generator.randrange(1, 4)):
            raw[generator.randrange(len(raw))] = generator.randrange(256)
        handler.handle(bytes(raw), "", NOW)
    assert output.records


def test_loss_is_counted_per_start_of_the_plugin(handler, output, counters):
    for boot, seq in ((5, 1), (5, 2), (5, 5), (5, 4), (5, 5), (9, 1), (9, 2)):
        handler.handle(datagram(boot_us=boot, seq=seq), "", NOW)
    assert len(output.records) == 6
    assert [counters.total(f"packets_{name}", "decision") for name in ("lost", "late", "duplicate")] == [2, 1, 1]


def test_unknown_fields_are_counted(handler, output, counters):
    handler.handle(datagram(new=1), "", NOW)
    assert "new" not in output.records[0]
    assert counters.get("records_ignored", "decision", "unknown_field") == 1


def test_pseudonyms(tmp_path: Path):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 40 + b"\n")
    one, two = pseudonym.load(str(key)), pseudonym.load(str(key))
    assert one.of("alice") == two.of("alice") != one.of("bob")
    assert len(one.of("[::ffff:127.0.0.1]")) == 16
    assert pseudonym.load("").of("alice") != pseudonym.load("").of("alice")
    assert pseudonym.Pseudonyms(b"x" * 1000).of("\ud800")
    key.write_bytes(b"short")
    with pytest.raises(ConfigError, match="16 bytes or more"):
        pseudonym.load(str(key))
    with pytest.raises(ConfigError, match="cannot be read"):
        pseudonym.load(str(tmp_path / "none"))

"""The real collector process, real UDP, a real Kafka broker."""

from __future__ import annotations

import base64
import json
import signal
import socket
import sys
import threading
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from collector_site import DECISION, FSTREAM, PFC, WAIT_S, decision, gpacket, ready, until

from smartcache.config import load
from smartcache.ingestion import collector
from smartcache.ingestion.topics import BrokerAway
from smartcache.local.ports import LOOPBACK, free_ports
from smartcache.local.process import Process, line_in

pytestmark = pytest.mark.slow


def test_captures_come_out_as_records_and_garbage_as_dead_letters(captured, launch, broker, validate):
    broker.start()
    collector = launch(shutdown_s=45.0)
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
        message = broker.messages(f"{topic}.dlq", 1)[0]
        assert message.headers() == [("schema", b"xcache.dead-letter.v1")]
        letter = json.loads(message.value())
        validate("xcache.dead-letter.v1", letter)
        quoted = base64.b64decode(letter["raw"])
        assert quoted == b"{garbage"
    log = collector.process.log.read_text()
    assert "127.0.0.1]" not in log
    assert "0123456789abcdef" not in log, "the key of the pseudonyms"
    assert "Traceback" not in log
    assert log.count("\n") <= 4, f"quiet when healthy, but said:\n{log}"


def test_a_loop_that_does_not_turn_is_not_healthy(monkeypatch, tmp_path):
    """In this process: a disk that never answers cannot be made here."""
    gstream, fstream, decision_port, metrics = free_ports(4)
    config = tmp_path / "collector.toml"
    config.write_text(
        f"[collector]\ngstream_port = {gstream}\nfstream_port = {fstream}\ndecision_port = {decision_port}\nmetrics_port = {metrics}\n"
        f'[kafka]\nbootstrap = "{LOOPBACK}:1"\n[spool]\ndir = "{tmp_path / "spool"}"\n'
    )
    one = collector.Collector(load(config))
    monkeypatch.setattr(collector, "STUCK_S", 1.0)
    answers, commit = threading.Event(), one._sink.commit
    monkeypatch.setattr(one._sink, "commit", lambda: answers.wait(WAIT_S) and commit())

    def health():
        try:
            with urlopen(f"http://{LOOPBACK}:{metrics}/healthz", timeout=WAIT_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        until(lambda: health()[0] == 200, "healthy")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(gpacket(0, "/f"), (LOOPBACK, gstream))
        until(lambda: health()[0] == 503, "not healthy")
        assert "degraded: the loop has not turned for " in health()[1]
        answers.set()
        until(lambda: health()[0] == 200, "healthy again")
    finally:
        answers.set()
        one.stop()
        thread.join()


@pytest.mark.parametrize("away_before", [False, True])
def test_an_error_that_nobody_expects_of_the_client_library_is_told_and_does_not_end_the_sending(
    monkeypatch, tmp_path, capsys, away_before
):
    """In this process: the library cannot be made to fail so."""
    gstream, fstream, decision_port = free_ports(3)
    config = tmp_path / "collector.toml"
    config.write_text(
        f"[collector]\ngstream_port = {gstream}\nfstream_port = {fstream}\ndecision_port = {decision_port}\nmetrics_port = 0\n"
        f'[kafka]\nbootstrap = "{LOOPBACK}:1"\n[spool]\ndir = "{tmp_path / "spool"}"\n'
    )
    one = collector.Collector(load(config))
    monkeypatch.setattr(collector, "_RETRY_S", 0.01)
    away, unexpected = BrokerAway("no answer"), RuntimeError("of the library")
    errors = [*([away, away] if away_before else []), unexpected, unexpected, away, unexpected]

    def fails_a_few_times():
        if errors:
            raise errors.pop(0)
        one._sink.open = True

    monkeypatch.setattr(one._sink, "ensure_topics", fails_a_few_times)
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        until(lambda: one._sink.open, "open")
    finally:
        one.stop()
        thread.join()
    told = capsys.readouterr().err
    assert told.count("of the library") == 1
    assert told.count("waiting for Kafka") == away_before


def test_sigterm_sends_opens_that_are_still_open(captured, launch, broker, validate):
    broker.start()
    collector = launch(shutdown_s=45.0)
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
    assert collector.metric("lag_records", "gstream") >= 300
    assert f"Kafka at {LOOPBACK}:{broker.port} is away" in collector.health()
    broker.start()
    for start in range(600, 900, 50):
        collector.send("gstream", *packets[start : start + 50])
    messages = broker.messages(PFC, 900)
    collector.process.wait_ready(line_in(collector.process.log, "is back"), "aware that it is back", WAIT_S)
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


def test_an_end_without_a_broker_leaves_the_records_to_the_next_start(launch, broker):
    collector = launch()
    collector.send("gstream", gpacket(1, "/kept"), b"garbage")
    assert collector.end() == 0
    assert "2 records wait in the spool" in collector.process.log.read_text()
    broker.start()
    again = launch()
    ready(again)
    assert json.loads(broker.messages(PFC, 1)[0].value())["lfn"] == "/kept"
    assert len(broker.messages(f"{PFC}.dlq", 1)) == 1
    until(lambda: again.metric("lag_records", "gstream") == 0, "nothing left")
    assert again.health() == "ok\n"
    assert again.end() == 0
    assert not list((Path(again.process.log).parent / "spool").glob("*.spool"))


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

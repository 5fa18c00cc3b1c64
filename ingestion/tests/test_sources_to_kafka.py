"""What is imported or comes from a shoveler, to a real broker: topics, keys, headers, ids, and how a stopped import goes on."""

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import pytest
from collector_site import WAIT_S, end_of, until
from confluent_kafka import Consumer, KafkaException, TopicPartition
from test_import import CMS, ROWS, shoveled, write_csv, write_lines, write_parquet

from smartcache import config as settings_of
from smartcache.local import kafka
from smartcache.local.ports import LOOPBACK, free_ports
from smartcache.local.process import Process, line_in

pytestmark = pytest.mark.slow

CACHE = "h:1094"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """The address of one broker for all."""
    port, controller = free_ports(2)
    process = kafka.start(tmp_path_factory.mktemp("kafka"), port, controller)
    yield f"{LOOPBACK}:{port}"
    process.stop()


@pytest.fixture
def config(broker, tmp_path):
    """A configuration with topics of its own."""
    key = tmp_path / "key"
    key.write_text("0123456789abcdef" * 2)
    name = tmp_path.name
    topics = "".join(f'{kind}_topic = "{kind}.{name}"\n' for kind in ("pfc", "fstream", "decision", "cinfo", "job"))

    def write(collector="", more=""):
        path = tmp_path / "c.toml"
        path.write_text(f'[kafka]\nbootstrap = "{broker}"\n{topics}[collector]\npseudonym_key_file = "{key}"\n{collector}{more}')
        return path

    return write


@pytest.fixture
def messages(broker, tmp_path):
    """All messages of a kind's topic, once there are so many."""

    return lambda kind, count, suffix="": all_messages(broker, f"{kind}.{tmp_path.name}{suffix}", count)


def all_messages(broker, topic, count):
    """What is in a topic, once there are so many; fails where there are more."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "test", "enable.auto.commit": False, "log_level": 0})
    try:
        partitions = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions]
        consumer.assign(partitions)
        found, deadline = [], time.monotonic() + WAIT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} in {topic}"
            found += [each for each in consumer.consume(1000, timeout=0.2) if each.error() is None]
        assert sum(until(lambda at=each: end_of(consumer, at), "its end known") - 1 for each in partitions) == count
        return found
    finally:
        consumer.close()


def run(*arguments, **options):
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "import", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, **options)


def test_an_import_arrives_and_a_second_one_has_the_same_ids(config, messages, tmp_path, validate):
    trace = write_parquet(tmp_path / "t.parquet")
    bad = write_csv(tmp_path / "b.csv", [ROWS[0], {**ROWS[0], "size": -1}])
    jobs = write_lines(tmp_path / "j", CMS, {**CMS, "GlobalJobId": "other", "DESIRED_CMSDataset": None}, "{}")
    for _ in range(2):
        assert run(trace, bad, "--cache", CACHE, "--start", "2026-05-01", "--config", config()).returncode == 0
        assert run("--format", "jobs", jobs, "--config", config()).returncode == 0
    opens = messages("fstream", 10)
    for message in opens:
        record = json.loads(message.value())
        validate("xcache.fstream.v1", record)
        assert message.key().decode() == f"{CACHE}|{record['lfn']}"
        assert message.headers() == [("schema", b"xcache.fstream.v1")], "whatever the topic is called"
    assert len({json.loads(message.value())["record_id"] for message in opens}) == 5
    # With a key file a person keeps the pseudonym.
    assert len({json.loads(message.value())["user"] for message in opens}) == 3
    done = messages("job", 4)
    for message in done:
        record = json.loads(message.value())
        validate("xcache.job.v1", record)
        assert message.key().decode() == f"T2_CH_CERN|{record['dataset'] or ''}"
    assert len({json.loads(message.value())["record_id"] for message in done}) == 2
    for kind, where in (("fstream", f"{bad} row 2: size"), ("job", f"{jobs} line 3: ")):
        letters = [json.loads(message.value()) for message in messages(kind, 2, ".dlq")]
        assert all(letter.keys() == {"reason", "stream", "recv_us", "raw"} and where in letter["reason"] for letter in letters)


def test_a_stopped_import_says_how_to_go_on_and_nothing_is_missing_or_twice(config, broker, messages, tmp_path):
    rows = [{"time": 1_700_000_000 + n, "lfn": f"/f{n}", "size": 1} for n in range(300_000)]
    trace = write_parquet(tmp_path / "t.parquet", rows)
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "import", str(trace), "--cache", CACHE, "--config", str(config())]
    with Process("import", argv, tmp_path / "import.log").start() as process:
        process.wait_ready(has_messages(broker, f"fstream.{tmp_path.name}"), "sending", WAIT_S)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(WAIT_S) == 130
    said = (tmp_path / "import.log").read_text()
    assert "all delivered; go on with --skip " in said, said
    skip = said.rpartition("--skip ")[2].split()[0]
    assert 0 < int(skip) < len(rows)
    assert run(trace, "--cache", CACHE, "--config", config(), "--skip", skip).returncode == 0
    found = messages("fstream", len(rows))
    assert {json.loads(message.value())["lfn"] for message in found} == {row["lfn"] for row in rows}


def test_a_broker_that_goes_away_in_the_middle_is_waited_for(tmp_path, config):
    port, controller = free_ports(2)
    rows = [{"time": 1_700_000_000 + n, "lfn": f"/f{n % 5}", "size": n} for n in range(300_000)]
    trace = write_parquet(tmp_path / "t.parquet", rows)
    path = config()
    path.write_text(re.sub(r'bootstrap = ".*"', f'bootstrap = "{LOOPBACK}:{port}"', path.read_text()))
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "import", str(trace), "--cache", CACHE, "--config", str(path)]
    topic, address = f"fstream.{tmp_path.name}", f"{LOOPBACK}:{port}"
    broker = kafka.start(tmp_path / "kafka", port, controller)
    try:
        with Process("import", argv, tmp_path / "import.log").start() as process:
            process.wait_ready(has_messages(address, topic), "sending", WAIT_S)
            assert process.running
            broker.kill()
            broker = kafka.start(tmp_path / "kafka", port, controller)
            assert process.wait(2 * WAIT_S) == 0, process.last_words()
        by_key = {}
        for message in all_messages(address, topic, len(rows)):
            record = json.loads(message.value())
            by_key.setdefault(record["lfn"], []).append(record["size"])
        assert {lfn: sizes == sorted(sizes) for lfn, sizes in by_key.items()} == {f"/f{n}": True for n in range(5)}
    finally:
        broker.stop()


def has_messages(broker, topic):
    def check():
        consumer = Consumer({"bootstrap.servers": broker, "group.id": "watch", "log_level": 0})
        try:
            partitions = consumer.list_topics(topic, timeout=5).topics[topic].partitions
            return sum(consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=5)[1] for each in partitions) > 0
        except KafkaException:  # it is being made
            return False
        finally:
            consumer.close()

    return check


def test_a_shoveler_feeds_the_collector_as_its_servers_would(config, messages, captured, tmp_path, validate):
    ports = free_ports(5)
    names = ("gstream_port", "fstream_port", "decision_port", "metrics_port", "shoveler_port")
    settings = (
        "".join(f"{name} = {port}\n" for name, port in zip(names, ports, strict=True))
        + "receive_buffer_bytes = 200000\nshutdown_s = 45.0\n"
    )
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "collect", "--config", str(config(settings, more_for_collector(tmp_path)))]
    with Process("collector", argv, tmp_path / "collector.log").start() as collector:
        collector.wait_ready(line_in(collector.log, "ready: "), "ready", WAIT_S)
        assert f"shoveler {LOOPBACK}:{ports[4]} (UDP)" in collector.log.read_text()
        gstream, fstream = captured("gstream-5.5.3.jsonl"), captured("fstream-5.5.3.jsonl")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            by_shoveler = lambda raw: (shoveled(raw, f"{LOOPBACK}:5000").encode(), ports[4])  # noqa: E731
            # All of the g-stream comes by the shoveler, half of it here directly too; of the f-stream now these, now those packets.
            groups = [list(map(by_shoveler, gstream)), [(raw, ports[0]) for raw in gstream[::2]]]
            for n in range(0, len(fstream), 40):
                part = fstream[n : n + 40]
                groups.append(list(map(by_shoveler, part)) if n % 80 else [(raw, ports[1]) for raw in part])
            groups.append([(b"no message", ports[4])])
            sent = 0
            for group in groups:
                for raw, port in group:
                    one.sendto(raw, (LOOPBACK, port))
                sent += len(group)
                wait_received(ports[3], sent)
        os.kill(collector.pid, signal.SIGTERM)
        assert collector.wait(WAIT_S) == 0
    opens = [json.loads(message.value()) for message in messages("fstream", 133)]
    for record in opens:
        validate("xcache.fstream.v1", record)
        assert record["b_read"] is not None
        assert record["user"] is not None
    assert {json.loads(message.value())["cache"] for message in messages("pfc", 104)} == {"vm:21095"}
    letter = json.loads(messages("fstream", 1, ".dlq")[0].value())
    assert letter["reason"].startswith("shoveler: json: ")
    assert base64.b64decode(letter["raw"]) == b"no messa"


def more_for_collector(folder):
    """Where there is a spool, one of its own."""
    return f'[spool]\ndir = "{folder / "spool"}"\n' if "spool" in settings_of.reference() else ""


def wait_received(metrics_port, count):
    deadline = time.monotonic() + WAIT_S
    while True:
        with urlopen(f"http://{LOOPBACK}:{metrics_port}/metrics", timeout=WAIT_S) as answer:
            lines = answer.read().decode().splitlines()
        received = sum(float(line.split()[1]) for line in lines if line.startswith("smartcache_collector_packets_received_total{"))
        if received >= count:
            return
        assert time.monotonic() < deadline, f"{received} of {count} received"
        time.sleep(0.02)


def test_a_record_that_is_too_large_is_a_dead_letter_and_the_others_arrive(config, messages, tmp_path):
    large = {**ROWS[0], "lfn": "/" + "x" * 1_000_500}
    path = write_csv(tmp_path / "t.csv", [ROWS[0], large, ROWS[1]])
    answer = run(path, "--cache", CACHE, "--start", "2026-05-01", "--config", config())
    assert answer.returncode == 0, answer.stderr
    assert "3 rows, 2 records, 1 errors (1 too_large)" in answer.stderr
    assert {json.loads(message.value())["lfn"] for message in messages("fstream", 2)} == {ROWS[0]["lfn"], ROWS[1]["lfn"]}
    letter = json.loads(messages("fstream", 1, ".dlq")[0].value())
    assert letter["reason"].startswith(f"too_large: {path} row 2: the record of {CACHE}|/xxx")
    assert "a message has at most 1000000" in letter["reason"]

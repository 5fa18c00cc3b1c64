"""From the socket to Kafka under faults: the real collector process, a real broker, both killed; a disk that is full."""

from __future__ import annotations

import base64
import json
import os
import re
import resource
import signal
import sys
import threading
import time

import pytest
from collector_site import FSTREAM, PFC, WAIT_S, gpackets, in_order, ready, until
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from smartcache.local.ports import LOOPBACK
from smartcache.local.process import Process, line_in

pytestmark = pytest.mark.slow

#: Datagrams sent before the collector must have read them: they fit into its socket's buffer.
CHUNK = 25


def stream(collector, first, packets, progress=lambda sent: None):
    """Send numbered packets as fast as the collector reads them."""
    made = gpackets(first, packets)
    for start in range(0, packets, CHUNK):
        collector.send("gstream", *made[start : start + CHUNK])
        progress(start + CHUNK)


def settled(collector):
    until(lambda: collector.metric("lag_records", "gstream") == 0, "all delivered", 120)


def test_a_broker_killed_during_200_000_records(launch, broker):
    broker.start()
    collector = launch(receive_buffer_bytes=1 << 20)
    ready(collector)
    packets, sent = 10_000, [0]
    back = threading.Event()

    def progress(count):
        sent[0] = count
        if count >= packets * 9 // 10:
            back.wait(WAIT_S)

    sender = threading.Thread(target=stream, args=(collector, 0, packets, progress))
    sender.start()
    until(lambda: sent[0] > packets // 4, "a quarter sent", 120)
    broker.kill()
    until(lambda: sent[0] > packets // 2, "half sent", 120)
    broker.start()
    assert sent[0] < packets, "the broker was to come back during the stream"
    back.set()
    sender.join(240)
    assert not sender.is_alive()
    settled(collector)
    assert collector.metric("records_delivered_total", "gstream") == 200_000
    assert collector.metric("records_dropped_total", "gstream") == 0
    assert collector.metric("packets_lost_total", "gstream") == 0
    assert collector.end() == 0
    assert in_order(broker.everything(PFC)) == list(range(200_000))


def test_a_collector_killed_while_the_broker_is_away(launch, broker):
    broker.start()
    collector = launch()
    ready(collector)
    stream(collector, 0, 100)
    settled(collector)
    broker.kill()
    stream(collector, 100, 200)
    taken = int(collector.metric("records_spooled_total", "gstream"))
    assert taken == 300 * 20
    collector.process.kill()
    broker.start()
    again = launch()
    ready(again)
    stream(again, 300, 50)
    settled(again)
    assert again.metric("packets_lost_total", "gstream") == 0
    assert again.end() == 0
    assert in_order(broker.everything(PFC)) == list(range(350 * 20))


def test_what_is_sent_while_no_collector_runs_is_counted(launch):
    collector = launch()
    stream(collector, 0, 50)
    collector.process.kill()
    killed = launch()
    stream(killed, 60, 50)
    assert killed.metric("packets_lost_total", "gstream") == 10
    assert killed.end() == 0
    ended = launch()
    stream(ended, 113, 50)
    assert ended.metric("packets_lost_total", "gstream") == 3


def test_a_full_spool_drops_the_oldest_and_counts_them(launch, broker):
    # Segments of one packet each, so that it stays nearly full: the oldest go one by one.
    collector = launch(spool={"max_bytes": 400_000, "segment_bytes": 10_000})
    stream(collector, 0, 200)
    dropped = int(collector.metric("records_dropped_total", "gstream"))
    assert 0 < dropped < 4000
    assert collector.metric("spool_bytes") <= 400_000
    assert "is nearly full" in collector.health()
    broker.start()
    ready(collector)
    settled(collector)
    assert in_order(broker.everything(PFC)) == list(range(dropped, 4000))
    assert collector.metric("records_dropped_total", "gstream") == dropped
    assert collector.end() == 0


def test_what_the_producer_holds_is_counted_when_it_is_in_the_spool_no_more(launch, broker):
    broker.start()
    collector = launch(spool={"max_bytes": 400_000, "segment_bytes": 50_000})
    ready(collector)
    stream(collector, 0, 5)
    settled(collector)
    broker.kill()
    stream(collector, 5, 195)
    collector.process.wait_ready(line_in(collector.process.log, "is away"), "aware that the broker is gone", WAIT_S)
    assert collector.metric("records_dropped_total", "gstream") == 0, "the producer still has them"
    assert collector.end() == 1
    said = collector.process.log.read_text()
    spooled = int(re.search(r"(\d+) records wait in the spool", said)[1])
    lost = int(re.search(r"(\d+) records could not be delivered", said)[1])
    assert spooled + lost == 195 * 20
    assert lost > 0
    broker.start()
    again = launch(spool={"max_bytes": 400_000, "segment_bytes": 50_000})
    ready(again)
    settled(again)
    assert in_order(broker.everything(PFC)) == [*range(100), *range(100 + lost, 4000)]


def test_a_full_disk_is_counted_and_the_collector_goes_on(launch, broker):
    """A limit on the size of files stands for the disk."""
    broker.start()
    collector = launch()
    ready(collector)
    stream(collector, 0, 5)
    settled(collector)
    unlimited = resource.prlimit(collector.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(collector.process.pid, resource.RLIMIT_FSIZE, (30_000, unlimited[1]))
    stream(collector, 5, 50)
    assert "takes no records: File too large" in collector.health()
    settled(collector)
    assert collector.metric("records_dropped_total", "gstream") == 0, "Kafka takes them directly"
    assert in_order(broker.everything(PFC)) == list(range(55 * 20))
    resource.prlimit(collector.process.pid, resource.RLIMIT_FSIZE, unlimited)
    sent = iter(range(55, 10_000))

    def well():
        stream(collector, next(sent), 1)
        return collector.health() == "ok\n"

    until(well, "well again")
    settled(collector)
    assert in_order(broker.everything(PFC)) == list(range(next(sent) * 20))
    assert collector.process.log.read_text().count("takes no records") == 1
    assert collector.end() == 0


def test_a_full_disk_without_a_broker_drops_and_counts(launch):
    collector = launch()
    resource.prlimit(collector.process.pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    stream(collector, 0, 1)
    stream(collector, 1, 49)
    spooled = collector.metric("records_spooled_total", "gstream")
    assert spooled + collector.metric("records_dropped_total", "gstream") == 1000
    assert 0 < spooled < 1000
    assert collector.end() == 0


def test_sigterm_leaves_to_the_spool_what_a_broker_that_hangs_does_not_take_in_time(launch, broker):
    broker.start()
    collector = launch(spool={"fsync": "never"}, shutdown_s=3.0)  # no disk is waited for
    ready(collector)
    stream(collector, 0, 5)
    settled(collector)
    os.kill(broker.process.pid, signal.SIGSTOP)
    stream(collector, 5, 20)
    begin = time.monotonic()
    assert collector.end() == 0
    assert 2.5 < time.monotonic() - begin < 15  # well below the default of shutdown_s and what comes after it
    assert "400 records wait in the spool" in collector.process.log.read_text()
    os.kill(broker.process.pid, signal.SIGCONT)
    again = launch()
    ready(again)
    settled(again)
    assert again.end() == 0
    assert in_order(broker.everything(PFC)) == list(range(500))


def test_two_collectors_on_one_spool(launch, repository, tmp_path):
    launch()
    config = tmp_path / "second.toml"
    config.write_text(
        "[collector]\ngstream_port = 0\nfstream_port = 0\ndecision_port = 0\nmetrics_port = 0\n"
        f"[spool]\ndir = {json.dumps(str(tmp_path / 'spool'))}\n"
    )
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "collect", "--config", str(config)]
    second = Process("second", argv, tmp_path / "second.log", cwd=repository).start()
    assert second.wait(WAIT_S) == 1
    said = second.log.read_text()
    assert "is in use by another collector (process " in said
    assert "[spool] dir" in said
    assert "Traceback" not in said


def test_topics_are_created_with_settings_and_what_would_lose_records_is_said(launch, broker):
    broker.start()
    admin = broker.admin()
    bad = NewTopic(PFC, num_partitions=1, replication_factor=1, config={"cleanup.policy": "compact", "retention.ms": "60000"})
    admin.create_topics([bad])[PFC].result(30)
    collector = launch()
    ready(collector)
    log = collector.process.log.read_text()
    assert f"topic {PFC} has 1 partitions, [kafka] partitions says 4" in log
    assert f"topic {PFC}: cleanup.policy is compact, " in log
    assert "set cleanup.policy=delete" in log
    assert f"topic {PFC}: retention.ms is 60000, " in log
    assert "set retention.ms=1209600000" in log
    assert FSTREAM not in log.split("ready:")[0].replace(str(collector.ports["fstream"]), "")
    made = ConfigResource(ResourceType.TOPIC, FSTREAM)
    entries = admin.describe_configs([made])[made].result(30)
    assert (entries["cleanup.policy"].value, entries["retention.ms"].value) == ("delete", "1209600000")
    assert len(admin.list_topics(timeout=10).topics[FSTREAM].partitions) == 4


def test_a_cluster_that_has_not_all_its_brokers_yet_is_waited_for(launch, broker):
    broker.start()
    collector = launch(kafka={"replication": 2})
    says = f"waiting for Kafka at [kafka] bootstrap {LOOPBACK}:{broker.port}: topic {PFC} wants [kafka] replication 2 brokers"
    until(lambda: says in collector.process.log.read_text(), "said")
    stream(collector, 0, 5)
    assert collector.metric("lag_records", "gstream") == 100
    # As by a second broker that has come up.
    admin = broker.admin()
    kinds = ("pfc", "fstream", "decision", "cinfo", "job")
    names = [f"xcache.{kind}.v1{end}" for kind in kinds for end in ("", ".dlq")]
    for made in admin.create_topics([NewTopic(name, num_partitions=4, replication_factor=1) for name in names]).values():
        made.result(WAIT_S)
    ready(collector)
    settled(collector)
    assert in_order(broker.everything(PFC)) == list(range(100))
    assert collector.end() == 0


def test_what_kafka_refuses_is_counted_and_the_rest_goes_on(launch, broker):
    broker.start()
    dlq = f"{PFC}.dlq"
    admin = broker.admin()
    admin.create_topics([NewTopic(dlq, num_partitions=1, replication_factor=1, config={"max.message.bytes": "1000"})])[dlq].result(30)
    collector = launch()
    ready(collector)
    assert f"topic {dlq}: max.message.bytes is 1000, so larger records are refused" in collector.process.log.read_text()
    # As the stream's own packets begin: of anything else a dead letter quotes a few bytes only.
    small = [b'{"code": small %d' % number for number in range(20)]
    collector.send("gstream", *small[:10], b'{"code":' + os.urandom(4000).hex().encode(), *small[10:])
    stream(collector, 0, 5)
    until(lambda: collector.metric("records_dropped_total", "gstream.dlq") == 1, "refused")
    later = b'{"code": later'
    collector.send("gstream", later)
    settled(collector)
    until(lambda: collector.metric("lag_records", "gstream.dlq") == 0, "delivered")
    letters = [json.loads(message.value()) for message in broker.everything(dlq)]
    assert {base64.b64decode(letter["raw"]) for letter in letters} == {*small, later}
    assert in_order(broker.everything(PFC)) == list(range(100))
    assert collector.end() == 0


def test_a_topic_deleted_under_the_collector_comes_back_with_what_it_was_not_given(launch, broker):
    broker.start()
    collector = launch()
    ready(collector)
    stream(collector, 0, 5)
    settled(collector)
    on_disk = lambda: list((broker.folder / "data").glob(f"{PFC}-[0-9]"))  # noqa: E731
    assert on_disk()
    admin = broker.admin()
    admin.delete_topics([PFC])[PFC].result(30)
    # Until then the broker would take records and delete them with the rest.
    until(lambda: not on_disk(), "gone from the broker's disk")
    stream(collector, 5, 20)
    until(lambda: collector.metric("deliveries_repeated_total", "kafka") > 0, "delivery failed", 120)
    settled(collector)
    assert in_order(broker.everything(PFC)) == list(range(100, 500))
    assert collector.end() == 0

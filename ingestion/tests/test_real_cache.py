"""A real origin, a real XCache, real clients: what its monitoring says of them, and what a scan of its disk says."""

import dataclasses
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from cinfo_bytes import as_printed, printed
from collector_site import WAIT_S, end_of, until
from confluent_kafka import Consumer, TopicPartition
from plugin_client import Clients

from smartcache.ingestion.counters import Counters
from smartcache.ingestion.decision import DecisionHandler
from smartcache.ingestion.gstream import GStreamHandler
from smartcache.ingestion.numbering import Numbering
from smartcache.ingestion.opens import FStreamHandler
from smartcache.ingestion.pseudonym import Pseudonyms
from smartcache.ingestion.receiver import Receiver
from smartcache.local import kafka, paths, xrootd
from smartcache.local.ports import LOOPBACK, free_ports

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(paths.XROOTD_PREFIX is not None, reason="the system's xrdpfc_print is compared with"),
]

BLOCK = xrootd.BLOCK_BYTES
#: Blocks of each file, and some bytes.
SIZES = {f"/store/set/{name}": blocks * BLOCK + 77 for name, blocks in (("a b.root", 2), ("b%20.root", 3), ("c.root", 9), ("sub/d", 1))}
SIZE = xrootd.CacheSize(base=64 << 20, nominal=128 << 20, maximum=256 << 20)


class Monitor:
    """The handlers of the collector behind real sockets, in a thread."""

    def __init__(self, output, folder):
        self.counters = Counters()
        # As if a collector had been here for an hour: the servers that begin now owe every packet from their first on.
        numbering = Numbering(folder / "numbering", pytest.fail, (time.time_ns() // 1000) - 3_600_000_000)
        self._receivers = [Receiver(name, LOOPBACK, 0, 1 << 20) for name in ("gstream", "fstream", "decision")]
        self.handlers = {
            "gstream": GStreamHandler(output, self.counters, numbering),
            "fstream": FStreamHandler(output, self.counters, Pseudonyms(b"k" * 32), numbering),
            "decision": DecisionHandler(output, self.counters, numbering),
        }
        self.ports = xrootd.Monitoring(*(receiver.port for receiver in self._receivers[:2]))
        self.decision_port = self._receivers[2].port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            got = False
            for receiver in self._receivers:
                for raw, source in receiver.receive(100):
                    got = True
                    self.handlers[receiver.stream].handle(raw, source, time.time_ns() // 1000)
            if not got:
                self._stop.wait(0.02)

    def close(self):
        self._stop.set()
        self._thread.join()
        for receiver in self._receivers:
            receiver.close()


@pytest.fixture
def site():
    """An origin's files; ``start`` starts a cache in front of it."""
    with xrootd.temporary_folder() as folder:
        data = folder / "origin-data"
        for lfn, size in SIZES.items():
            path = data / lfn.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
        running = [xrootd.start_origin(folder / "origin", free_ports(1)[0], data=data)]

        def start(monitoring=None, **more):
            cache = xrootd.start_cache(
                folder / "cache", free_ports(1)[0], origin_port=running[0].port, size=SIZE, monitoring=monitoring, **more
            )
            running.append(cache)
            return cache

        yield SimpleNamespace(start=start, data=data)
        for server in reversed(running):
            server.process.stop()


def test_the_records_say_what_the_clients_did_and_so_does_the_disk(site, output, tmp_path):
    monitor = Monitor(output, tmp_path)
    try:
        cache = site.start(monitor.ports)
        lfns = list(SIZES)
        opens = [*lfns, lfns[0], lfns[2], lfns[2], lfns[2]]
        with Clients(f"{LOOPBACK}:{cache.port}", site.data) as clients:
            assert clients.open(opens, users=3) == [""] * len(opens)
        did = Counter(opens)
        read = {lfn: (size - 1) // BLOCK * BLOCK for lfn, size in SIZES.items()}  # all but the last block of each file
        of = {
            kind: lambda kind=kind: [each for each in list(output.records) if ("b_hit" in each) == (kind == "pfc")]
            for kind in ("pfc", "open")
        }
        until(lambda: len(of["open"]()) >= len(opens), "all closes seen")
        # A life of pfc's File object ends up to half a minute after the last close.
        until(lambda: delivered(of["pfc"]()) == {lfn: did[lfn] * read[lfn] for lfn in lfns}, "every byte in the records of the lives")
    finally:
        monitor.close()

    cache_id = of["open"]()[0]["cache"]
    assert cache_id.endswith(f":{cache.port}")
    assert {each["cache"] for each in output.records} == {cache_id}
    # What each client opened and read.
    assert Counter(each["lfn"] for each in of["open"]()) == did
    for each in of["open"]():
        assert each["b_read"] + each["b_readv"] == read[each["lfn"]]
        assert each["size"] == SIZES[each["lfn"]]
        assert each["close_hi_us"] >= each["open_lo_us"]
    assert len({each["user"] for each in of["open"]()}) == 3
    # Opens of one file that follow closely share a life of pfc's File object.
    lives = Counter(each["lfn"] for each in of["pfc"]())
    assert all(1 <= lives[lfn] <= did[lfn] for lfn in lfns)
    assert {lfn: max(each["access_cnt"] for each in of["pfc"]() if each["lfn"] == lfn) for lfn in lfns} == lives
    assert sum(each["b_bypass"] for each in of["pfc"]()) == 0
    assert output.letters == []
    for stream in ("gstream", "fstream"):
        assert monitor.counters.total("packets_lost", stream) == 0
        assert monitor.counters.total("dead_letters", stream) == 0

    # The same from the disk: another witness of the same lives.
    lines = scan(cache.data, cache_id, tmp_path / "scan.jsonl")
    assert {each["lfn"]: each["access_cnt"] for each in lines} == lives
    for each in lines:
        assert each["size"] == SIZES[each["lfn"]]
        assert sum(access["b_hit"] + access["b_miss"] for access in each["accesses"]) == did[each["lfn"]] * read[each["lfn"]]
        file = cache.data / (each["lfn"].lstrip("/") + ".cinfo")
        assert as_printed(each, str(file)) == printed(file)


def test_with_path_packets_no_name_is_too_long_for_the_server(site, output, tmp_path):
    """XRootD 5.5.3 ends at an LFN of more than about 1000 bytes where the opens of the f-stream have names."""
    deep = "/store/" + "/".join(letter * 250 for letter in "abcd")
    names = ["/store/set/sub/d", f"{deep}/long", f"{deep}/{'e' * 250}/too/long"]
    for lfn in names[1:]:
        path = site.data / lfn.lstrip("/")
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * (BLOCK + 77))
    monitor = Monitor(output, tmp_path)
    try:
        cache = site.start(dataclasses.replace(monitor.ports, path_packets=True))
        with Clients(f"{LOOPBACK}:{cache.port}", site.data) as clients:
            assert clients.open(names) == [""] * 3
        opens = lambda: [each for each in list(output.records) if "b_readv" in each]  # noqa: E731
        until(lambda: len(opens()) == 2, "the closes of the two that have a name")
        until(lambda: monitor.counters.get("records_ignored", "fstream", "open_without_lfn") == 1, "the third counted")
        cache.process.require_running()
    finally:
        monitor.close()
    assert [each["lfn"] for each in opens()] == names[:2]
    assert {each["b_read"] for each in opens()} == {BLOCK}
    assert len({(each["user"], each["client_host"]) for each in opens()}) == 1
    assert all(each["user"] and each["app"] for each in opens())
    assert monitor.counters.get("records_ignored", "fstream", "path_cut") == 1
    assert [reason for reason, _ in output.letters if "path" in reason] == []


def test_what_went_past_the_cache_shows_where_clients_are_counted_and_nowhere_else(site, output, tmp_path):
    """With the plugin: an open that was answered bypass has its bytes in the f-stream and its answer in the decision log, and no more."""
    monitor = Monitor(output, tmp_path)
    try:
        config = site.data.parent / "plugin.toml"
        rules = '[policy]\nexplore = 0.0\nnever_admit = ["/store/set/c*"]\n[evictor]\nenabled = false\n'
        config.write_text(f"[decision_log]\nport = {monitor.decision_port}\n{rules}")
        cache = site.start(monitor.ports, plugin=paths.PLUGIN, plugin_config=config)
        opens = [*SIZES, "/store/set/c.root"]
        with Clients(f"{LOOPBACK}:{cache.port}", site.data) as clients:
            assert clients.open(opens) == [""] * len(opens)
        did = Counter(opens)
        read = {lfn: (size - 1) // BLOCK * BLOCK for lfn, size in SIZES.items()}
        kept = [lfn for lfn in SIZES if lfn != "/store/set/c.root"]
        until(lambda: sum("b_readv" in each for each in list(output.records)) >= len(opens), "all closes seen")
        until(lambda: sum("answer" in each for each in list(output.records)) >= len(opens), "all answers seen")
        pfcs = lambda: [each for each in list(output.records) if "b_hit" in each]  # noqa: E731
        until(lambda: set(delivered(pfcs())) >= set(kept), "the lives of what was kept")
    finally:
        monitor.close()
    clients_read = Counter()
    for each in output.records:
        if "b_readv" in each:
            clients_read[each["lfn"]] += each["b_read"] + each["b_readv"]
    assert clients_read == {lfn: did[lfn] * read[lfn] for lfn in SIZES}
    answers = Counter((each["lfn"], each["answer"]) for each in output.records if "answer" in each)
    assert answers == {(lfn, "bypass" if lfn not in kept else "admit"): did[lfn] for lfn in SIZES}
    assert delivered(pfcs()) == {lfn: read[lfn] for lfn in kept}
    assert output.letters == []
    lost = [monitor.counters.total("packets_lost", stream) for stream in ("gstream", "fstream", "decision")]
    assert lost == [0, 0, 0]


def delivered(pfcs):
    """Bytes that the cache says it delivered, by LFN."""
    counts = Counter()
    for each in pfcs:
        counts[each["lfn"]] += each["b_hit"] + each["b_miss"]
    return counts


def scan(folder, cache_id, file):
    run_scan(folder, "--cache", cache_id, "--output", file)
    return [json.loads(line) for line in file.read_text().splitlines()]


def run_scan(*arguments):
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "scan-cinfo", *map(str, arguments)]
    answer = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S)
    assert answer.returncode == 0, answer.stderr
    return answer.stderr


def test_scans_of_a_cache_in_use_reach_kafka_once_per_state(site, tmp_path, validate):
    broker = kafka.start(tmp_path / "kafka", *free_ports(2))
    try:
        port = int(broker_port(tmp_path))
        config = tmp_path / "c.toml"
        config.write_text(f'[kafka]\nbootstrap = "{LOOPBACK}:{port}"\n')
        cache = site.start()
        arguments = (cache.data, "--cache", "h:1", "--config", config, "--state", tmp_path / "state")
        with Clients(f"{LOOPBACK}:{cache.port}", site.data) as clients:
            lfns = list(SIZES)
            assert clients.open(lfns[:2]) == [""] * 2
            run_scan(*arguments)
            assert clients.open(lfns) == [""] * 4
            run_scan(*arguments)
        cache.process.stop()
        bad = cache.data / "bad.cinfo"
        bad.write_bytes(b"\4\0\0\0 and nothing")
        # At rest now: the scan that finds nothing new sends nothing.
        until(lambda: "0 records, 5 unchanged" in run_scan(*arguments), "all known")
        by_id = {}
        for message in messages(port, "xcache.cinfo.v1"):
            record = json.loads(message.value())
            validate("xcache.cinfo.v1", record)
            assert message.key().decode() == f"h:1|{record['lfn']}"
            assert message.headers() == [("schema", b"xcache.cinfo.v1")]
            by_id[record["record_id"]] = record
        assert {record["lfn"] for record in by_id.values()} == set(SIZES)
        for path in cache.data.rglob("store/**/*.cinfo"):
            lfn = "/" + str(path.relative_to(cache.data)).removesuffix(".cinfo")
            states = [as_printed(record, str(path)) for record in by_id.values() if record["lfn"] == lfn]
            assert printed(path) in states
        letters = [json.loads(message.value()) for message in messages(port, "xcache.cinfo.v1.dlq")]
        assert {letter["stream"] for letter in letters} == {"cinfo"}
        assert all(str(bad) in letter["reason"] for letter in letters)
        assert letters
    finally:
        broker.stop()


def broker_port(folder):
    text = (folder / "kafka" / "server.properties").read_text()
    return text.partition(f"PLAINTEXT://{LOOPBACK}:")[2].partition(",")[0]


def messages(port, topic):
    consumer = Consumer({"bootstrap.servers": f"{LOOPBACK}:{port}", "group.id": "test", "enable.auto.commit": False})
    try:
        partitions = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions]
        total = sum(until(lambda at=each: end_of(consumer, at), "its end known") - 1 for each in partitions)
        consumer.assign(partitions)
        found = []
        until(lambda: found.extend(consumer.consume(1000, timeout=0.2)) or len(found) >= total, f"all of {topic}")
        return found
    finally:
        consumer.close()

"""Real Kafka and real Spark for these tests: one broker, as few sessions as can be."""

import json
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from smartcache.config import load
from smartcache.ingestion.topics import PRODUCER
from smartcache.local import kafka, paths, ports
from smartcache.local.process import Process, line_in
from smartcache.preprocessing.access import read_access_table, table_files
from smartcache.preprocessing.session import spark_session
from smartcache.preprocessing.table import TableError, partition_of
from smartcache.preprocessing.tests.commands import runner

#: Nothing takes so long but on a machine with a lot else to do.
LIMIT_S = 400


class Topics:
    """A broker, and a producer; each test has topics of its own."""

    def __init__(self, port):
        self.bootstrap = f"{ports.LOOPBACK}:{port}"

    def create(self, prefix):
        """Fresh topics; their names by kind of record."""
        from confluent_kafka.admin import AdminClient, NewTopic

        names = {kind: f"{prefix}.{kind}.v1" for kind in ("open", "decision", "pfc", "job")}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        # Some tests send messages of days long past: a broker that keeps a week would delete them before the stream has read them.
        topics = [NewTopic(name, 2, 1, config={"retention.ms": "-1"}) for name in names.values()]
        for made in admin.create_topics(topics).values():
            made.result()
        return names

    def send(self, names, records, at_s=None):
        """(kind, record as a dictionary or raw bytes): all are on the broker when this returns. ``at_s``: when they say they came."""
        from confluent_kafka import Producer

        # As the collector does: what is sent again on a busy machine makes no duplicates, which the stream would count.
        producer, refused = Producer({**PRODUCER, "bootstrap.servers": self.bootstrap}), []
        for kind, record in records:
            raw = record if isinstance(record, bytes) else json.dumps(record).encode()
            key = None if isinstance(record, bytes) else f"{record.get('cache')}|{record.get('lfn')}"
            when = {} if at_s is None else {"timestamp": round(at_s * 1000)}
            producer.produce(names[kind], raw, key=key, on_delivery=lambda error, _: error and refused.append(error), **when)
        assert producer.flush(LIMIT_S) == 0
        assert not refused


@pytest.fixture(scope="session")
def topics(tmp_path_factory):
    port, controller = ports.free_ports(2)
    with kafka.start(tmp_path_factory.mktemp("kafka"), port, controller, timeout_s=LIMIT_S):
        yield Topics(port)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One session for all tests that need one in their own process."""
    session = spark_session(load(_write_config(tmp_path_factory.mktemp("session"))), "test")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def command(spark):
    """Run a command in that session: `command(config, name, *options, status=0)`."""
    return runner(spark)


@pytest.fixture(scope="module")
def write_config():
    """Write a configuration whose tables are under a folder; its path."""
    return _write_config


def _write_config(folder: Path, bootstrap="127.0.0.1:9", names=None, options="", more=""):
    folder.mkdir(parents=True, exist_ok=True)
    names = names or {"open": "o", "decision": "d", "pfc": "p", "job": "j"}
    path = folder / "smartcache.toml"
    path.write_text(f"""
[kafka]
bootstrap = "{bootstrap}"
fstream_topic = "{names["open"]}"
decision_topic = "{names["decision"]}"
pfc_topic = "{names["pfc"]}"
job_topic = "{names["job"]}"
[spark]
master = "local[2]"
shuffle_partitions = 2
quick_start = true
jars_dir = "{paths.SPARK_JARS}"
options = {{ {options} }}
[streaming]
table = "{folder}/access"
jobs = "{folder}/jobs"
quarantine = "{folder}/quarantine"
checkpoint = "{folder}/checkpoint"
trigger_s = 1.0
join_grace_s = 1.0
{more}
""")
    return path


class Run:
    """One `smartcache stream` over its own table and checkpoint."""

    def __init__(self, folder, config):
        self.folder, self.config = folder, config
        self.process = None

    def start(self):
        self.log = self.folder / f"stream-{time.monotonic_ns()}.log"
        (self.folder / "stream.prom").unlink(missing_ok=True)  # one that was killed has left it
        argv = [sys.executable, "-m", "smartcache.preprocessing.cli", "stream", "--config", self.config]
        self.process = Process("stream", [*argv, "--metrics", self.folder / "stream.prom"], self.log).start()
        return self

    def ready(self):
        self.process.wait_ready(line_in(self.log, "ready: "), "ready", LIMIT_S)
        return self

    def wait(self, check, what):
        self.process.wait_ready(check, what, LIMIT_S)

    def rows(self):
        try:
            return read_access_table(self.folder / "access")
        except TableError:
            return None

    def has_rows(self, count):
        return lambda: (rows := self.rows()) is not None and rows.num_rows >= count

    def metrics(self):
        """The counters by short name; empty before the first batch."""
        path = self.folder / "stream.prom"
        lines = path.read_text().splitlines() if path.exists() else []
        return {name.removeprefix("smartcache_stream_"): float(value) for name, value in (line.split() for line in lines if line[0] != "#")}

    def mid_batch(self):
        """Whether a batch has begun that is not done."""
        done = {path.name for path in (self.folder / "checkpoint/access/commits").glob("[0-9]*")}
        return any(path.name not in done for path in (self.folder / "checkpoint/access/offsets").glob("[0-9]*"))

    def in_first_quarantine_batch(self):
        """Whether the quarantine query has begun its first batch, and not done it."""
        checkpoint = self.folder / "checkpoint/quarantine"
        return (checkpoint / "offsets/0").exists() and not (checkpoint / "commits/0").exists()

    def quarantined(self):
        return [row for _, row in self._rows_of("quarantine")]

    def jobs(self):
        """The rows of the jobs table with their day, in the order of their ids."""
        rows = [row | partition_of(file.as_posix()) for file, row in self._rows_of("jobs")]
        return sorted(rows, key=lambda row: row["record_us"])

    def _rows_of(self, table):
        try:
            files = table_files(self.folder / table)
        except TableError:
            return []
        return [(file, row) for file in files for row in pq.ParquetFile(file).read().to_pylist()]

    def stop(self):
        self.process.stop(grace_s=LIMIT_S)
        assert self.process.returncode == 0, self.process.last_words()


@pytest.fixture
def run(topics, tmp_path, write_config, request):
    names = topics.create(request.node.name)
    made = []

    def start(name, more="", options=""):
        folder = tmp_path / name
        made.append(Run(folder, write_config(folder, topics.bootstrap, names, options, more)))
        return made[-1].start()

    yield start, names
    for each in made:
        if each.process.running:
            each.process.kill()

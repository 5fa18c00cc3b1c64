"""The same jobs on a standalone Spark cluster of two workers as in one process."""

import json
import sys

import pyarrow.parquet as pq
import pytest

from smartcache.bench import spark_load
from smartcache.config import load
from smartcache.local import paths, ports
from smartcache.local.process import Process, line_in
from smartcache.local.spark import Cluster
from smartcache.preprocessing.access import read_access_table
from smartcache.preprocessing.popularity import load as load_side_table
from smartcache.preprocessing.storage import Local
from smartcache.preprocessing.table import TableError, listing
from smartcache.preprocessing.tests.commands import in_one_driver

pytestmark = pytest.mark.slow

OPENS = 300
LIMIT_S = 1500


def config_of(folder, table, master, bootstrap="127.0.0.1:9", options=None):
    folder.mkdir(parents=True, exist_ok=True)
    listed = "".join(f'"{name}" = "{value}", ' for name, value in (options or {}).items())
    path = folder / "smartcache.toml"
    path.write_text(f"""
[kafka]
bootstrap = "{bootstrap}"
[spark]
master = "{master}"
shuffle_partitions = 2
jars_dir = "{paths.SPARK_JARS}"
options = {{ {listed.rstrip(", ")} }}
[streaming]
table = "{table}"
jobs = "{folder}/jobs"
quarantine = "{folder}/quarantine"
checkpoint = "{folder}/checkpoint"
trigger_s = 1.0
join_grace_s = 600.0
[side_table]
windows_s = [864000000.0]
[compaction]
after_days = 0
""")
    return path


def rows_of(table):
    try:
        return read_access_table(table)
    except TableError:
        return None


def streamed(folder, config, count):
    """The table that the stream makes of what is on Kafka."""
    argv = [sys.executable, "-m", "smartcache.preprocessing.cli", "stream", "--config", str(config)]
    stream = Process("stream", argv, folder / "stream.log").start()
    try:
        stream.wait_ready(line_in(folder / "stream.log", "ready: "), "ready", LIMIT_S)
        stream.wait_ready(
            lambda: (rows := rows_of(folder / "access")) is not None and rows.num_rows >= count, f"done with {count}", LIMIT_S
        )
    finally:
        stream.stop(grace_s=60)
    return rows_of(folder / "access")


@pytest.mark.timeout(3600)
def test_two_workers_do_the_same_as_one_process(topics, tmp_path, command):
    bootstrap, here, there = topics.bootstrap, tmp_path / "here", tmp_path / "there"
    with Cluster(tmp_path / "cluster") as cluster:
        options = {"spark.driver.host": ports.LOOPBACK, "spark.driver.bindAddress": ports.LOOPBACK, "spark.executor.memory": "600m"}
        options |= {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        on_cluster = config_of(there, there / "access", cluster.url, bootstrap, options)
        spark_load.send(load(on_cluster).kafka, OPENS)
        table = streamed(there, on_cluster, OPENS)
        assert table.num_rows == OPENS
        assert not table["decision_id"].null_count
        assert table["pfc_id"].null_count == OPENS // 3

        # The batch commands, here and there, over the same table.
        local = config_of(here, there / "access", "local[2]", bootstrap)
        before = len(listing(Local(), str(there / "access")).files)
        outputs = {"build-dataset": "set", "stats": "stats", "side-table": "side.json"}
        for name, to in outputs.items():
            command(local, name, "--output", here / to)
        own = [(name, "--output", there / to) for name, to in outputs.items()]
        tasks = in_one_driver(on_cluster, *own, ("compact",), timeout_s=LIMIT_S)
        manifests = [json.loads((folder / "set" / "manifest.json").read_text()) for folder in (here, there)]
        assert manifests[0]["sha256"] == manifests[1]["sha256"]
        assert manifests[0]["rows"] == OPENS
        for name in ("caches", "tiers", "parts", "blocks"):
            one, two = (pq.read_table(folder / "stats" / f"{name}.parquet") for folder in (here, there))
            assert one.num_rows
            assert one.equals(two), name
        assert load_side_table(here / "side.json")[1] == load_side_table(there / "side.json")[1]
        assert len(listing(Local(), str(there / "access")).files) <= before
        assert rows_of(there / "access").equals(table)

        # The stream's application, and that of the commands.
        applications = [{path.name for path in cluster.work(number).iterdir()} for number in range(2)]
        assert len(applications[0] & applications[1]) == 2, "both workers took part"
        executors = {name: count for name, count in tasks.items() if name != "driver"}
        assert len(executors) == 2
        assert all(count > 0 for count in executors.values()), executors

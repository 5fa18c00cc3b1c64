"""The commands under `spark-submit`, with their tables on a file system that is no local disk's."""

import json
import os
import re
import signal
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from smartcache.local import paths
from smartcache.local.process import Process, line_in
from smartcache.preprocessing import cli
from smartcache.preprocessing.popularity import load as load_side_table
from smartcache.preprocessing.session import connector_jars
from smartcache.preprocessing.stats.measure import ALL
from smartcache.preprocessing.tests.commands import in_one_driver
from smartcache.preprocessing.tests.test_streaming import traffic

pytestmark = pytest.mark.slow

LIMIT_S = 400
#: Hadoop's view of a folder: known by these settings alone.
SITE = "viewfs://site/data"


def submit(config, log, command, *options):
    """`spark-submit cli.py COMMAND`, as a user gives it: master and jars are its own."""
    argv = [Path(sys.executable).with_name("spark-submit"), "--master", "local[2]", "--jars", ",".join(connector_jars(paths.SPARK_JARS))]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return Process("spark-submit", [*argv, cli.__file__, command, "--config", config, *options], log, env=env).start()


def seen(files):
    """The rows by their open's id."""
    return {row["open_id"]: row for file in files for row in pq.ParquetFile(file).read().to_pylist()}


def test_all_commands(topics, tmp_path, write_config):
    names = topics.create("submitted")
    halves, expected, _ = traffic(seed=3, opens=40)
    topics.send(names, [record for half in halves for record in half])
    options = f'"spark.hadoop.fs.viewfs.mounttable.site.link./data" = "{tmp_path.as_uri()}"'
    more = "[compaction]\nafter_days = 0\nkeep_replaced_s = 0.0\n[side_table]\nwindows_s = [1e9]\n"
    config = write_config(tmp_path, topics.bootstrap, names, options, more)
    text = re.sub(r'^(table|jobs|quarantine|checkpoint) = "[^"]*/', rf'\1 = "{SITE}/', config.read_text(), flags=re.MULTILINE)
    config.write_text(
        re.sub(r'^(jars_dir|master) = ".*"', r'\1 = ""', text, flags=re.MULTILINE).replace('master = ""', 'master = "local[1]"')
    )

    counted = f"smartcache_stream_rows_total {len(expected)}\n"
    stream = submit(config, tmp_path / "stream.log", "stream", "--metrics", tmp_path / "stream.prom")
    try:
        stream.wait_ready(line_in(stream.log, "ready: "), "ready", LIMIT_S)
        stream.wait_ready(line_in(tmp_path / "stream.prom", counted), f"done with {len(expected)}", LIMIT_S)
    finally:
        stream.stop(grace_s=LIMIT_S, sign=signal.SIGINT)
    # Nothing has killed this stream: each file counts that has its name.
    days = sorted((tmp_path / "access").glob("cache=*/day=*"))
    files = [file for day in days for file in day.glob("part-*.parquet")]
    rows = seen(files)
    assert {name: row["pfc_id"] for name, row in rows.items()} == {name: row["pfc_id"] for name, row in expected.items()}
    assert SITE in next((tmp_path / "access" / "_spark_metadata").glob("0")).read_text()

    built = submit(config, tmp_path / "build.log", "build-dataset", "--output", f"{SITE}/set")
    assert built.wait(LIMIT_S) == 0, built.last_words()
    decided = [row["cache"] for row in expected.values() if row["decision_id"]]
    manifest = json.loads((tmp_path / "set" / "manifest.json").read_text())
    assert {part["cache"]: part["rows"] for part in manifest["files"]} == Counter(decided)
    assert [pq.ParquetFile(tmp_path / "set" / part["name"]).metadata.num_rows for part in manifest["files"]] == [
        part["rows"] for part in manifest["files"]
    ]

    # Those that change a table, or read it all. The second run of compact deletes what the first has replaced.
    day = days[0].name.partition("=")[2]
    made = (("compact",), ("compact",), ("stats", "--output", tmp_path / "stats"), ("side-table", "--output", tmp_path / "side.json"))
    in_one_driver(config, *made, timeout_s=LIMIT_S)
    compacted = [file for each in days for file in each.glob("*.parquet")]
    assert len(compacted) == len(days) < len(files)
    assert seen(compacted) == rows
    caches = pq.read_table(tmp_path / "stats" / "caches.parquet").to_pylist()
    assert [row["opens"] for row in caches if row["cache"] == ALL][-1] == len(rows)
    assert load_side_table(tmp_path / "side.json")[1]
    in_one_driver(config, ("retain", "--day", day), timeout_s=LIMIT_S)
    left = seen(file for each in days for file in each.glob("*.parquet"))
    assert left == {name: row for name, row in rows.items() if f"{datetime.fromtimestamp(row['open_us'] / 1e6, UTC):%Y-%m-%d}" != day}
    assert len(left) < len(rows)

"""From an open at a real XCache to a training set, by all that is between: the vector of a row is the one that the plugin had."""

import json
import random
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from collector_site import Broker
from plugin_site import FILE_BYTES, Site

from smartcache.local import paths, xrootd
from smartcache.local.ports import LOOPBACK, free_ports
from smartcache.local.process import START_LIMIT_S, Process, http_ok

pytestmark = pytest.mark.slow

FILES, OPENS = 8, 60


@pytest.fixture
def site():
    """Not started yet."""
    with xrootd.temporary_folder() as folder:
        store = folder / "origin-data" / "store" / "set"
        store.mkdir(parents=True)
        for number in range(FILES):
            (store / f"{number}.root").write_bytes(bytes([number]) * FILE_BYTES)
        origin = xrootd.start_origin(folder / "origin", free_ports(1)[0], data=folder / "origin-data")
        (folder / "site").mkdir()
        (folder / "site").chmod(0o777)
        made = Site(folder / "site", origin)
        yield made
        made.stop()
        origin.process.stop()


def test_rows_have_the_vectors_that_the_plugin_logged(topics, run, site, command, tmp_path):
    """Plugin, its decision log, collector, Kafka, stream, access table, build-dataset."""
    start, names = run
    gstream, fstream, decision, metrics = free_ports(4)
    ports = f"gstream_port = {gstream}\nfstream_port = {fstream}\ndecision_port = {decision}\nmetrics_port = {metrics}\n"
    stream = start("site", f'[collector]\n{ports}[spool]\ndir = "{tmp_path}/spool"\n')
    argv = [sys.executable, "-m", "smartcache.ingestion.cli", "collect", "--config", str(stream.config)]
    collector = Process("collector", argv, tmp_path / "collector.log", cwd=paths.ROOT).start()
    try:
        collector.wait_ready(http_ok(f"http://{LOOPBACK}:{metrics}/healthz"), "healthy", START_LIMIT_S)
        log = f"[decision_log]\nport = {decision}\nfeatures = true\n[history]\nscan = false\n"
        site.start(raw=log, monitoring=xrootd.Monitoring(gstream, fstream))
        stream.ready()
        chance = random.Random(4)
        lfns = [chance.choice(site.lfns) for _ in range(OPENS)]
        with site.clients() as clients:
            assert clients.open(lfns, users=2) == [""] * OPENS
        stream.wait(stream.has_rows(OPENS), f"done with {OPENS} opens")
        stream.stop()
    finally:
        collector.stop()

    broker = Broker(tmp_path, int(topics.bootstrap.rpartition(":")[2]), 0)
    logged = [json.loads(message.value()) for message in broker.everything(names["decision"])]
    command(stream.config, "build-dataset", "--output", tmp_path / "set")
    rows = pq.read_table(tmp_path / "set" / "part-00000.parquet")
    # Not each open: a file that is open already is no decision.
    assert len(logged) > OPENS / 2
    assert [(row["cache"], row["t_us"], row["lfn"]) for row in rows.select(["cache", "t_us", "lfn"]).to_pylist()] == [
        (each["cache"], each["t_us"], each["lfn"]) for each in sorted(logged, key=lambda each: (each["boot_us"], each["seq"]))
    ]
    vectors = {each["t_us"]: np.array(each["features"], np.float64).astype(np.float32) for each in logged}
    assert len(vectors) == len(logged)
    for row in rows.to_pylist():
        assert np.array(row["features"], np.float32).tobytes() == vectors[row["t_us"]].tobytes(), row["lfn"]
    assert len({vector.tobytes() for vector in vectors.values()}) > OPENS / 4, "they are not all the same"

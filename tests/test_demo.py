"""The main path, end to end: the quick demo, and what it leaves."""

import ipaddress
import json
import re
import time
from collections import Counter

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from smartcache import config
from smartcache.demo import model_table
from smartcache.demo.clients import read_results, read_schedule
from smartcache.demo.plan import CACHES
from smartcache.local import kafka, mlflow
from smartcache.local.ports import listens
from smartcache.preprocessing.access import read_access_table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def demo(start_demo):
    """A quick demo that has ended well."""
    running = start_demo()
    running.until(running.says("train and promote: done"), "a model was promoted", 1200)
    running.look_where_it_is_bound()
    assert running.wait(1500) == 0, running.output()
    return running


@pytest.fixture(scope="module")
def results(demo):
    return [result for phase in ("learn", "decide") for result in read_results(demo.run / f"{phase}.results.jsonl")]


@pytest.fixture(scope="module")
def settings(demo):
    return config.load(demo.run / "smartcache.toml")


@pytest.fixture(scope="module")
def table(demo):
    return read_access_table(str(demo.run / "access")).to_pandas()


def test_it_leaves_no_process(demo):
    assert len(demo.seen) > 10
    assert demo.left_over() == []
    assert not [port for port in vars(demo.ports).values() if listens(port)]


def test_nobody_else_can_reach_it(demo):
    """XRootD cannot bind to one address, and refuses who is not this machine: ``smartcache/tests/test_local.py``."""
    others = {(name, address) for name, address in demo.bound if name != "xrootd"}
    assert {"java", "smartcache-endpoint"} <= {name for name, _ in others}
    assert [one for one in others if not ipaddress.ip_address(one[1].removeprefix("::ffff:")).is_loopback] == []


def test_every_planned_open_was_made_and_succeeded_at_both_caches(demo, results):
    assert [result for result in results if not result.ok] == []
    planned = [one.file.lfn for phase in ("learn", "decide") for one in read_schedule(demo.run / f"{phase}.schedule.jsonl")]
    assert Counter(result.lfn for result in results if result.cache == "plain") == Counter(planned)
    opens = {cache: Counter(result.lfn for result in results if result.cache == cache) for cache in CACHES}
    assert opens["plain"] == opens["smart"]
    assert sum(opens["plain"].values()) > 1000


def test_the_access_table_has_a_row_for_each_open(demo, results, table):
    for cache in CACHES:
        rows = table[table["cache"].str.endswith(f":{demo.ports.cache(cache)}")]
        mine = [result for result in results if result.cache == cache]
        assert Counter(rows["lfn"]) == Counter(result.lfn for result in mine)
        assert rows["b_read"].sum() == sum(result.bytes_read for result in mine)
    assert table["open_id"].is_unique


def test_rows_of_the_smart_cache_have_its_answers(demo, table):
    smart = table[table["cache"].str.endswith(f":{demo.ports.cache_smart}")]
    plain = table[table["cache"].str.endswith(f":{demo.ports.cache_plain}")]
    assert plain["answer"].isna().all()
    # Decide is not asked where another client holds the file: few opens.
    assert smart["answer"].notna().mean() > 0.9
    assert set(smart["answer"].dropna()) <= {"admit", "bypass", "evict"}
    by_model = smart[smart["reason"] == "model"]
    assert len(by_model) > 300
    assert set(by_model["model"]) == {"reuse_v1"}
    assert by_model["score"].between(0, 1).all()
    bypassed = smart[smart["answer"] == "bypass"]
    assert len(bypassed) > 0
    assert (bypassed["b_bypass"] == bypassed["b_read"]).all()


def test_the_model_tells_kinds_of_files_apart(table):
    """It was taught by the learn phase alone, and is asked about datasets that it has never seen."""
    scored = table[table["score"].notna()]
    tier = scored["lfn"].str.split("/").str[-2]
    rerun, once = scored[tier == "NANOAODSIM"]["score"], scored[tier.isin(["AODSIM", "RAW"])]["score"]
    assert rerun.mean() > once.mean() + 0.2
    bypassed = table[(table["answer"] == "bypass") & (table["reason"] == "model")]
    assert len(bypassed) > 20


def test_the_model_is_not_waited_for_beyond_its_deadline(demo, settings):
    """A busy machine may wake the waiting thread late, so not of every single one."""
    asked = [record for record in _records(demo, settings.kafka.decision_topic) if record["reason"] in ("model", "deadline", "evict")]
    latencies = sorted(record["latency_us"] for record in asked)
    assert len(latencies) > 300
    assert latencies[len(latencies) * 9 // 10] < (settings.model.deadline_ms + 50) * 1e3


def test_decisions_in_the_background_share_requests(demo):
    """Nobody waits for the decision about a file on disk: those of some milliseconds are one request to the endpoint, a row each."""
    golden = json.loads((demo.run / "models" / "endpoint" / "reuse_v1" / "golden.json").read_text())
    assert len(golden["inputs"]) > 4  # which are asked for at once too
    up_to = {
        int(float(rows)): int(requests)
        for rows, requests in re.findall(
            r'^smartcache_endpoint_request_rows_bucket{le="([0-9.e+]+)"} (\d+)$', demo.endpoint_metrics, re.MULTILINE
        )
    }
    assert up_to[1] > 300
    assert up_to[4] > up_to[1]


def test_records_on_kafka(demo, settings, results):
    """The broker's own files, served by a new broker: what the collector sent is there."""
    opens = Counter(result.cache for result in results)
    fstream = _records(demo, settings.kafka.fstream_topic)
    assert len({record["record_id"] for record in fstream}) == sum(opens.values())
    assert len(_records(demo, settings.kafka.decision_topic)) > 0.9 * opens["smart"]
    assert len(_records(demo, settings.kafka.pfc_topic)) > 0.5 * opens["plain"]
    identities = json.dumps(fstream)
    assert "127.0.0.1" not in identities
    assert '"u00"' not in identities


def test_the_registered_version_is_the_champion_and_serves(demo):
    with mlflow.start(demo.run / "mlflow", demo.ports.mlflow):
        from mlflow import MlflowClient

        version = MlflowClient(mlflow.uri(demo.ports.mlflow)).get_model_version_by_alias("reuse", "champion")
    assert version.version == "1"
    installed = json.loads((demo.run / "models" / "cache" / "current" / "bundle.json").read_text())
    assert installed["name"] == "reuse_v1"
    assert (demo.run / "models" / "endpoint" / "reuse_v1" / "saved_model.pb").exists()


def test_the_training_set_holds_what_the_smart_cache_decided_on(demo, table):
    manifest = json.loads((demo.run / "dataset" / "manifest.json").read_text())
    rows = pq.read_table(sorted((demo.run / "dataset").glob("*.parquet")), columns=["cache", "lfn", "t_us"]).to_pandas()
    assert manifest["rows"] == len(rows) > 400
    learnt = table[table["cache"].str.endswith(f":{demo.ports.cache_smart}") & (table["reason"] == "no_model")]
    decided = Counter(zip(learnt["cache"], learnt["lfn"], learnt["t_us"], strict=True))
    assert Counter(zip(rows["cache"], rows["lfn"], rows["t_us"], strict=True)) == decided


def test_the_purge_or_the_evictor_ran(demo):
    measured = demo.measured()
    assert measured["removed_files"]["plain"] > 0
    assert measured["removed_files"]["smart"] > 0


def test_the_report(demo):
    measured = demo.measured()
    report = demo.run / "report"
    page = (report / "index.html").read_text()
    assert page.count("data:image/png;base64,") == len(list(report.glob("*.png"))) == 5
    for phase in measured["phases"].values():
        for figures in phase["caches"].values():
            assert figures["delivered_bytes"] >= figures["read_bytes"] > 0
            assert figures["origin_bytes"] > 0
            assert figures["written_bytes"] > 0
    said = model_table.rows(measured["model"])
    assert {"skill", "validation_epoch", "max_output_difference"} < {name for name, *_ in said}
    assert [name for name, _, how in said if "bundle.json" in how] == []
    reasons = {name: {answer["reason"] for answer in phase["answers"]} for name, phase in measured["phases"].items()}
    assert reasons["learn"] == {"no_model"}
    assert "model" in reasons["decide"]
    assert str(report / "index.html") in demo.output().replace("\n", "")


_READ: dict[str, list[dict]] = {}


def _records(demo, topic):
    """All records of a topic, from a broker that is started on the demo's data once more."""
    if not _READ:
        with kafka.start(demo.run / "kafka", demo.ports.kafka, demo.ports.kafka_controller):
            consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{demo.ports.kafka}", "group.id": "test", "enable.auto.commit": False})
            topics = consumer.list_topics(timeout=60).topics
            for name in (name for name in topics if name.startswith("xcache.")):
                ends = {number: _led(consumer, TopicPartition(name, number)) for number in topics[name].partitions}
                consumer.assign([TopicPartition(name, number, low) for number, (low, _) in ends.items()])
                wanted = sum(high - low for low, high in ends.values())
                found: list[dict] = []
                while len(found) < wanted:
                    messages = consumer.consume(wanted - len(found), timeout=60)
                    assert messages, f"{name}: {len(found)} of {wanted} records came"
                    found += [json.loads(message.value()) for message in messages]
                _READ[name] = found
            consumer.close()
    return _READ[topic]


def _led(consumer, partition):
    """The partition's first offset and its end. A broker that has just started answers before it leads what it has."""
    deadline = time.monotonic() + 200
    while True:
        try:
            return consumer.get_watermark_offsets(partition, timeout=60)
        except KafkaException as error:
            starting = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
            if error.args[0].code() not in starting or time.monotonic() > deadline:
                raise

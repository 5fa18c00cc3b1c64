"""What the Spark benchmark works on, made of numbers alone: the same count gives the same opens.

Opens of HEP-like LFNs at four caches over thirty days; a file is opened again with a frequency that falls with its rank. `table` writes
them as the stream would, by Spark; `send` puts their records onto Kafka: of each open the client's and the decision's, and pfc's of the two
thirds that are not answered bypass.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from smartcache.config import Kafka

#: 2026-05-01, and thirty days.
T0_US, SPAN_US = 1_777_593_600_000_000, 30 * 86_400_000_000
CACHES = 4
#: How many opens a file has, in the mean.
_OPENS_PER_FILE = 4
_FILES = 8


def table(spark: SparkSession, folder: str, opens: int, *, span_us: int = SPAN_US, name_bytes: int = 0) -> None:
    """Write an access table of so many opens in so long a time, with Spark's list of its files; ``name_bytes`` make LFNs longer."""
    from pyspark.sql import functions as F

    from ..preprocessing.access import COLUMNS, PARTITIONS, access_schema

    files = max(1, opens // _OPENS_PER_FILE)
    drawn = F.pmod(F.xxhash64("id", F.lit("file")), F.lit(1_000_000)) / 1e6
    rank = F.floor(drawn * drawn * files).cast("long")
    at = F.lit(T0_US) + F.floor(F.col("id") * (span_us / opens)).cast("long")
    size = (F.pmod(F.xxhash64("rank"), F.lit(2_000_000_000)) + 100_000_000).cast("long")
    # As many small files in each partition as some batches of the stream leave.
    made = spark.range(opens).repartition(_FILES).withColumn("rank", rank).withColumn("at", at)
    made = made.withColumn("bytes", size).withColumn("asked", F.col("id") % 3 < 2).withColumn("lived", F.col("id") % 3 == 0)
    known: dict[str, Any] = {
        "open_id": F.concat(F.lit("cache/1/2/"), F.col("id").cast("string")),
        "open_us": F.col("at"),
        "close_us": F.col("at") + 60_000_000,
        "lfn": F.concat(
            F.format_string("/store/mc/Campaign/Primary%d/NANOAODSIM/v1/%d/%016x.root", F.col("rank") % 977, F.col("rank") % 31, "rank"),
            F.repeat(F.sha2(F.col("rank").cast("string"), 256), -(-name_bytes // 64)).substr(1, name_bytes),
        ),
        "dataset": F.format_string("/store/mc/Campaign/Primary%d/NANOAODSIM", F.col("rank") % 977),
        "size": F.col("bytes"),
        "b_read": F.floor(F.col("bytes") * drawn).cast("long"),
        "b_hit": F.when(F.col("lived"), F.col("bytes") / 2).cast("long"),
        "b_miss": F.when(F.col("lived"), F.col("bytes") / 4).cast("long"),
        "b_bypass": F.when(F.col("lived"), 0).cast("long"),
        "blk_size": F.when(F.col("lived"), 131_072).cast("long"),
        "n_blks_done": F.when(F.col("lived"), F.col("bytes") / 262_144).cast("long"),
        "access_cnt": F.when(F.col("lived"), 1).cast("long"),
        "detach_us": F.when(F.col("lived"), F.col("at") + 60_000_000),
        "answer": F.when(F.col("asked"), "admit"),
        "t_us": F.when(F.col("asked"), F.col("at")),
        "on_disk": F.when(F.col("asked"), F.col("id") % 2 == 0),
        "fill": F.when(F.col("asked"), F.lit(0.8)).cast("float"),
        "known_size": F.when(F.col("asked"), F.lit(-1)).cast("long"),
        "boot_us": F.when(F.col("asked"), F.lit(T0_US)),
        "seq": F.when(F.col("asked"), F.col("id")),
        "pfc_id": F.when(F.col("lived"), F.concat(F.lit("p"), F.col("id").cast("string"))),
        "cache": F.concat(F.lit("cache"), (F.col("rank") % CACHES).cast("string"), F.lit(".site:1094")),
        "day": F.to_date(F.timestamp_micros("at")),
    }
    types = {field.name: field.dataType for field in access_schema()}
    columns = [known.get(name, F.lit(None)).cast(types[name]).alias(name) for name, _ in COLUMNS]
    made.select(*columns).write.partitionBy(*PARTITIONS).parquet(folder)
    _list(Path(folder))


def _list(folder: Path) -> None:
    lines = ["v1"]
    for file in sorted(folder.rglob("*.parquet")):
        facts = {"size": file.stat().st_size, "isDir": False, "modificationTime": 1, "blockReplication": 1, "blockSize": 1}
        lines.append(json.dumps({"path": file.as_uri().replace("file:///", "file:/"), **facts, "action": "add"}))
    (folder / "_spark_metadata").mkdir()
    (folder / "_spark_metadata" / "0").write_text("\n".join(lines))


def records(opens: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of so many opens, as kind (`fstream`, `decision`, `pfc`) and record.

    No file is opened while it is open, so that nobody can doubt what belongs together.
    """
    closed: dict[int, int] = {}
    chance, files = random.Random(1), max(1, opens // _OPENS_PER_FILE)  # noqa: S311 (no secret)
    for number in range(opens):
        rank = int(chance.random() ** 2 * files)
        at = T0_US + number * (SPAN_US // opens)
        while closed.get(rank, 0) > at:
            rank = (rank + 1) % files
        closed[rank] = at + 90_000_000
        base = {"cache": f"cache{rank % CACHES}.site:1094", "recv_us": at + 60_000_000}
        base["lfn"] = f"/store/mc/Campaign/Primary{rank % 977}/NANOAODSIM/v1/{rank % 31}/{rank:016x}.root"
        times = {"open_lo_us": at, "open_hi_us": at + 9_000_000, "close_lo_us": at + 50_000_000, "close_hi_us": at + 60_000_000}
        counts = {"size": 2_000_000_000, "b_read": 7_000_000, "b_readv": 0, "b_write": 0, "n_read": 9, "n_readv": 0, "forced": False}
        who = {"user": "0123456789abcdef", "client_host": "fedcba9876543210", "app": "cmsRun"}
        yield "fstream", {**base, "record_id": f"cache/1/2/{number}", **times, **counts, **who}
        answer = "bypass" if number % 3 == 2 else "admit"
        decided = {"v": 1, "boot_us": T0_US, "seq": number, "t_us": at + 1, "answer": answer, "reason": "model", "score": 0.5}
        inputs = {"probability": 1.0, "model": "reuse_v1", "latency_us": 3.5, "on_disk": False, "size": -1, "fill": 0.5}
        yield "decision", {**base, "record_id": f"cache/7/{number}", **decided, **inputs}
        if answer == "admit":
            life = {
                "attach_us": at + 1_000_000,
                "detach_us": at + 60_000_000,
                "b_hit": 5,
                "b_miss": 6,
                "b_bypass": 0,
                "size": 2_000_000_000,
            }
            yield (
                "pfc",
                {**base, "record_id": f"cache/3/{number}", **life, "blk_size": 131_072, "n_blks": 9, "n_blks_done": 9, "access_cnt": 1},
            )


def send(kafka: Kafka, opens: int) -> int:
    """Put their records onto Kafka, each topic with [kafka] partitions; how many there were. All are there when this returns."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = {"fstream": kafka.fstream_topic, "decision": kafka.decision_topic, "pfc": kafka.pfc_topic}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, kafka.partitions, 1) for name in topics.values()]).values():
        made.result()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": "lz4", "linger.ms": 50})
    count = 0
    for kind, record in records(opens):
        value, key = json.dumps(record), f"{record['cache']}|{record['lfn']}"
        while True:
            try:
                producer.produce(topics[kind], value, key=key)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"Kafka at {kafka.bootstrap} did not take all records within 120 s")
    return count

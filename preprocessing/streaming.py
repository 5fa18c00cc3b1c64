"""``smartcache stream``: Kafka's topics become the access table and the jobs table, what is malformed goes to the quarantine.

Three queries in one session, each with a checkpoint of its own, and beside them what :mod:`.background` does:

- **access**: Kafka, parse, group by cache and LFN, :mod:`.join` with RocksDB state and processing-time timers (they fire without new data),
  Parquet. Exactly once: the sink's file list and the state belong to the same batch, so after a crash the batch is repeated as it was,
  its clock included.
- **jobs**: Kafka, parse, each record id once, Parquet partitioned by day: the states of batch jobs as they came.
- **quarantine**: Kafka, parse, keep what is malformed with the reason, Parquet partitioned by day.

What is dropped is counted in the query's own metrics (`observe`), which :class:`Counters` sums up.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from smartcache.config import ConfigError

from . import background
from .access import COLUMNS, PARTITIONS, access_schema
from .core import core_toml, namer
from .join import State, Times, advance, row_text
from .records import JOB, KINDS, OF_OPENS, parsed, topics
from .session import spark_session
from .storage import Hadoop
from .table import METADATA, tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from smartcache.config import Config

    from .storage import Reader

#: Nobody waits for malformed records, nor for what jobs did: their batches begin so many times more rarely.
SLOW_TRIGGERS = 5
#: What a step of the join gives: a row of the table as JSON text, or how many records were `dropped` so. Spark makes an Arrow batch of the
#: rows of each file, which costs by the column: with those of the table it was a third of all work.
_STEPPED = "row string, dropped string, count long"
_DROPPED = ("duplicates", "unmatched_decisions", "unmatched_pfcs")
#: Rows that were written without one of their sides.
_LACKING = ("rows_without_close", "rows_without_decision", "rows_without_pfc")


class StreamError(Exception):
    """A query ended by itself; the text says which and why."""


@dataclass(slots=True)
class Counters:
    """What the access query has done since it was started, from its progress reports."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("batches", "rows", *_LACKING, *_DROPPED), 0))
    batch_ms: int = 0
    state_rows: int = 0
    #: Other counters, by the name that they have in the metrics: those of what is done in the background.
    more: dict[str, int] = field(default_factory=dict)
    _last: int = -1

    def update(self, query: StreamingQuery) -> None:
        """Take in the batches since the last call (Spark keeps the last 100)."""
        for progress in query.recentProgress:
            if progress.batchId <= self._last or "addBatch" not in progress.durationMs:
                continue
            self._last = progress.batchId
            self.counts["batches"] += 1
            self.batch_ms = progress.batchDuration
            self.state_rows = sum(operator.numRowsTotal for operator in progress.stateOperators)
            observed = progress.observedMetrics.get("join")
            for name, value in observed.asDict().items() if observed else ():
                self.counts[name] += value or 0

    def line(self) -> str:
        """For a person."""
        return ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in self.counts.items())

    def prometheus(self) -> str:
        """For node_exporter's textfile collector."""
        lines = []
        for name, value in self.counts.items():
            lines += [f"# TYPE smartcache_stream_{name}_total counter", f"smartcache_stream_{name}_total {value}"]
        gauges = {"batch_duration_seconds": self.batch_ms / 1000, "state_rows": self.state_rows}
        for name, gauge in (gauges | self.more).items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# TYPE smartcache_stream_{name} {kind}", f"smartcache_stream_{name} {gauge}"]
        return "\n".join(lines) + "\n"


class Stream:
    """All queries. Use as a context manager: leaving it stops them and the session."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.counters = Counters()
        self._spark: SparkSession | None = None
        self._queries: list[StreamingQuery] = []
        self._chores: list[background.Chore] = []

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start session and queries; returns when all are set up, the first batch may still run.

        :class:`ConfigError` where a table was written with another checkpoint.
        """
        self._spark = spark_session(self.config, "smartcache-stream", streaming=True)
        files = Hadoop(self._spark)
        for table in tables_of(self.config).values():
            files.make_folder(table)
        for query, table in zip(("access", "jobs", "quarantine"), tables_of(self.config).values(), strict=True):
            _forget_unbegun(files, f"{self.config.streaming.checkpoint}/{query}")
            require_own(files, table, f"{self.config.streaming.checkpoint}/{query}")
        self._queries = [start(self._spark, self.config) for start in (start_access, start_jobs, start_quarantine)]
        self._chores = background.chores(self._spark, self.config)
        for chore in self._chores:
            chore.start()

    def ready(self) -> bool:
        """Whether all run: access has done a batch, the others have found Kafka. :class:`StreamError` where one ended."""
        self.check()
        access, *others = self._queries
        return access.lastProgress is not None and all("nitializing" not in query.status["message"] for query in others)

    def check(self) -> None:
        """Bring the counters up to date; :class:`StreamError` where a query ended by itself."""
        for query in self._queries:
            if not query.isActive:
                raise StreamError(f"the {query.name} query ended: {_last_line(query.exception())}")
        self.counters.update(self._queries[0])
        self.counters.more = {name: value for chore in self._chores for name, value in chore.counts.items()}

    def wait(self, stop: threading.Event) -> None:
        """Until ``stop`` is set; :class:`StreamError` where a query ends before."""
        while not stop.wait(min(self.config.streaming.trigger_s, 10.0)):
            self.check()

    def stop(self) -> None:
        """Stop queries and session. A batch in flight is given up; the next start repeats it."""
        for chore in self._chores:
            chore.ask_to_stop()
        for query in self._queries:
            query.stop()
        if self._queries:
            self.counters.update(self._queries[0])
        if self._spark is not None:
            self._spark.stop()
        for chore in self._chores:
            chore.join()
        self._queries, self._spark, self._chores = [], None, []


def start_access(spark: SparkSession, config: Config) -> StreamingQuery:
    """Start the access query."""
    from pyspark.sql import functions as F

    records = parsed(messages(spark, config, OF_OPENS), config.kafka, OF_OPENS).where(F.col("reason").isNull())
    # One task reads many Kafka partitions: their number is the broker's affair, ours is that of the state.
    records = records.select("cache", "lfn", "kind", "record").coalesce(config.spark.shuffle_partitions)
    streaming = config.streaming
    # An open's record may be late by watermark_s, too.
    held_s = max(streaming.longest_open_s, streaming.watermark_s)
    times = Times(*(round(each * 1000) for each in (streaming.join_grace_s, streaming.watermark_s, held_s, config.kafka.retention_s)))
    stepped = records.groupBy("cache", "lfn").transformWithState(_processor(times, core_toml(config)), _STEPPED, "Append", "ProcessingTime")
    # What is not as the columns say ends the query, as what Python made would be lost else.
    row = F.from_json("row", access_schema(), {"mode": "FAILFAST"})
    joined = stepped.select(row.alias("row"), "dropped", "count").select("row.*", "dropped", "count")
    written = F.col("dropped").isNull()
    # What was answered bypass has no life in pfc.
    lacks_pfc = F.col("pfc_id").isNull() & ~F.col("answer").eqNullSafe("bypass")
    lacking = zip(_LACKING, (F.col("close_us").isNull(), F.col("decision_id").isNull(), lacks_pfc), strict=True)
    observed = joined.observe(
        "join",
        F.count(F.when(written, 1)).alias("rows"),
        *(F.count(F.when(written & lacks, 1)).alias(name) for name, lacks in lacking),
        *(F.sum(F.when(F.col("dropped") == name, F.col("count"))).alias(name) for name in _DROPPED),
    )
    rows = observed.where(written).select(*(name for name, _ in COLUMNS))
    return (
        rows.writeStream.queryName("access")
        .format("parquet")
        .option("path", config.streaming.table)
        .option("checkpointLocation", f"{config.streaming.checkpoint}/access")
        .partitionBy(*PARTITIONS)
        .trigger(processingTime=_seconds(config.streaming.trigger_s))
        .start()
    )


def start_jobs(spark: SparkSession, config: Config) -> StreamingQuery:
    """Start the jobs query: the columns are those of :data:`.records.KINDS`, and `day`.

    Ids are remembered for [streaming] watermark_s of the batches' own clock, in which nothing comes late.
    """
    from pyspark.sql import functions as F

    records = parsed(messages(spark, config, (JOB,), SLOW_TRIGGERS), config.kafka, (JOB,)).where(F.col("reason").isNull())
    states = records.select(F.from_json("record", KINDS[JOB].schema()).alias("job"), F.current_timestamp().alias("read_at"))
    once = (
        states.select("job.*", "read_at")
        .withWatermark("read_at", _seconds(config.streaming.watermark_s))
        .dropDuplicatesWithinWatermark(["record_id"])
        .drop("read_at")
    )
    rows = once.withColumn("day", F.to_date(F.timestamp_micros("record_us"))).coalesce(1)
    return (
        rows.writeStream.queryName("jobs")
        .format("parquet")
        .option("path", config.streaming.jobs)
        .option("checkpointLocation", f"{config.streaming.checkpoint}/jobs")
        .partitionBy("day")
        .trigger(processingTime=_seconds(SLOW_TRIGGERS * config.streaming.trigger_s))
        .start()
    )


def start_quarantine(spark: SparkSession, config: Config) -> StreamingQuery:
    """Start the quarantine query: `topic partition offset kafka_us reason key value day`."""
    from pyspark.sql import functions as F

    malformed = parsed(messages(spark, config, triggers=SLOW_TRIGGERS), config.kafka).where(F.col("reason").isNotNull())
    rows = malformed.select(
        "topic",
        "partition",
        "offset",
        F.unix_micros("timestamp").alias("kafka_us"),
        "reason",
        "key",
        "value",
        F.to_date("timestamp").alias("day"),
    ).coalesce(1)
    return (
        rows.writeStream.queryName("quarantine")
        .format("parquet")
        .option("path", config.streaming.quarantine)
        .option("checkpointLocation", f"{config.streaming.checkpoint}/quarantine")
        .partitionBy("day")
        .trigger(processingTime=_seconds(SLOW_TRIGGERS * config.streaming.trigger_s))
        .start()
    )


def messages(spark: SparkSession, config: Config, kinds: Collection[str] = tuple(KINDS), triggers: int = 1) -> DataFrame:
    """The messages of the topics of those kinds, from the first one on. A topic that is made later is found then.

    A batch begins each ``triggers`` triggers, and takes as many messages as they may together.
    """
    pattern = "|".join(re.escape(topic) for topic in topics(config.kafka, kinds))
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", config.kafka.bootstrap)
        .option("subscribePattern", f"^({pattern})$")
        .option("startingOffsets", "earliest")
        # After an outage longer than Kafka keeps its messages: go on with what is there.
        .option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", triggers * config.streaming.max_records_per_batch)
        .load()
    )


def _processor(times: Times, core_text: str) -> Any:
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    make = Row("row", "dropped", "count")

    class Joiner(StatefulProcessor):  # type: ignore[misc]  # pyspark is untyped here
        """One `State` per cache and LFN, as JSON text beside the timer that was set for it."""

        def init(self, handle: Any) -> None:
            self._handle = handle
            self._store = handle.getValueState("join", "state string, wake_ms long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            incoming = [(row.kind, json.loads(row.record)) for row in rows]
            return self._step(incoming, timerValues.getCurrentProcessingTimeInMs(), fired=False)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            return self._step([], timerValues.getCurrentProcessingTimeInMs(), fired=True)

        def _step(self, incoming: list[Any], now_ms: int, *, fired: bool) -> Iterator[Any]:
            stored = self._store.get()
            state = State.from_json(json.loads(stored[0])) if stored else State()
            timer = None if fired or not stored else stored[1]
            outcome = advance(state, incoming, now_ms, times, namer(core_text).dataset_of, stored[1] if stored else None)
            if timer is not None and timer != outcome.wake_ms:
                self._handle.deleteTimer(timer)
            if outcome.wake_ms is not None and outcome.wake_ms != timer:
                self._handle.registerTimer(outcome.wake_ms)
            if state.empty:
                self._store.clear()
            else:
                self._store.update((json.dumps(state.to_json(), separators=(",", ":")), outcome.wake_ms))
            for row in outcome.rows:
                yield make(row_text(row), None, None)
            for what, count in outcome.dropped.items():
                yield make(None, what, count)

        def close(self) -> None:
            pass

    return Joiner()


def require_own(files: Reader, table: str, checkpoint: str) -> None:
    """:class:`ConfigError` where ``table`` has batches that ``checkpoint`` has not begun: it is another's.

    Spark takes a batch whose number the table has for one that is written already: its rows would be lost without a word.
    """
    written, begun = _last_batch(files, f"{table}/{METADATA}"), _last_batch(files, f"{checkpoint}/offsets")
    if written > begun:
        has = f"ends with batch {begun}" if begun >= 0 else "has none"
        raise ConfigError(
            f"{table} has rows up to batch {written} of its checkpoint, and {checkpoint} {has}: Spark would leave out the rows of every "
            f"batch up to {written}. Set [streaming] checkpoint to the one that the table was written with; where that is lost, give the "
            f"table another place: what Kafka still has is read into it"
        )


def _last_batch(files: Reader, log: str) -> int:
    """The number of the newest batch in a log of Spark's; -1 where there is none."""
    try:
        names = files.names(log)
    except FileNotFoundError:
        return -1
    return max((int(stem) for stem in (name.partition(".")[0] for name in names) if stem.isdecimal()), default=-1)


def _forget_unbegun(files: Hadoop, checkpoint: str) -> None:
    """Remove what a query leaves that is killed while it writes down where its first batch begins: Spark refuses to start with it there."""
    for log in (f"{checkpoint}/offsets", f"{checkpoint}/commits"):
        try:
            if files.names(log):
                return
        except FileNotFoundError:
            continue
        files.delete(log, folder=True)


def _seconds(value: float) -> str:
    return f"{round(value * 1000)} milliseconds"


def _last_line(error: object) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by")]
    return (causes or lines or ["no reason given"])[-1 if causes else 0]

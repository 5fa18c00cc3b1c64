"""``smartcache build-dataset``: the access table becomes a training set, as one Spark job that collects no rows on the driver.

Which rows: where a cache has decisions, its opens that have one, with what the plugin knew (`t_us`, `on_disk`, `known_size`, `fill`,
`read_share`); where it has none (no plugin yet), all its opens at `open_us`, as never on disk and of unknown size. Opens from ``--from`` to
before ``--to``.

Features: the core, replayed over those rows in the order in which the plugin was asked, (boot_us, seq), and by (time, open_id) where no
plugin was; cache by cache: one task a cache, sorted by Spark, streamed through the core batch by batch, so a task holds the core's history
and one batch. :mod:`.replay` says how a history goes on after a restart of the server. Each with the side table that the plugin had, as
long as that is kept (:mod:`.side_tables`).

Labels: seconds to the next open of that LFN at that cache, *any* open, one that Decide was not asked for counts as demand too (its time
is as coarse as the f-stream's window). Where no further open was seen, `censored`. `observed_s`: from the open to the window's end, of
every row.

Split: at the time before which the configured share of all rows lies, so by rows and not by length of time, as load is uneven; the same
moment for all caches. Rows of the same microsecond stay together, in the later part.

The same table, window and configuration give the same bytes in each file, by any number of cores and partitions: :data:`_PARQUET` says how.
The manifest names the table, but not where the set was put. `sha256` is of the rows, however a Parquet writer may store them.

Files: ``part-NNNNN.parquet``, one a cache in the order of the cache ids, written beside and moved into place, manifest.json last: a folder
with a manifest is complete.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .core import core_schema, core_toml
from .manifest import COLUMNS, RowsDigest, digest_of
from .replay import NO_BOOT, Replay
from .side_tables import NO_TABLE, SideTables, kept

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from smartcache.config import Config

MANIFEST = "manifest.json"
SPLITS = ("train", "validate", "test")
#: Widths of the steps that find a quantile of time exactly: a day, a minute, a millisecond, a microsecond.
_STEPS_US = (86_400_000_000, 60_000_000, 1_000, 1)

#: Parquet's Java writer lists the encodings of a column in the order of a hash table, which is another in each JVM: so each column has
#: one encoding, which takes pages of version 2 and no dictionaries. And it makes row groups the smaller the more tasks share its memory: so
#: they end after a number of rows, far below what memory would allow.
_PARQUET = {
    "compression": "zstd",
    "parquet.writer.version": "PARQUET_2_0",
    "parquet.enable.dictionary": "false",
    "parquet.block.row.count.limit": "20000",
}

Progress = Callable[[str], None]
#: For each cache: boot_us, and the boot_us and seq that it went on from.
Origins = dict[str, list[tuple[int, int, int]]]


class DatasetError(Exception):
    """No training set can be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to build: `output` folder, `caches` (none: all), window [from_us, to_us) (None: open)."""

    output: str
    caches: tuple[str, ...] = ()
    from_us: int | None = None
    to_us: int | None = None

    @property
    def command(self) -> str:
        """The command line that asks for it, wherever it is put."""
        parts = ["smartcache build-dataset --output DIR"]
        parts += [f"--cache {cache}" for cache in self.caches]
        parts += [f"{name} {us / 1e6:.6f}" for name, us in (("--from", self.from_us), ("--to", self.to_us)) if us is not None]
        return " ".join(parts)


def moment_us(text: str | None, option: str) -> int | None:
    """Microseconds of Unix time from a date, a time (ISO 8601; UTC where it has no zone) or Unix seconds; ValueError says what is right."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{option}: {text!r} is no time; write 2026-05-01, 2026-05-01T06:00:00Z or Unix seconds") from None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return round(seconds * 1e6)


def build(spark: SparkSession, config: Config, request: Request, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Write the training set and give its manifest; :class:`DatasetError` where there is nothing to make it from."""
    text = core_toml(config)
    opens = _opens(spark, config.streaming.table, request)
    progress("reading the access table")
    caches, end_us = _caches(opens, request)
    origins = _origins(opens)
    versions = _side_tables(spark, opens, config.side_table.file)
    rows = _labelled(opens, caches, end_us).persist()
    try:
        progress("finding the times of the split")
        cuts = _cuts(rows, (config.training_set.train, config.training_set.train + config.training_set.validate_))
        progress(f"computing features of {len(caches)} caches")
        told = _write(spark, rows, list(caches), cuts, (text, origins, versions), f"{request.output}/_writing")
    finally:
        rows.unpersist()
    first_us, last_us = min(each["first_us"] for each in told), max(each["last_us"] for each in told)
    splits = {name: sum(each["splits"][name] for each in told) for name in SPLITS}
    manifest = {
        "format": 1,
        "schema": core_schema(text),
        "window": {"from_us": request.from_us, "to_us": end_us, "first_us": first_us, "last_us": last_us},
        "split_at_us": {"validate": cuts[0], "test": cuts[1]},
        "rows": sum(each["rows"] for each in told),
        "splits": splits,
        "censored": sum(each["censored"] for each in told),
        "source": config.streaming.table,
        "files": [
            {
                "name": _name(index),
                "cache": cache,
                "rows": told[index]["rows"],
                "decisions": caches[cache],
                "unknown_histories": told[index]["unknown_histories"],
                "unknown_side_tables": told[index]["unknown_side_tables"],
                "scanned_rows": told[index]["scanned_rows"],
                "sha256": told[index]["sha256"],
            }
            for index, cache in enumerate(caches)
        ],
        "sha256": digest_of([each["sha256"] for each in told]),
        "configuration": {"core": text, "training_set": config.training_set.model_dump(by_alias=True)},
        "command": request.command,
    }
    progress("moving it into place")
    _publish(spark, request.output, len(caches), manifest)
    return manifest


def _opens(spark: SparkSession, table: str, request: Request) -> DataFrame:
    """The opens of the window, `at_us` being when."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    from .access import access_schema
    from .table import TableError, read

    try:
        opens = read(spark, table, access_schema())
    except TableError as error:
        raise DatasetError(str(error)) from error
    except AnalysisException as error:
        raise DatasetError(f"[streaming] table {table!r} cannot be read: {str(error).splitlines()[0]}") from error
    if request.caches:
        opens = opens.where(F.col("cache").isin(*request.caches))
    if request.from_us is not None:
        # The day too, which is the open's own: of a table of years only the window's folders are read.
        opens = opens.where((F.col("open_us") >= request.from_us) & (F.col("day") >= _day(request.from_us)))
    if request.to_us is not None:
        opens = opens.where((F.col("open_us") < request.to_us) & (F.col("day") <= _day(request.to_us)))
    return opens


def _day(us: int) -> Column:
    from pyspark.sql import functions as F

    return F.to_date(F.timestamp_micros(F.lit(us)))


def _caches(opens: DataFrame, request: Request) -> tuple[dict[str, bool], int]:
    """Cache ids in order, each with whether it has decisions; and the end of the window."""
    from pyspark.sql import functions as F

    found = opens.groupBy("cache").agg(F.max(F.col("t_us").isNotNull()).alias("decided"), F.max("open_us").alias("last_us")).collect()
    missing = sorted(set(request.caches) - {row["cache"] for row in found})
    if missing:
        raise DatasetError(f"the access table has no opens of {', '.join(missing)} in this window")
    if not found:
        raise DatasetError("the access table has no opens in this window")
    last_us = max(row["last_us"] for row in found)
    return {row["cache"]: bool(row["decided"]) for row in sorted(found, key=lambda row: row["cache"])}, request.to_us or last_us


def _origins(opens: DataFrame) -> Origins:
    """For each cache: its boots that began with a restored history, and the moment that was of. One a restart."""
    from pyspark.sql import functions as F

    restored = opens.where(F.col("history_boot_us").isNotNull()).select("cache", "boot_us", "history_boot_us", "history_seq").distinct()
    origins: Origins = {}
    for row in restored.orderBy("cache", "boot_us").collect():
        origins.setdefault(row["cache"], []).append((row["boot_us"], row["history_boot_us"], row["history_seq"]))
    return origins


def _side_tables(spark: SparkSession, opens: DataFrame, file: str) -> list[int]:
    """The versions that opens were answered with and that are kept beside ``file``: each is brought to the workers."""
    from pyspark.sql import functions as F

    there = kept(Path(file)) if file else {}
    if not there:
        return []
    used = opens.where(F.col("side_table").isin(*there)).select("side_table").distinct().collect()
    versions = sorted(row["side_table"] for row in used)
    for version in versions:
        spark.sparkContext.addFile(str(there[version]))
    return versions


def _labelled(opens: DataFrame, caches: dict[str, bool], end_us: int) -> DataFrame:
    """What the core is told of each kept open, and its label; `part` is the cache's place in the order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    undecided = [cache for cache, has in caches.items() if not has]
    places = F.create_map(*(F.lit(each) for pair in zip(caches, range(len(caches)), strict=True) for each in pair))
    following = F.lead("open_us").over(Window.partitionBy("cache", "lfn").orderBy("open_us", "open_id"))
    true_size = F.when(F.col("size") >= 0, F.col("size"))
    return (
        opens.withColumn("next_us", following)
        .where(F.col("t_us").isNotNull() | F.col("cache").isin(*undecided))
        .select(
            places[F.col("cache")].alias("part"),
            "cache",
            "lfn",
            "open_id",
            F.coalesce("boot_us", F.lit(NO_BOOT)).alias("boot_us"),
            F.coalesce("seq", F.lit(0)).alias("seq"),
            F.col("open_us").alias("t_us"),
            F.coalesce("on_disk", F.lit(False)).alias("on_disk"),
            F.coalesce("known_size", F.lit(-1)).cast("long").alias("known_size"),
            F.coalesce("fill", F.lit(-1.0)).cast("float").alias("fill"),
            F.coalesce("read_share", F.lit(-1.0)).cast("float").alias("read_share"),
            F.coalesce("side_table", F.lit(NO_TABLE)).cast("long").alias("side_table"),
            F.coalesce("history_scanned", F.lit(False)).alias("history_scanned"),
            F.coalesce(true_size, F.lit(-1)).cast("long").alias("size"),
            ((F.col("next_us") - F.col("open_us")) / 1e6).alias("next_open_s"),
            F.col("next_us").isNull().alias("censored"),
            ((F.lit(end_us) - F.col("open_us")) / 1e6).alias("observed_s"),
            F.greatest(F.coalesce(true_size, F.col("b_read"), F.lit(1)), F.lit(1)).cast("double").alias("weight"),
        )
    )


def _cuts(rows: DataFrame, shares: tuple[float, ...]) -> list[int]:
    """For each share the time of the first row behind it: exact, by counting in ever finer steps, so that only counts come here."""
    total = rows.count()
    if total == 0:
        raise DatasetError("no open of this window is left to train on")
    return [_nth_time(rows, min(math.floor(total * share), total - 1)) for share in shares]


def _nth_time(rows: DataFrame, index: int) -> int:
    from pyspark.sql import functions as F

    start = 0
    part = rows.select("t_us")
    for step in _STEPS_US:
        buckets = part.groupBy(F.expr(f"t_us div {step}").alias("bucket")).count().orderBy("bucket").collect()
        for bucket in buckets:
            if index < bucket["count"]:
                start = bucket["bucket"] * step
                break
            index -= bucket["count"]
        part = part.where((F.col("t_us") >= start) & (F.col("t_us") < start + step))
    return start


def _write(
    spark: SparkSession, rows: DataFrame, caches: list[str], cuts: list[int], past: tuple[str, Origins, list[int]], folder: str
) -> list[dict[str, Any]]:
    """Write one file a cache; what each of them holds, in order.

    ``past``: configuration of the core, where boots went on from, and the versions of the side table that the workers have.
    """
    from pyspark.sql import functions as F

    told = spark.sparkContext.accumulator({}, _merging())
    split = F.when(F.col("t_us") < cuts[0], SPLITS[0]).when(F.col("t_us") < cuts[1], SPLITS[1]).otherwise(SPLITS[2])
    ordered = (
        rows.withColumn("split", split)
        .repartitionById(len(caches), F.col("part"))
        .sortWithinPartitions("boot_us", "seq", "t_us", "open_id")
    )
    featured = ordered.mapInArrow(_featuring(*past, told), ", ".join(f"{name} {kind}" for name, kind in COLUMNS))
    featured.write.mode("overwrite").options(**_PARQUET).parquet(folder)
    return [told.value[cache] for cache in caches]


def _featuring(text: str, origins: Origins, versions: list[int], told: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    names = [name for name, _ in COLUMNS]

    def replay(batches: Iterator[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        digest = RowsDigest()
        fact: dict[str, Any] = {"censored": 0, "scanned_rows": 0, "splits": dict.fromkeys(SPLITS, 0)}
        first_us, last_us = [], []
        cache, history = "", None
        with tempfile.TemporaryDirectory(prefix="smartcache-replay-") as folder:
            for batch in batches:
                if not batch.num_rows:
                    continue
                columns = {name: batch[name] for name in batch.schema.names}
                if history is None:
                    cache = batch["cache"][0].as_py()
                    history = Replay(text, origins.get(cache, ()), Path(folder), SideTables.of_job(versions))
                features = history.features(
                    columns["boot_us"].to_numpy(),
                    columns["seq"].to_numpy(),
                    columns["t_us"].to_numpy(),
                    columns["lfn"].to_pylist(),
                    columns["on_disk"].to_numpy(zero_copy_only=False),
                    columns["known_size"].to_numpy(),
                    columns["fill"].to_numpy(),
                    columns["read_share"].to_numpy(),
                    columns["side_table"].to_numpy(),
                )
                width = features.shape[1]
                offsets = np.arange(0, (len(features) + 1) * width, width, dtype=np.int32)
                columns["features"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.ascontiguousarray(features).reshape(-1)))
                made = pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
                digest.add(made)
                fact["censored"] += pc.sum(made["censored"]).as_py()
                fact["scanned_rows"] += pc.sum(columns["history_scanned"]).as_py()
                for each in pc.value_counts(made["split"]).to_pylist():
                    fact["splits"][each["values"]] += each["counts"]
                first_us.append(pc.min(made["t_us"]).as_py())
                last_us.append(pc.max(made["t_us"]).as_py())
                yield made
        if history is not None:
            fact |= {"first_us": min(first_us), "last_us": max(last_us), "unknown_histories": len(history.unknown)}
            fact["unknown_side_tables"] = history.tables.unknown
            told.add({cache: {**fact, "rows": digest.rows, "sha256": digest.hexdigest()}})

    return replay


def _merging() -> Any:
    from pyspark.accumulators import AccumulatorParam

    class Merging(AccumulatorParam):  # type: ignore[misc]  # pyspark is untyped here
        """Dictionaries laid over one another: a task that runs twice says the same again."""

        def zero(self, value: dict[str, Any]) -> dict[str, Any]:
            return {}

        def addInPlace(self, one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
            return {**one, **two}

    return Merging()


def _name(index: int) -> str:
    return f"part-{index:05d}.parquet"


def _publish(spark: SparkSession, output: str, count: int, manifest: dict[str, Any]) -> None:
    """Give the files their names, drop what an earlier training set left, write the manifest last."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path
    folder = path(output)
    files = folder.getFileSystem(spark._jsc.hadoopConfiguration())
    files.delete(path(folder, MANIFEST), False)
    for status in files.listStatus(folder):
        if status.getPath().getName().startswith("part-"):
            files.delete(status.getPath(), False)
    written = sorted(
        status.getPath().getName()
        for status in files.listStatus(path(folder, "_writing"))
        if status.getPath().getName().startswith("part-")
    )
    if len(written) != count:
        raise DatasetError(f"{output}: {len(written)} files were written for {count} caches")
    for index, name in enumerate(written):
        # It says false, and raises nothing, where the file system refuses.
        if not files.rename(path(path(folder, "_writing"), name), path(folder, _name(index))):
            raise DatasetError(f"{output}: _writing/{name} could not be renamed to {_name(index)}: may files be made there? Run it again")
    files.delete(path(folder, "_writing"), True)
    out = files.create(path(folder, MANIFEST), True)
    try:
        out.write(bytearray((json.dumps(manifest, indent=2) + "\n").encode()))
    finally:
        out.close()

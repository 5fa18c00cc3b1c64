"""``smartcache compact``, and the stream by itself: the small files of days that are over become few, in each of the stream's tables.

The stream writes files with each batch; a reader of a month would open a hundred thousand. For each partition of a finished day that has
several small files, in this order:

1. their rows are written anew, sorted by time, into ``TABLE/_compacting/ID``: no reader looks there;
2. what was written is read back: as many rows, and the same sum of their hashes over all columns, or nothing is changed;
3. the new files get their names in the partition: in no list yet, so not in the table;
4. the table's list of files is written anew (:mod:`.table`), with the new files in place of the old: one new file, whole or not at all;
5. the old files stay for `keep_replaced_s`, for who began to read before, and are deleted by a later run.

Killed at any moment: the rows are in the table once, by the old files or by the new ones. What was written for nothing is deleted by a
later run once it is `ORPHAN_MS` old. The stream takes no part: it only ever adds to its own list.
"""

from __future__ import annotations

import math
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from .retention import ORPHAN_MS, STAGING, day_of, delete_drafts, partitions
from .table import Listing, TableError, change, listing, partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from smartcache.config import Compaction

    from .storage import Hadoop

#: By which rows are sorted, those of these columns that there are: neighbours look alike, which compresses well.
_ORDER = ("open_us", "record_us", "kafka_us", "open_id", "record_id", "offset")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to put together: days before ``before``; files up to half of ``target_bytes`` become files of about that size."""

    before: date
    target_bytes: int
    keep_replaced_ms: int
    now_ms: int
    caches: tuple[str, ...] = ()

    @classmethod
    def of(cls, section: Compaction, now_s: float, caches: tuple[str, ...] = ()) -> Plan:
        """What the configuration asks for at ``now_s`` (Unix time)."""
        today, now_ms = datetime.fromtimestamp(now_s, UTC).date(), round(now_s * 1000)
        return cls(today - timedelta(days=section.after_days), section.target_bytes, round(section.keep_replaced_s * 1000), now_ms, caches)


@dataclass(slots=True)
class Compacted:
    """What was done to one table."""

    partitions: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    #: Files of earlier runs, and of killed batches, that were deleted.
    deleted: int = 0


def compact(spark: SparkSession, table: str, plan: Plan, progress: Progress = lambda _: None) -> Compacted:
    """Put the small files of the finished days of ``table`` together; what was done.

    :class:`.table.TableError` where it is no table, where another command changes it just now, or where rows read back are not the same:
    then that day is as it was, and those before it are done.
    """
    from .storage import Hadoop

    files, done = Hadoop(spark), Compacted()
    now = listing(files, table)
    days: defaultdict[date, list[str]] = defaultdict(list)
    progress(f"looking through {table}")
    for folder in partitions(files, table):
        values = partition_of(f"{folder}/")
        if day_of(values) < plan.before and (not plan.caches or values.get("cache") in plan.caches):
            days[day_of(values)].append(folder)
    for number, day in enumerate(sorted(days)):
        progress(f"{table}: {day}, {number + 1} of {len(days)} days")
        now = _one_day(spark, files, table, days[day], now, plan, done)
    _tidy(files, table, now, plan, done, [folder for folders in days.values() for folder in folders])
    return done


def _one_day(spark: SparkSession, files: Hadoop, table: str, folders: list[str], now: Listing, plan: Plan, done: Compacted) -> Listing:
    """The partitions of a day in all caches, with one change of the list."""
    places: dict[str, list[str]] = {}
    listed = set(now.files)
    staging = f"{table}/{STAGING}/{uuid.uuid4().hex}"
    result = Compacted()
    try:
        for folder in sorted(folders):
            sizes = {
                f"{folder}/{each.name}": each.size for each in files.statuses(f"{table}/{folder}") if f"{folder}/{each.name}" in listed
            }
            small = [name for name in now.files if sizes.get(name, plan.target_bytes) <= plan.target_bytes // 2]
            if len(small) > 1:
                places[small[0]] = _rewrite(spark, files, table, folder, small, sizes, plan, staging, result)
                places |= {name: [] for name in small[1:]}
        if not places:
            return now
        kept = tuple(new for name in now.files for new in places.get(name, [name]))
        after = change(files, table, now, kept, now.replaced | dict.fromkeys(places, plan.now_ms))
    finally:
        files.delete(staging, folder=True)
    for name in ("partitions", "files_before", "files_after", "bytes_before", "bytes_after", "rows"):
        setattr(done, name, getattr(done, name) + getattr(result, name))
    return after


def _rewrite(
    spark: SparkSession,
    files: Hadoop,
    table: str,
    folder: str,
    small: list[str],
    sizes: dict[str, int],
    plan: Plan,
    staging: str,
    result: Compacted,
) -> list[str]:
    """Write the rows of ``small`` anew; the names of the files that they are in now, which no list has yet."""
    size = sum(sizes[name] for name in small)
    count = max(1, math.ceil(size / plan.target_bytes))
    # Of all columns that any of the files has: newer ones have more.
    rows = spark.read.option("mergeSchema", "true").parquet(*(f"{table}/{name}" for name in small))
    order = [name for name in _ORDER if name in rows.columns]
    together = rows.repartitionByRange(count, *order) if count > 1 and order else rows.coalesce(1)
    where = f"{staging}/{len(small)}-{uuid.uuid4().hex}"
    together.sortWithinPartitions(*order).write.option("compression", "zstd").parquet(where)
    before, after = _digest(rows), _digest(spark.read.parquet(where))
    if before != after:
        raise TableError(f"{table}/{folder}: what was read back is not what was written ({before} and {after}); nothing was changed")
    names = []
    for each in sorted(files.statuses(where), key=lambda each: each.name):
        if each.name.endswith(".parquet") and each.size:
            names.append(f"{folder}/{each.name}")
            files.move(f"{where}/{each.name}", f"{table}/{names[-1]}")
            result.bytes_after += each.size
    result.partitions += 1
    result.files_before += len(small)
    result.files_after += len(names)
    result.bytes_before += size
    result.rows += before[0]
    return names


def _digest(rows: DataFrame) -> tuple[int, Any]:
    """How many rows, and the sum of their hashes: the same for the same rows in any order."""
    from pyspark.sql import functions as F

    # With the place of each value, so that a null and what is beside it are told apart; -0.0 and 0.0 are, as text.
    cells = [F.concat_ws("|", F.lit(name), F.col(name).cast("string")) for name in sorted(rows.columns)]
    whole = F.xxhash64(*sorted(rows.columns), *cells).cast("decimal(20,0)")
    found = rows.agg(F.count("*"), F.sum(whole)).collect()[0]
    return found[0], found[1]


def _tidy(files: Hadoop, table: str, now: Listing, plan: Plan, done: Compacted, folders: list[str]) -> None:
    """Delete what was replaced long enough ago, and what killed batches and killed runs have left in the partitions of finished days."""
    listed = set(now.files)
    gone = [name for name, at in now.replaced.items() if at <= plan.now_ms - plan.keep_replaced_ms]
    for folder in folders:
        for each in files.statuses(f"{table}/{folder}"):
            name = f"{folder}/{each.name}"
            hidden = each.folder or (each.name.startswith(".") and each.name.endswith(".crc"))
            if not hidden and name not in listed and name not in now.replaced and each.modified_ms < plan.now_ms - ORPHAN_MS:
                done.deleted += files.delete(f"{table}/{name}")
    delete_drafts(files, table, plan.now_ms)
    if gone:
        for name in gone:
            done.deleted += files.delete(f"{table}/{name}")
        change(files, table, now, now.files, {name: at for name, at in now.replaced.items() if name not in set(gone)})

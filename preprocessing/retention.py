"""``smartcache retain``: days that are over are forgotten, in the access table, the jobs table and the quarantine.

For each table, in this order, so that a reader never sees a part of a day and a kill at any moment loses nothing else:

1. the table's list of files is written anew without those of the days to forget (:mod:`.table`): from here on they are not in the table;
2. those files are deleted, and with them whatever else lies in the same partitions and is in no list: files that were replaced, and what
   killed batches have left. Such a file that is younger than `ORPHAN_MS` stays: a batch of the stream may be writing it just now. The next
   run takes it;
3. copies of rows that a killed compaction has left, once they are as old: they may be of a forgotten day.

What the stream writes into a forgotten day later (an open that was held for long, an import of an old trace) is a file of the table until
the next run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from .table import Listing, change, listing, partition_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .storage import Hadoop

#: A file in no list is left alone until it is as old: no batch takes so long.
ORPHAN_MS = 86_400_000
#: Where a compaction writes, in the table's folder: each in a folder of its own.
STAGING = "_compacting"
#: Columns that a table may be partitioned by, in the order of its folders.
_LAYOUTS = (("cache", "day"), ("day",))

Progress = Callable[[str], None]
#: Whether a day is to be forgotten.
Forgets = Callable[[date], bool]


@dataclass(slots=True)
class Forgotten:
    """What was removed of one partition, or would be; `cache` is empty where the table is not by cache."""

    cache: str
    day: date
    rows: int = 0
    files: list[str] = field(default_factory=list)
    #: Files that no list names, of killed batches or replaced before.
    strays: list[str] = field(default_factory=list)
    #: How many such files are too young to be told from those of a batch that is being written: they stay.
    young: int = 0
    size: int = 0


def retain(
    spark: SparkSession,
    table: str,
    forgets: Forgets,
    caches: tuple[str, ...],
    now_ms: int,
    *,
    dry_run: bool = False,
    progress: Progress = lambda _: None,
) -> list[Forgotten]:
    """Forget the partitions of ``table`` with a day that ``forgets`` names (and of ``caches``, where some are named); what that was.

    ``dry_run``: only say it. :class:`.table.TableError` where it is no table, or another command changes it just now.
    """
    from .storage import Hadoop

    files = Hadoop(spark)
    before = listing(files, table)

    def leaves(file: str) -> bool:
        values = partition_of(file)
        return forgets(day_of(values)) and (not caches or values.get("cache") in caches)

    found: dict[str, Forgotten] = {}
    progress(f"looking through {table}")
    for folder in partitions(files, table):
        if leaves(f"{folder}/"):
            values = partition_of(f"{folder}/")
            found[folder] = Forgotten(values.get("cache", ""), day_of(values))
            _look(files, table, folder, found[folder], before, now_ms)
    counted = [f"{table}/{name}" for each in found.values() for name in each.files]
    if counted:
        progress(f"counting the rows of {len(counted)} files")
        _count(spark, counted, table, found)
    if not dry_run:
        gone = [name for name in before.files if leaves(name)]
        if gone:
            replaced = {name: at for name, at in before.replaced.items() if not leaves(name)} | dict.fromkeys(gone, now_ms)
            change(files, table, before, tuple(name for name in before.files if not leaves(name)), replaced)
        delete = sorted({*gone, *(name for each in found.values() for name in each.strays)})
        for number, name in enumerate(delete):
            progress(f"deleting file {number + 1} of {len(delete)}")
            files.delete(f"{table}/{name}")
        delete_drafts(files, table, now_ms)
    return [each for _, each in sorted(found.items()) if each.files or each.strays or each.young]


def partitions(files: Hadoop, table: str, above: str = "", depth: int = 0) -> list[str]:
    """The folders of the table's partitions, relative to it."""
    found = []
    for each in files.statuses(f"{table}/{above}" if above else table):
        name, equals, _ = each.name.partition("=")
        if not each.folder or not equals or not any(layout[depth : depth + 1] == (name,) for layout in _LAYOUTS):
            continue
        path = f"{above}/{each.name}" if above else each.name
        found += [path] if name == "day" else partitions(files, table, path, depth + 1)
    return found


def delete_drafts(files: Hadoop, table: str, now_ms: int) -> None:
    """Delete what killed compactions have left; a younger one may be running."""
    try:
        found = files.statuses(f"{table}/{STAGING}")
    except FileNotFoundError:
        return
    for each in found:
        if each.modified_ms < now_ms - ORPHAN_MS:
            files.delete(f"{table}/{STAGING}/{each.name}", folder=True)


def _look(files: Hadoop, table: str, folder: str, into: Forgotten, before: Listing, now_ms: int) -> None:
    listed = set(before.files)
    for each in files.statuses(f"{table}/{folder}"):
        name = f"{folder}/{each.name}"
        if each.folder or (each.name.startswith(".") and each.name.endswith(".crc")):  # Hadoop deletes a checksum with its file
            continue
        if name in listed:
            into.files.append(name)
        elif name in before.replaced or each.modified_ms < now_ms - ORPHAN_MS:
            into.strays.append(name)
        else:
            into.young += 1
            continue
        into.size += each.size


def _count(spark: SparkSession, paths: list[str], table: str, found: dict[str, Forgotten]) -> None:
    """Rows by partition: Parquet's footers hold the counts."""
    rows = spark.read.schema("cache string, day string").option("basePath", table).parquet(*paths)
    counts = {(row["cache"] or "", row["day"]): row["count"] for row in rows.groupBy("cache", "day").count().collect()}
    for each in found.values():
        each.rows = counts.get((each.cache, each.day.isoformat()), 0)


def day_of(values: dict[str, str]) -> date:
    """The day of a partition; one that is never over where it has none."""
    try:
        return date.fromisoformat(values["day"])
    except (KeyError, ValueError):
        # Never forgotten by its age: it has none.
        return date.max

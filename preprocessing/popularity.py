"""The dataset side table: what all caches together saw of each dataset, in one small file that a plugin can load (contract 8).

Per dataset: opens and bytes read in several windows that end now, how many files, the share of opens whose file had been opened at that
cache before, the part of the files that was read. JSON lines: a head, the datasets in the order of their names' bytes, and a foot with
their number and the SHA-256 of all lines before it; so half a file, or one that was changed, is told from a whole one.

Published atomically: written beside its place, forced to the disk, kept as its version (:mod:`.side_tables`), renamed, the folder forced to
the disk. Who reads has the one before or this one. `version` rises with each.

Spark gives the datasets that were opened most, one at a time; the driver holds one partition of them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .access import access_schema
from .privacy import of_a_user
from .side_tables import keep, kept
from .table import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from smartcache.config import Config

FORMAT = 1
KIND = "smartcache-datasets"
#: Names that are longer are nobody's datasets; they are left out and counted.
LONGEST_NAME = 1024
_AMOUNT, _MOST = "decimal(18,0)", 10**18 - 1


class SideTableError(Exception):
    """A file that is not a side table, or not a whole one; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Published:
    """What was published."""

    path: Path
    version: int
    datasets: int
    left_out: int


def publish(spark: SparkSession, config: Config, path: Path, now_us: int) -> Published:
    """Make the side table of the opens until ``now_us`` (microseconds of Unix time), and put it at ``path``.

    :class:`.table.TableError` where there is no access table; `OSError` where it cannot be written: then what was there is there still.
    """
    section = config.side_table
    opens = read(spark, config.streaming.table, access_schema())
    found = by_dataset(opens, tuple(section.windows_s), now_us).persist()
    try:
        from pyspark.sql import functions as F

        named = found.where(F.length(F.col("dataset").cast("binary")).between(1, LONGEST_NAME))
        named = named.where(~of_a_user(F.col("dataset"), config.privacy.user_paths))
        most = named.orderBy(F.desc(f"opens_{len(section.windows_s) - 1}"), "dataset").limit(section.datasets).orderBy("dataset")
        head = {
            "format": FORMAT,
            "kind": KIND,
            "version": max(now_us, _version(path) + 1, *(version + 1 for version in kept(path))),
            "until_us": now_us,
            "windows_s": list(section.windows_s),
            "left_out": found.count() - min(named.count(), section.datasets),
        }
        rows = (_line(row.asDict(), len(section.windows_s)) for row in most.toLocalIterator())
        count = write(path, head, rows, lambda draft: keep(path, head["version"], draft, section.keep))
    finally:
        found.unpersist()
    return Published(path, head["version"], count, head["left_out"])


def by_dataset(opens: DataFrame, windows_s: tuple[float, ...], now_us: int) -> DataFrame:
    """Per `dataset`: `opens_I` and `read_bytes_I` in each window, and over the last (longest) one the rest."""
    from pyspark.sql import functions as F

    begins = [now_us - round(seconds * 1e6) for seconds in windows_s]
    first_day = datetime.fromtimestamp(max(begins[-1], 0) / 1e6, UTC).date()
    last_day = datetime.fromtimestamp(now_us / 1e6, UTC).date() + timedelta(days=1)
    here = opens.where(F.col("day").between(first_day, last_day) & (F.col("open_us") > begins[-1]) & (F.col("open_us") <= now_us))
    zero = F.lit(0).cast(_AMOUNT)
    read_bytes = F.least(F.coalesce(F.when(F.col("b_read") >= 0, F.col("b_read")), F.lit(0)), F.lit(_MOST)).cast(_AMOUNT)
    sized = (F.col("size") > 0) & (F.col("b_read") >= 0)
    size = F.when(sized, F.least("size", F.lit(_MOST))).otherwise(0).cast(_AMOUNT)
    part = F.when(sized, F.least("size", "b_read", F.lit(_MOST))).otherwise(0).cast(_AMOUNT)
    inside = [F.col("open_us") > begin for begin in begins]
    # File by file first: hot files become one row each before anything is moved.
    files = (
        here.where(F.col("dataset").isNotNull())
        .groupBy("dataset", "cache", "lfn")
        .agg(
            *(F.count(F.when(each, 1)).alias(f"opens_{number}") for number, each in enumerate(inside)),
            *(F.sum(F.when(each, read_bytes).otherwise(zero)).alias(f"read_bytes_{number}") for number, each in enumerate(inside)),
            F.sum(size).alias("sized"),
            F.sum(part).alias("part"),
            F.max("open_us").alias("last_open_us"),
        )
    )
    last = len(windows_s) - 1
    sums = [f"{name}_{number}" for name in ("opens", "read_bytes") for number in range(len(windows_s))]
    return files.groupBy("dataset").agg(
        *(F.sum(name).alias(name) for name in sums),
        F.countDistinct("lfn").alias("files"),
        F.countDistinct("cache").alias("caches"),
        (F.sum(F.col(f"opens_{last}") - 1) / F.sum(f"opens_{last}")).alias("reopened"),
        # Of decimals the quotient has six digits behind the point.
        F.try_divide(F.sum("part").cast("double"), F.sum("sized").cast("double")).alias("part_read"),
        F.max("last_open_us").alias("last_open_us"),
    )


def _line(row: dict[str, Any], windows: int) -> dict[str, Any]:
    values = {name: [int(row[f"{name}_{number}"]) for number in range(windows)] for name in ("opens", "read_bytes")}
    rest = {name: row[name] for name in ("files", "caches", "reopened", "part_read", "last_open_us")}
    return {"dataset": row["dataset"], **values, **rest}


def write(path: Path, head: dict[str, Any], rows: Iterable[dict[str, Any]], before: Callable[[Path], None] | None = None) -> int:
    """Write and publish; how many rows. ``before`` gets the whole file before it has its name. A failure leaves what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    digest, count = hashlib.sha256(), 0
    try:
        with draft.open("wb") as file:

            def put(value: dict[str, Any]) -> None:
                line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
                digest.update(line)
                file.write(line)

            put(head)
            for row in rows:
                put(row)
                count += 1
            file.write(json.dumps({"rows": count, "sha256": digest.hexdigest()}, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if before is not None:
            before(draft)
        draft.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        draft.unlink(missing_ok=True)
    return count


def load(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head and the datasets of a side table; :class:`SideTableError` where it is none, is cut short, or was changed."""
    *lines, last = [*_lines(path.read_bytes())] or [b""]
    try:
        foot = json.loads(last)
        digest = hashlib.sha256(b"".join(lines)).hexdigest()
        if not lines or not isinstance(foot, dict) or foot.get("sha256") != digest or foot.get("rows") != len(lines) - 1:
            raise SideTableError(f"{path}: not a whole side table: its last line does not fit what stands before it")
        head, *rows = map(json.loads, lines)
        if head.get("kind") != KIND or head.get("format") != FORMAT:
            raise SideTableError(f"{path}: kind {head.get('kind')!r}, format {head.get('format')!r}; this reads {KIND!r}, {FORMAT}")
    except ValueError as error:
        raise SideTableError(f"{path}: not a whole side table ({error})") from error
    return head, rows


def _lines(content: bytes) -> Iterator[bytes]:
    return iter(content.splitlines(keepends=True))


def _version(path: Path) -> int:
    """Of what is published there; 0 where nothing is, or nothing that can be read."""
    with suppress(OSError, SideTableError, KeyError, TypeError, AttributeError):
        return int(load(path)[0]["version"])
    return 0

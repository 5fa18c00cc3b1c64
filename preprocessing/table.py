"""Which files a table is made of: the list that the stream writes, and over it a list of what was removed or put together since.

- ``TABLE/_spark_metadata/N`` and ``N.compact``: Spark's. The stream alone writes it; it only grows, and its order stays.
- ``TABLE/_files/NNNNNNNN.json``: ours, written by commands that change what is there (``smartcache compact`` and ``retain``). It stands
  for the first `covers` files of Spark's list: `files` are what has become of those, `replaced` what is not in the table any more but may
  still be on the disk.

So the table is the `files` of the newest list of ours, and what comes in Spark's after the first `covers`. Each change is one new file
under a new name: whoever reads sees all of it or nothing, and the stream, running or killed at any moment, takes no part in it.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from smartcache.config import Config

    from .storage import Hadoop, Reader

METADATA = "_spark_metadata"
LISTS = "_files"
FORMAT = 1


class TableError(Exception):
    """There is no table where one was looked for, its list of files cannot be read, or another command has changed it meanwhile."""


class NoTable(TableError):
    """Nothing was written there yet: a table begins with the first batch that has rows for it."""


def tables_of(config: Config) -> dict[str, str]:
    """The tables that the stream writes, by their names for people."""
    return {"access table": config.streaming.table, "jobs table": config.streaming.jobs, "quarantine": config.streaming.quarantine}


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a table at one moment, relative to its folder, in the order in which they came."""

    files: tuple[str, ...]
    #: How many files Spark's list had, and the last of them.
    covers: int = 0
    last: str = ""
    #: Number of our list that it was made from; 0: there is none.
    number: int = 0
    #: What is not in the table any more and not yet deleted, and since when (milliseconds of Unix time).
    replaced: dict[str, int] = field(default_factory=dict)


def partition_of(file: str) -> dict[str, str]:
    """The partition that a file is in, by column: from the names of its folders."""
    parts = (part.partition("=") for part in file.split("/")[:-1])
    return {name: unquote(value) for name, equals, value in parts if equals}


def listing(files: Reader, table: str) -> Listing:
    """The files of ``table`` now; :class:`TableError` where it is none."""
    # Ours first: what it covers stays in Spark's.
    ours = _newest(files, table)
    entries = list(_entries(files, table))
    last = entries[-1] if entries else ""
    if ours is None:
        return Listing(tuple(entries), len(entries), last)
    if len(entries) < ours.covers or (ours.covers and entries[ours.covers - 1] != ours.last):
        raise TableError(
            f"{table}/{_name(ours.number)} stands for the first {ours.covers} files of {METADATA}, which has {len(entries)} or others: "
            f"was {METADATA} begun anew? Then delete {table}/{LISTS} too"
        )
    return Listing((*ours.files, *entries[ours.covers :]), len(entries), last, ours.number, ours.replaced)


def change(files: Hadoop, table: str, before: Listing, kept: tuple[str, ...], replaced: dict[str, int]) -> Listing:
    """From now on the files of the table are ``kept``, and those that have come since ``before`` was read.

    :class:`TableError` where another command has changed it since; then nothing is changed.
    """
    after = Listing(kept, before.covers, before.last, before.number + 1, replaced)
    text = json.dumps({"format": FORMAT, "covers": after.covers, "last": after.last, "files": list(kept), "replaced": replaced})
    files.make_folder(f"{table}/{LISTS}")
    try:
        files.write_new(f"{table}/{_name(after.number)}", text)
    except Exception as error:  # one of Hadoop's, through py4j
        if _name(after.number).rpartition("/")[2] in files.names(f"{table}/{LISTS}"):
            raise TableError(f"{table}: another command has changed it meanwhile; nothing was changed, run this one again") from error
        raise
    if any(name.endswith(".json") and int(name.partition(".")[0]) > after.number for name in files.names(f"{table}/{LISTS}")):
        # Several changes have come in between, and the place of this one was free again: its list counts for nobody.
        files.delete(f"{table}/{_name(after.number)}")
        raise TableError(f"{table}: another command has changed it meanwhile; nothing was changed, run this one again")
    # A reader that has just listed them may still ask for the one before.
    for name in files.names(f"{table}/{LISTS}"):
        if name.endswith(".json") and int(name.partition(".")[0]) < before.number:
            files.delete(f"{table}/{LISTS}/{name}")
    return after


def read(spark: SparkSession, table: str, schema: StructType) -> DataFrame:
    """The table as Spark reads it: the one way for a job, since Spark itself knows its own list only.

    :class:`TableError` where the list cannot be read; pyspark's AnalysisException where there is no folder.
    """
    from .storage import Hadoop

    files = Hadoop(spark)
    try:
        files.names(f"{table}/{LISTS}")
    except FileNotFoundError:
        return spark.read.schema(schema).parquet(table)
    now = listing(files, table).files
    if not now:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", table).parquet(*(f"{table}/{name}" for name in now))


def _name(number: int) -> str:
    return f"{LISTS}/{number:08d}.json"


def _newest(files: Reader, table: str) -> Listing | None:
    """The newest list of ours; None where there is none."""
    while True:
        try:
            names = files.names(f"{table}/{LISTS}")
        except FileNotFoundError:
            return None
        numbers = [int(stem) for stem, _, end in (name.partition(".") for name in names) if stem.isdigit() and end == "json"]
        if not numbers:
            return None
        name = f"{table}/{_name(max(numbers))}"
        try:
            return _parsed(name, max(numbers), files.text(name))
        except FileNotFoundError:  # two changes later it is gone
            continue


def _parsed(name: str, number: int, text: str) -> Listing:
    try:
        stored = json.loads(text)
        if stored["format"] != FORMAT:
            raise TableError(f"{name}: format {stored['format']!r}, this reads {FORMAT}: a newer smartcache has written it")
        paths, replaced, covers, last = stored["files"], stored["replaced"], stored["covers"], stored["last"]
        if not isinstance(covers, int) or covers < 0 or not isinstance(last, str):
            raise TypeError("covers and last")
        if any(not _inside(path) for path in (*paths, *replaced)) or any(not isinstance(at, int) for at in replaced.values()):
            raise TypeError("files and replaced")
        return Listing(tuple(paths), covers, last, number, dict(replaced))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TableError(f"{name}: not a list of files ({error}); restore it, or delete {LISTS} if Spark's own list still holds") from error


def _inside(path: object) -> bool:
    """Whether it names a file below the table."""
    return isinstance(path, str) and path != "" and not path.startswith("/") and ".." not in path.split("/")


def _entries(files: Reader, table: str) -> Iterator[str]:
    """Spark's list, in the order of its batches: from the last compaction on, as `N.compact` holds all before it."""
    metadata = f"{table}/{METADATA}"
    try:
        names = files.names(metadata)
    except FileNotFoundError:
        raise NoTable(f"{metadata} does not exist: no `smartcache stream` has written a table there yet") from None
    numbered = {int(name.partition(".")[0]): name for name in names if name.partition(".")[0].isdigit()}
    first = max((number for number, name in numbered.items() if name.endswith(".compact")), default=-1)
    root = posixpath.normpath(urlsplit(table).path)
    for number, name in sorted(numbered.items()):
        if number < first:
            continue
        lines = files.text(f"{metadata}/{name}").splitlines()
        if not lines or lines[0] != "v1":
            raise TableError(f"{metadata}/{name}: the file list has version {lines[:1]}, this reads v1")
        for line in lines[1:]:
            path = unquote(urlsplit(json.loads(line)["path"]).path)
            if not path.startswith(f"{root}/"):
                raise TableError(f"{metadata}/{name} names {path}, which is not below {root}: a table cannot be moved, set it back")
            yield path.removeprefix(f"{root}/")

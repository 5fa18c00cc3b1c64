"""The access table: one row per open of a file at a cache. Its columns, and a reader for programs that are no jobs of Spark's.

Layout: ``TABLE/cache=HOST%3APORT/day=YYYY-MM-DD/part-….parquet`` and the lists of the files that count (:mod:`.table`). A batch that was
killed leaves files that are in no list, some of them half written: whoever reads takes the list, as :func:`read_access_table` and, in
Spark, :func:`.table.read` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .storage import Local, Reader
from .table import listing, partition_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Column and Spark type, in the table's order. `cache` and `day` are the partitions.
COLUMNS: tuple[tuple[str, str], ...] = (
    ("open_id", "string"),
    ("open_us", "long"),
    ("close_us", "long"),
    ("lfn", "string"),
    ("dataset", "string"),
    ("size", "long"),
    ("b_read", "long"),
    ("b_hit", "long"),
    ("b_miss", "long"),
    ("b_bypass", "long"),
    ("b_todisk", "long"),
    ("blk_size", "long"),
    ("n_blks_done", "long"),
    ("access_cnt", "long"),
    ("detach_us", "long"),
    ("answer", "string"),
    ("reason", "string"),
    ("score", "double"),
    ("probability", "double"),
    ("model", "string"),
    ("challenger_model", "string"),
    ("challenger_answer", "string"),
    ("challenger_score", "double"),
    ("t_us", "long"),
    ("on_disk", "boolean"),
    ("fill", "float"),
    ("known_size", "long"),
    ("read_share", "float"),
    ("boot_us", "long"),
    ("seq", "long"),
    ("history_scanned", "boolean"),
    ("history_boot_us", "long"),
    ("history_seq", "long"),
    ("side_table", "long"),
    ("decision_id", "string"),
    ("pfc_id", "string"),
    ("user", "string"),
    ("client_host", "string"),
    ("app", "string"),
    ("cache", "string"),
    ("day", "date"),
)
PARTITIONS = ("cache", "day")


def access_schema() -> StructType:
    """The columns as Spark's type."""
    from pyspark.sql.types import StructType

    schema = StructType()
    for name, kind in COLUMNS:
        schema = schema.add(name, kind, True)
    return schema


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of an access table at one moment, in the order in which they came; what reads them may be any file system's."""

    files: Reader
    paths: tuple[str, ...]

    @classmethod
    def of(cls, files: Reader, table: str) -> Snapshot:
        """:class:`.table.TableError` where there is no table."""
        root = urlsplit(table).path if isinstance(files, Local) else table
        return cls(files, tuple(f"{root}/{name}" for name in listing(files, root).files))

    @property
    def days(self) -> list[date]:
        """The days that the table has opens of, in their order."""
        return sorted({day for path in self.paths if (day := _day(path)) is not None})

    def days_of(self, cache: str) -> list[date]:
        """Those of one cache."""
        return sorted({day for path in self.paths if partition_of(path).get("cache") == cache and (day := _day(path)) is not None})

    def read(
        self, columns: Sequence[str] | None = None, from_day: date | None = None, to_day: date | None = None, cache: str = ""
    ) -> pa.Table:
        """The opens as Arrow (``.to_pandas()`` for a frame), sorted by cache, time and open_id; empty where there are none.

        ``columns``: only these. ``from_day``, ``to_day``: no days before, none after. ``cache``: only this one's. It is all read into
        memory: for what does not fit there, use Spark.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        wanted = list(columns or [name for name, _ in COLUMNS])
        read = [*dict.fromkeys([*wanted, "open_us", "open_id", "cache"])]
        schema = _arrow_schema()
        parts = [pa.schema([schema.field(name) for name in read]).empty_table()]
        stored = [name for name in read if name not in PARTITIONS]
        for path in self.paths:
            day, partition = _day(path), partition_of(path)
            if day is not None and ((from_day is not None and day < from_day) or (to_day is not None and day > to_day)):
                continue
            if cache and partition.get("cache") != cache:
                continue
            with self.files.on_disk(path) as file:
                part = pq.ParquetFile(file).read(columns=stored)
            for name, value in partition.items():
                if name in PARTITIONS and name in read:
                    part = part.append_column(name, pa.array([value] * part.num_rows, pa.string()).cast(schema.field(name).type))
            for name in read:
                if name not in part.column_names:  # written before the table had this column
                    part = part.append_column(name, pa.nulls(part.num_rows, schema.field(name).type))
            parts.append(part.select(read).cast(parts[0].schema))
        whole = pa.concat_tables(parts)
        return whole.sort_by([("cache", "ascending"), ("open_us", "ascending"), ("open_id", "ascending")]).select(wanted)


def _day(path: str) -> date | None:
    day = partition_of(path).get("day", "")
    return date.fromisoformat(day) if day else None


def table_files(table: Path | str) -> list[Path]:
    """The files of a table on a local disk, in the order in which they came; :class:`.table.TableError` where it is none."""
    return [Path(path) for path in Snapshot.of(Local(), str(table)).paths]


def read_access_table(table: Path | str, columns: Sequence[str] | None = None) -> pa.Table:
    """The whole of a table on a local disk, as :meth:`Snapshot.read`; empty where nothing was written yet."""
    return Snapshot.of(Local(), str(table)).read(columns)


def _arrow_schema() -> Any:
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "long": pa.int64(),
        "double": pa.float64(),
        "float": pa.float32(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in COLUMNS])

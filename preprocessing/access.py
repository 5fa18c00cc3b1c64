"""The access table: one row per open of a file at a cache. Its columns, and a reader for programs without Spark.

Layout: ``TABLE/cache=HOST%3APORT/day=YYYY-MM-DD/part-….parquet`` and ``TABLE/_spark_metadata/``, the list of the files that count. A
batch that was killed leaves files that are in no list, some of them half written: whoever does not read through Spark takes the list, as
:func:`read_access_table` does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

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
    ("answer", "string"),
    ("reason", "string"),
    ("score", "double"),
    ("probability", "double"),
    ("model", "string"),
    ("t_us", "long"),
    ("on_disk", "boolean"),
    ("fill", "float"),
    ("known_size", "long"),
    ("decision_id", "string"),
    ("pfc_id", "string"),
    ("user", "string"),
    ("client_host", "string"),
    ("app", "string"),
    ("cache", "string"),
    ("day", "date"),
)
PARTITIONS = ("cache", "day")
_METADATA = "_spark_metadata"


class TableError(Exception):
    """There is no access table where one was looked for, or its file list cannot be read."""


def access_schema() -> StructType:
    """The columns as Spark's type."""
    from pyspark.sql.types import StructType

    schema = StructType()
    for name, kind in COLUMNS:
        schema = schema.add(name, kind, True)
    return schema


def table_files(table: Path | str) -> list[Path]:
    """The files that belong to the table, in the order of their batches. Local file systems only; :class:`TableError` where it is none."""
    root = Path(urlsplit(str(table)).path)
    batches = _batches(root / _METADATA)
    files: dict[Path, None] = {}
    for batch in batches:
        lines = batch.read_text(encoding="utf-8").splitlines()
        if not lines or lines[0] != "v1":
            raise TableError(f"{batch}: the file list has version {lines[:1]}, this reads v1")
        for line in lines[1:]:
            entry = json.loads(line)
            path = Path(unquote(urlsplit(entry["path"]).path))
            if entry["action"] == "delete":
                files.pop(path, None)
            else:
                files[path] = None
    return list(files)


def read_access_table(table: Path | str, columns: Sequence[str] | None = None) -> pa.Table:
    """The whole table as Arrow (``.to_pandas()`` for a frame), sorted by cache, time and open_id; empty where nothing was written yet.

    ``columns``: only these. It is all read into memory: for a table that does not fit there, use Spark.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = list(columns or [name for name, _ in COLUMNS])
    read = [*dict.fromkeys([*wanted, "open_us", "open_id", "cache"])]
    schema = _arrow_schema()
    parts = [pa.schema([schema.field(name) for name in read]).empty_table()]
    stored = [name for name in read if name not in PARTITIONS]
    for file in table_files(table):
        part = pq.ParquetFile(file).read(columns=stored)
        for name, value in _partition_values(file).items():
            if name in read:
                part = part.append_column(name, pa.array([value] * part.num_rows, pa.string()).cast(schema.field(name).type))
        parts.append(part.select(read).cast(parts[0].schema))
    whole = pa.concat_tables(parts)
    return whole.sort_by([("cache", "ascending"), ("open_us", "ascending"), ("open_id", "ascending")]).select(wanted)


def _batches(metadata: Path) -> list[Path]:
    """The list's files from the last compaction on: `N.compact` holds all before it."""
    if not metadata.is_dir():
        raise TableError(f"{metadata} does not exist: no `smartcache stream` has written an access table there yet")
    numbered = {int(path.name.partition(".")[0]): path for path in metadata.iterdir() if path.name.partition(".")[0].isdigit()}
    last = max((number for number, path in numbered.items() if path.suffix == ".compact"), default=-1)
    return [path for number, path in sorted(numbered.items()) if number >= last]


def _partition_values(file: Path) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in file.parent.parts:
        name, equals, value = part.partition("=")
        if equals and name in PARTITIONS:
            values[name] = unquote(value)
    return values


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

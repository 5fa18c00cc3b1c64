"""The tables of ``smartcache stats`` as files: ``NAME.parquet`` and ``NAME.csv`` for each."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .measure import Measured, Table

#: Names of a unit in :class:`.measure.Table`, as Arrow's types. Sums may be larger than 64 bits can hold.
_TYPES = {"day": "date32", "text": "string", "share": "float64", "ratio": "float64"}


def write(measured: Measured, folder: Path, about: dict[str, str]) -> list[Path]:
    """Write every table, each file whole or not at all; their paths. ``about`` stands in the Parquet files' metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in measured.tables.values():
        written += [
            replace(folder / f"{table.name}.parquet", lambda path, table=table: _parquet(table, path, about)),  # type: ignore[misc]
            replace(folder / f"{table.name}.csv", lambda path, table=table: _csv(table, path)),  # type: ignore[misc]
        ]
    return written


def replace(path: Path, write: Callable[[Path], None]) -> Path:
    """Write a file beside its place, and give it its name when it is done."""
    draft = path.with_name(f".{path.name}.tmp")
    try:
        write(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def _parquet(table: Table, path: Path, about: dict[str, str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def kind(column: int, name: str) -> Any:
        if name != "int":
            return getattr(pa, _TYPES[name])()
        large = any(abs(row[column]) >= 2**63 for row in table.rows)
        return pa.decimal128(38, 0) if large else pa.int64()

    schema = pa.schema(
        [(name, kind(column, of)) for column, (name, of) in enumerate(table.columns)], {"smartcache.stats": json.dumps(about)}
    )
    columns = zip(*table.rows, strict=True) if table.rows else ([] for _ in table.columns)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)


def _csv(table: Table, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([name for name, _ in table.columns])
        writer.writerows([f"{value:.6g}" if isinstance(value, float) else value for value in row] for row in table.rows)

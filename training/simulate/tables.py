"""A comparison as files: ``runs.parquet`` (a row for each run, with its seed), ``windows.parquet`` (for each window), ``summary.csv``."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from smartcache.traces import pyarrow

from .compare import Comparison
from .figures import Figures, Window

RUNS, WINDOWS, SUMMARY = "runs.parquet", "windows.parquet", "summary.csv"
SUMMARY_COLUMNS = (
    "trace",
    "cache_fraction",
    "policy",
    "requests",
    "object_miss",
    "byte_miss",
    "bytes_written",
    "bytes_deleted",
    "gap_closed",
    "requests_per_s",
    "training_s",
)
_TYPES = {"str": "string", "int": "int64", "float": "float64", "float | None": "float64", "bool": "bool_"}


def write(comparison: Comparison, folder: Path) -> None:
    """Write all three into ``folder``; those that are there are replaced. What has no value is null, in the CSV empty."""
    folder.mkdir(parents=True, exist_ok=True)
    _parquet(folder / RUNS, Figures, comparison.figures, comparison)
    _parquet(folder / WINDOWS, Window, comparison.windows, comparison)
    with (folder / SUMMARY).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(SUMMARY_COLUMNS)
        for mean in comparison.means:
            line = mean.line
            writer.writerow([_text(getattr(line, name)) for name in SUMMARY_COLUMNS])


def _parquet(path: Path, kind: type[Any], rows: Sequence[Any], comparison: Comparison) -> None:
    arrow = pyarrow()
    about = {"command": comparison.command, "version": comparison.version, "warm": comparison.plan.warm}
    schema = arrow.schema(
        [(field.name, getattr(arrow, _TYPES[str(field.type)])()) for field in fields(kind)], {"smartcache.simulate": json.dumps(about)}
    )
    arrow.parquet.write_table(arrow.Table.from_pylist([asdict(row) for row in rows], schema), path)


def _text(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value

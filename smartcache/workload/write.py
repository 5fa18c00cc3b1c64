"""A workload as a Parquet trace: columns ``t``, ``lfn``, ``size``, ``bytes_read``, ``user``; the parameters and the seed in its metadata.

Rows are written as they are drawn, in groups of :data:`ROWS`, so a trace may be larger than memory. The file is there when it is whole:
until then it has another name, and what is stopped leaves nothing. The same parameters, seed and pyarrow give the same bytes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import smartcache
from smartcache.traces import pyarrow

from . import kinds
from .datasets import DAY_S
from .parameters import Parameters

ROWS: Final = 65_536
METADATA: Final = b"smartcache.workload"
#: A stop is looked for, and progress told, once in so many rows.
_EVERY: Final = 2_048


class Stopped(Exception):
    """Asked to stop before the trace was whole."""


@dataclass(frozen=True)
class Written:
    """What came of it. ``bytes_requested`` are the sizes of all opened files, ``bytes_read`` what was read of them."""

    opens: int
    bytes_requested: int
    bytes_read: int


def write(
    parameters: Parameters, seed: int, path: Path, stop: threading.Event | None = None, progress: Callable[[float, int], None] | None = None
) -> Written:
    """Write the trace; a file that is there is replaced. ``progress``: told the days that are done, and the opens.

    Raises :class:`Stopped`, OSError, :class:`~smartcache.traces.SourceError` without pyarrow.
    """
    arrow: Any = pyarrow()
    about = {
        "version": smartcache.__version__,
        "kind": parameters.kind,
        "seed": seed,
        "parameters": asdict(parameters),
        "command": command(parameters, seed),
    }
    schema = arrow.schema(
        [
            ("t", arrow.float64()),
            ("lfn", arrow.string()),
            ("size", arrow.int64()),
            ("bytes_read", arrow.int64()),
            ("user", arrow.string()),
        ],
        {METADATA: json.dumps(about).encode()},
    )
    columns: tuple[list[Any], ...] = ([], [], [], [], [])
    opens = requested = read = 0
    partial = path.with_name(f".{path.name}.partial")
    try:
        with arrow.parquet.ParquetWriter(partial, schema, compression="zstd") as writer:
            for access in kinds.accesses(parameters, seed):
                for column, value in zip(columns, access, strict=True):
                    column.append(value)
                opens += 1
                requested += access.size
                read += access.bytes_read
                if opens % _EVERY == 0:
                    if stop is not None and stop.is_set():
                        raise Stopped
                    if progress is not None:
                        progress(access.time_s / DAY_S, opens)
                if len(columns[0]) == ROWS:
                    _flush(writer, schema, columns)
            if columns[0] or not opens:
                _flush(writer, schema, columns)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return Written(opens, requested, read)


def command(parameters: Parameters, seed: int) -> str:
    """The command that gives this trace again, without where to."""
    plain = type(parameters)()
    own = asdict(parameters)
    changed = " ".join(f"--set {name}={own[name]!r}" for name, value in asdict(plain).items() if own[name] != value)
    return f"smartcache generate-trace {parameters.kind} --seed {seed}" + (f" {changed}" if changed else "")


def _flush(writer: Any, schema: Any, columns: tuple[list[Any], ...]) -> None:
    arrow: Any = pyarrow()
    arrays = [arrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    writer.write_table(arrow.Table.from_arrays(arrays, schema=schema), row_group_size=ROWS)
    for column in columns:
        column.clear()

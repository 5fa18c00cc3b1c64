"""Files of access traces, read row by row: Parquet, CSV, and libCacheSim's oracleGeneral. Memory is bounded whatever the file's size.

A row is a mapping of the columns that are known (:data:`smartcache.traces.COLUMNS`), not checked yet; where it cannot even be read, a
:class:`ParseError` stands in its place. Rows are counted from 1, a CSV's header not among them.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from smartcache.traces import (
    MAX_LINE_BYTES,
    ORACLE,
    Microseconds,
    SourceError,
    column_names,
    first_line,
    lines,
    open_bytes,
    open_parquet,
    parquet_errors,
    pyarrow,
    require_columns,
    total,
)

from .errors import ParseError

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 8192
_CHUNK_BYTES = ORACLE.size * 10_000


class Row(NamedTuple):
    """One access. ``at`` is how far into the file it is, in the unit of :func:`~smartcache.traces.total`; ``raw`` are its bytes where they
    can name nobody.
    """

    number: int
    at: int
    values: Mapping[str, Any] | ParseError
    raw: bytes = b""


def rows(path: Path, kind: str) -> Iterator[Row]:
    """The rows of a file of this kind. :class:`SourceError` where it is none, or ends in the midst of its compression."""
    return {"parquet": _parquet_rows, "csv": _csv_rows, "oracle": _oracle_rows}[kind](path)


def _parquet_rows(path: Path) -> Iterator[Row]:
    file = open_parquet(path)
    names = require_columns(path, column_names(path, file))
    number = 0
    try:
        for batch in file.iter_batches(_BATCH_ROWS, columns=names):
            columns = [_plain(batch.column(name)) for name in names]
            for values in zip(*columns, strict=True):
                number += 1
                yield Row(number, number, dict(zip(names, values, strict=True)))
    except parquet_errors() as error:
        raise SourceError(f"{path}: after row {number}: {first_line(error)}") from error


def _plain(column: pa.Array) -> list[Any]:
    module = pyarrow()
    if module.types.is_timestamp(column.type):
        # As microseconds: a datetime of Python's has none finer.
        return [
            None if value is None else Microseconds(value)
            for value in column.cast(module.timestamp("us"), safe=False).cast("int64").to_pylist()
        ]
    if module.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_value(each) for each in column]


def _value(scalar: Any) -> Any:
    """Bytes that are no UTF-8 as U+FFFD, as everywhere; None for what Python has no value for: a date in the year 20000."""
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
    except (ValueError, OverflowError):
        return None


def _csv_rows(path: Path) -> Iterator[Row]:
    csv.field_size_limit(MAX_LINE_BYTES)
    stream, raw = open_bytes(path)
    with raw, stream:
        texts = (line.decode("utf-8", "replace") for line in lines(path, stream))
        try:
            header = _fields(next(texts, ""))
        except csv.Error as error:
            raise SourceError(f"{path}: its first line is no CSV header: {error}") from error
        header = [name.strip().removeprefix("\ufeff") for name in header]
        names = require_columns(path, header)
        places = [(name, header.index(name)) for name in names]
        number = 0
        for text in texts:
            values: Mapping[str, Any] | ParseError
            try:
                fields = _fields(text)
            except csv.Error as error:
                values = ParseError("row", f"it is no CSV: {error}")
            else:
                if not fields:
                    continue
                if len(fields) != len(header):
                    values = ParseError("row", f"it has {len(fields)} fields, the header {len(header)}")
                else:
                    values = {name: fields[place] or None for name, place in places}
            number += 1
            yield Row(number, raw.tell(), values)


def _fields(line: str) -> list[str]:
    """Of one line, alone: a quote that is never closed costs its own row, not all rows up to the next quote."""
    return next(csv.reader((line,), strict=True), [])


def _oracle_rows(path: Path) -> Iterator[Row]:
    stream, raw = open_bytes(path)
    number = 0
    with raw, stream:
        left = b""
        while True:
            try:
                chunk = stream.read(_CHUNK_BYTES)
            except (OSError, EOFError, zlib.error) as error:
                raise SourceError(f"{path}: after row {number}: {first_line(error)}") from error
            if not chunk:
                break
            chunk = left + chunk
            whole = len(chunk) - len(chunk) % ORACLE.size
            at = raw.tell()
            for begin in range(0, whole, ORACLE.size):
                seconds, identity, size, _ = ORACLE.unpack_from(chunk, begin)
                number += 1
                values = {"t": seconds, "lfn": f"/{identity}", "size": size, "bytes_read": size}
                yield Row(number, at, values, chunk[begin : begin + ORACLE.size])
            left = chunk[whole:]
    if left:
        wrong = ParseError("row", f"{len(left)} bytes are left, and a request has {ORACLE.size}")
        yield Row(number + 1, total(path, "oracle"), wrong, left)

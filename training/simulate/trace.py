"""An access trace as arrays: what a simulation runs on.

Every row is checked, and the first that cannot be used is an error that names it: a simulation of a part of the rows would have figures of
its own. Names become dense numbers in the order of their first request, so a policy needs no map from names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smartcache import traces
from smartcache.traces import SourceError

from .policies import Requests

#: What all requests of a trace may ask for in sum: the counters are 64-bit, and written and deleted bytes are of that order.
MAX_TOTAL_BYTES = 1 << 62
_ORACLE = np.dtype([("t", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])


@dataclass(frozen=True)
class Trace:
    """The requests in the order of their times. ``objects`` are dense, from 0; ``sizes`` bytes at each request; ``times`` seconds."""

    name: str
    path: Path
    digest: str
    objects: NDArray[np.uint32]
    sizes: NDArray[np.int64]
    times: NDArray[np.float64]
    #: By file: dense numbers of the folders that their names begin with, as datasets; of names that are numbers, one for all.
    groups: NDArray[np.uint32]
    #: Number of different names.
    files: int
    #: The sum of their sizes; of a file whose size changes, the largest.
    unique_bytes: int
    #: Files whose size is not the same at each request.
    resized: int
    #: What each request read of its file; -1 where the trace does not know.
    bytes_read: NDArray[np.int64]
    #: The files' names, one after the other, and where each ends.
    name_text: NDArray[np.uint8]
    name_ends: NDArray[np.int64]

    def requests(self) -> Requests:
        """What a policy is shown."""
        return Requests(self.objects, self.sizes, self.times, self.groups, self.bytes_read, self.name_text, self.name_ends)

    def __len__(self) -> int:
        return len(self.objects)

    def capacity(self, fraction: float) -> int:
        """The bytes of a cache of this share of the unique bytes, at least one."""
        return max(1, round(fraction * self.unique_bytes))


def read(path: Path, sort: bool = False) -> Trace:
    """The trace in a Parquet, CSV or oracleGeneral file; with ``sort``, requests are put in the order of their times, ties as they stand.

    Raises :class:`~smartcache.traces.SourceError`, with file, row, rule, value and the way out.
    """
    kind = traces.kind_of(path)
    if not kind:
        raise SourceError(f"{path}: its name does not tell what it is; known are .parquet, .csv and names with oracleGeneral")
    try:
        digest = traces.digest(path)
        raw_times, names, raw_sizes, raw_read = _oracle(path) if kind == "oracle" else _table(path, kind)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {traces.first_line(error)}") from error
    if not len(names):
        raise SourceError(f"{path}: has no requests")
    times, sizes = _seconds(path, raw_times), _bytes(path, raw_sizes, "size")
    read = np.full(len(sizes), -1, np.int64) if raw_read is None else _known(path, raw_read)
    objects, values = _dense(path, names)
    groups, file_names = _groups(values), values
    order = _order(path, times, sort)
    if order is not None:
        times, sizes, objects, read = times[order], sizes[order], objects[order], read[order]
        # Dense in the order of the first request again, as if the file had been sorted.
        objects, values = _dense(path, traces.pyarrow().array(objects))
        groups, file_names = groups[values.to_numpy()], file_names.take(values)
    largest, smallest = _sizes_of_files(objects, sizes)
    if not largest.any():
        raise SourceError(f"{path}: every size is 0: there is nothing that a cache could be too small for")
    text, ends = _text(file_names)
    return Trace(
        name=path.name.partition(".")[0],
        path=path,
        digest=digest,
        objects=objects,
        sizes=sizes,
        times=times,
        groups=groups,
        files=len(values),
        unique_bytes=int(largest.sum()),
        resized=int((largest != smallest).sum()),
        bytes_read=read,
        name_text=text,
        name_ends=ends,
    )


def _table(path: Path, kind: str) -> tuple[Any, Any, Any, Any]:
    """Times, names, sizes and, where there are any, bytes read as Arrow columns."""
    arrow = traces.pyarrow()
    try:
        table = _parquet(path) if kind == "parquet" else _csv(path)
    except (arrow.ArrowException, OSError, EOFError, ValueError) as error:
        raise SourceError(f"{path}: {traces.first_line(error)}") from error
    moment = "time" if "time" in table.column_names else "t"
    for name in (moment, "lfn", "size"):
        if table[name].null_count:
            row = int(np.argmax(table[name].is_null().to_numpy())) + 1
            raise SourceError(f"{path}: row {row}: {name} is missing")
    return table[moment], table["lfn"], table["size"], table["bytes_read"] if "bytes_read" in table.column_names else None


def _parquet(path: Path) -> Any:
    file = traces.open_parquet(path)
    names = _needed(traces.require_columns(path, file.schema_arrow.names))
    return file.read(columns=names)


def _csv(path: Path) -> Any:
    from pyarrow import binary, string
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

    stream, raw = traces.open_bytes(path)
    with raw, stream:
        first = stream.readline(traces.MAX_LINE_BYTES).decode("utf-8", "replace")
    header = [name.strip().strip('"') for name in first.removeprefix("\ufeff").split(",")]
    names = _needed(traces.require_columns(path, [name for name in header if name]))
    stream, raw = traces.open_bytes(path)
    with raw, stream:
        return read_csv(
            stream,
            ReadOptions(column_names=header, skip_rows=1),
            ParseOptions(newlines_in_values=True),
            ConvertOptions(
                # As text: a column's type is not to depend on its first rows, and an error here names its row.
                column_types={name: binary() if name == "lfn" else string() for name in names},
                include_columns=names,
                null_values=[""],
                strings_can_be_null=True,
            ),
        )


def _needed(names: list[str]) -> list[str]:
    return [name for name in names if name in ("t", "time", "lfn", "size", "bytes_read")]


def _oracle(path: Path) -> tuple[Any, Any, Any, Any]:
    stream, raw = traces.open_bytes(path)
    try:
        with raw, stream:
            content = stream.read()
    except (OSError, EOFError) as error:
        raise SourceError(f"{path}: {traces.first_line(error)}") from error
    left = len(content) % _ORACLE.itemsize
    if left:
        row = len(content) // _ORACLE.itemsize + 1
        raise SourceError(f"{path}: row {row}: {left} bytes are left, and a request has {_ORACLE.itemsize}; is the file cut?")
    rows = np.frombuffer(content, _ORACLE)
    array = traces.pyarrow().array
    return array(rows["t"].astype(np.int64)), array(rows["id"].copy()), array(rows["size"].astype(np.int64)), None


def _seconds(path: Path, column: Any) -> NDArray[np.float64]:
    arrow = traces.pyarrow()
    kinds = arrow.types
    if kinds.is_timestamp(column.type):
        return np.asarray(column.cast(arrow.timestamp("us"), safe=False).cast("int64").to_numpy() / 1e6)
    if _is_text(column.type):
        try:
            times = column.cast(arrow.string()).cast(arrow.float64()).to_numpy()
        except arrow.ArrowException:
            texts = column.to_pylist()
            moments = [traces.unix_us(text) for text in texts]
            if None in moments:
                raise _wrong(path, "the time", "seconds or ISO 8601", texts, moments.index(None)) from None
            times = np.array(moments, np.float64) / 1e6
    elif kinds.is_integer(column.type) or kinds.is_floating(column.type) or kinds.is_decimal(column.type):
        times = column.cast(arrow.float64(), safe=False).to_numpy()
    else:
        raise SourceError(f"{path}: the time must be numbers, texts or timestamps, not {column.type}")
    finite = np.isfinite(times)
    if not finite.all():
        raise _wrong(path, "the time", "a finite number", times, int(np.argmin(finite)))
    return np.asarray(times)


def _known(path: Path, column: Any) -> NDArray[np.int64]:
    """Bytes read; -1 where the trace does not know."""
    unknown = column.is_null().to_numpy()
    read = np.full(len(unknown), -1, np.int64)
    if not unknown.all():
        read[~unknown] = _bytes(path, column.drop_null(), "bytes_read", np.flatnonzero(~unknown))
    return read


def _bytes(path: Path, column: Any, what: str, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """A column of bytes; ``rows``: which of the trace they are, where not all."""
    arrow = traces.pyarrow()
    kinds, rule = arrow.types, f"an integer of 0 to {MAX_TOTAL_BYTES}"
    if _is_text(column.type):
        column = _numbers(path, column, rule, what, rows)
    if kinds.is_floating(column.type) or kinds.is_decimal(column.type):
        values = column.cast(arrow.float64(), safe=False).to_numpy()
        # Integers of a float are exact so far.
        fits = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2.0**53)
    elif kinds.is_integer(column.type):
        values = column.to_numpy()
        fits = values <= MAX_TOTAL_BYTES
    else:
        raise SourceError(f"{path}: {what} must be integers, not {column.type}")
    fits &= values >= 0
    if not fits.all():
        first = int(np.argmin(fits))
        raise _wrong(path, what, rule, values, first, rows)
    sizes = values.astype(np.int64)
    if sizes.astype(np.float64).sum() >= MAX_TOTAL_BYTES:
        largest = int(np.argmax(sizes))
        raise SourceError(
            f"{path}: {what} of all requests must add up to less than {MAX_TOTAL_BYTES}; the largest is {sizes[largest]}, "
            f"row {_row(largest, rows)}"
        )
    return np.asarray(sizes)


def _numbers(path: Path, column: Any, rule: str, what: str, rows: NDArray[np.int64] | None) -> Any:
    arrow = traces.pyarrow()
    for kind in (arrow.int64(), arrow.float64()):
        try:
            return column.cast(arrow.string()).cast(kind)
        except arrow.ArrowException:
            continue
    texts = column.to_pylist()
    raise _wrong(path, what, rule, texts, next(row for row, text in enumerate(texts) if not _is_number(text)), rows)


def _is_number(text: str) -> bool:
    try:
        traces.pyarrow().array([text]).cast("float64")
    except traces.pyarrow().ArrowException:
        return False
    return True


def _dense(path: Path, names: Any) -> tuple[NDArray[np.uint32], Any]:
    """Numbers in the order of first appearance, and what they stand for."""
    arrow = traces.pyarrow()
    kinds = arrow.types
    kind = names.type.value_type if kinds.is_dictionary(names.type) else names.type
    if not (_is_text(kind) or kinds.is_integer(kind)):
        raise SourceError(f"{path}: lfn must be texts or integers, not {kind}")
    if kinds.is_dictionary(names.type):
        names = names.cast(kind)
    encoded = names.dictionary_encode()
    if isinstance(encoded, arrow.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
        if isinstance(encoded, arrow.ChunkedArray):
            encoded = encoded.chunk(0)
    objects = encoded.indices.to_numpy(zero_copy_only=False).astype(np.uint32)
    values = encoded.dictionary
    if _is_text(kind):
        empty = values.cast(arrow.large_binary()).index(arrow.scalar(b"", arrow.large_binary())).as_py()
        if empty >= 0:
            raise SourceError(f"{path}: row {int(np.argmax(objects == empty)) + 1}: lfn must not be empty")
    return objects, values


def _text(names: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All names as bytes, and where each ends."""
    arrow = traces.pyarrow()
    kind = names.type
    binary = (names if _is_text(kind) else names.cast(arrow.string())).cast(arrow.large_binary())
    lengths = arrow.compute.binary_length(binary).to_numpy(zero_copy_only=False)
    return np.frombuffer(b"".join(binary.to_pylist()), np.uint8), np.cumsum(lengths, dtype=np.int64)


def _groups(names: Any) -> NDArray[np.uint32]:
    """Of each name the number of its folder: all up to the last slash."""
    if not _is_text(names.type):
        return np.zeros(len(names), np.uint32)
    arrow = traces.pyarrow()
    from pyarrow.compute import replace_substring_regex

    folders = replace_substring_regex(names.cast(arrow.large_binary()), pattern=r"[^/]*\z", replacement="", max_replacements=1)
    return np.asarray(folders.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.uint32))


def _order(path: Path, times: NDArray[np.float64], sort: bool) -> NDArray[np.int64] | None:
    back = np.flatnonzero(times[1:] < times[:-1])
    if not len(back):
        return None
    if sort:
        return np.asarray(np.argsort(times, kind="stable"))
    row = int(back[0]) + 1
    raise SourceError(
        f"{path}: row {row + 1}: its time {times[row]} is before that of row {row}, {times[row - 1]} ({len(back)} such rows); "
        "sort the trace, or let --sort do it"
    )


def _sizes_of_files(objects: NDArray[np.uint32], sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The largest and the smallest size of each file."""
    order = np.argsort(objects, kind="stable")
    ordered = sizes[order]
    starts = np.flatnonzero(np.diff(objects[order], prepend=np.uint32(0xFFFFFFFF)))
    return np.maximum.reduceat(ordered, starts), np.minimum.reduceat(ordered, starts)


def _is_text(kind: Any) -> bool:
    kinds = traces.pyarrow().types
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind))


def _row(place: int, rows: NDArray[np.int64] | None) -> int:
    """The number of a row, from 1, of what is at a place of a column; ``rows``: which of the trace are in it, where not all."""
    return (place if rows is None else int(rows[place])) + 1


def _wrong(path: Path, what: str, rule: str, values: Any, place: int, rows: NDArray[np.int64] | None = None) -> SourceError:
    value = values[place]
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return SourceError(f"{path}: row {_row(place, rows)}: {what} must be {rule}, not {text[:60]}")

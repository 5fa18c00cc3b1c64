"""Files of access traces: which formats there are, how a file of each is opened, and what must be in it.

Parquet, CSV, and libCacheSim's oracleGeneral; the last two also with .gz and .zst. Whoever reads rows or whole columns of one begins here.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import io
import struct
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

#: What an access is made of. One of the first two; ``lfn`` and ``size``; the last two may be absent.
COLUMNS = ("time", "t", "lfn", "size", "bytes_read", "user")
#: oracleGeneral: seconds, object, its size in bytes, the number of requests to the next one of it (not used).
ORACLE = struct.Struct("<IQIq")

#: No line or field is longer, or it is none.
MAX_LINE_BYTES = 1 << 20


class SourceError(Exception):
    """A file that cannot be read as what it was said to be; the text names it, the rule and the way out."""


def kind_of(path: Path) -> str:
    """``parquet``, ``csv`` or ``oracle`` by the file's name; empty where that does not tell."""
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    if "oraclegeneral" in name:
        return "oracle"
    return {".parquet": "parquet", ".csv": "csv"}.get(Path(name).suffix, "")


def digest(path: Path) -> str:
    """A hash of the whole file, 16 hexadecimal digits: what its rows' ids are made of."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def total(path: Path, kind: str) -> int:
    """Rows of a Parquet file, bytes of another."""
    return int(open_parquet(path).metadata.num_rows) if kind == "parquet" else path.stat().st_size


def open_bytes(path: Path) -> tuple[IO[bytes], IO[bytes]]:
    """The file's bytes, decompressed where its name ends in .gz or .zst; and the file itself, whose position tells the progress."""
    raw = path.open("rb")
    if path.suffix == ".gz":
        return gzip.open(raw), raw  # type: ignore[return-value]
    if path.suffix == ".zst":
        return io.BufferedReader(pyarrow().CompressedInputStream(raw, "zstd")), raw
    return raw, raw


def pyarrow() -> Any:
    """The module, or :class:`SourceError` that says how to get it."""
    try:
        import pyarrow as module
        import pyarrow.parquet
    except ImportError as error:
        raise SourceError("Parquet and .zst need pyarrow: pip install 'smartcache[import]' (or [simulate])") from error
    return module


def open_parquet(path: Path) -> Any:
    """The file, its footer read; :class:`SourceError` where it is no Parquet."""
    module = pyarrow()
    try:
        return module.parquet.ParquetFile(path)
    except parquet_errors() as error:
        raise SourceError(f"{path}: no Parquet file: {first_line(error)}") from error


def column_names(path: Path, file: Any) -> list[str]:
    """The columns of a file that :func:`open_parquet` has opened; :class:`SourceError` where its schema cannot be read."""
    try:
        return list(file.schema_arrow.names)
    except parquet_errors() as error:
        raise SourceError(f"{path}: its schema cannot be read: {first_line(error)}") from error


def parquet_errors() -> tuple[type[Exception], ...]:
    """What pyarrow raises on a damaged file: its own exceptions, and Python's where names in it are no text or do not fit each other."""
    return (OSError, ValueError, LookupError, pyarrow().ArrowException)


class Microseconds(int):
    """A time that was a timestamp in its file: microseconds of Unix time."""


def unix_us(value: object) -> int | None:
    """Microseconds of Unix time from seconds (number or text), ISO 8601 (UTC where it does not say) or a timestamp; None for others."""
    if isinstance(value, Microseconds):
        return int(value)
    if isinstance(value, str):
        text, value = value.strip(), None
        try:
            value = float(text)
        except ValueError:
            try:
                moment = datetime.fromisoformat(text)
                moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                return round(moment.timestamp() * 1_000_000)
            except (ValueError, OverflowError):
                return None
    if type(value) is float and abs(value) < 2**63:  # so no NaN either
        return round(value * 1_000_000)
    return value * 1_000_000 if type(value) is int else None


def lines(path: Path, stream: IO[bytes]) -> Iterator[bytes]:
    """Lines with their ends. What is longer than :data:`MAX_LINE_BYTES` comes in parts of that size."""
    number = 0
    while True:
        try:
            line = stream.readline(MAX_LINE_BYTES)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise SourceError(f"{path}: after line {number}: {first_line(error)}") from error
        if not line:
            return
        number += 1
        yield line


def require_columns(path: Path, present: list[str]) -> list[str]:
    """The known columns that are there; :class:`SourceError` where one is missing that must be, or is there twice."""
    twice = [name for name in COLUMNS if present.count(name) > 1]
    if twice:
        raise SourceError(f"{path}: column {', '.join(twice)} is there more than once; give each a name of its own")
    missing = [name for name in ("lfn", "size") if name not in present]
    if "t" not in present and "time" not in present:
        missing.append("time (or t)")
    if missing:
        near = [f"{found!r} by {name}" for name in (each.partition(" ")[0] for each in missing) for found in _near(name, present)]
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise SourceError(f"{path}: column {', '.join(missing)} is missing; it has {', '.join(present) or 'none'}{hint}")
    return [name for name in COLUMNS if name in present and not (name == "t" and "time" in present)]


def _near(name: str, present: list[str]) -> list[str]:
    known = {each.lower(): each for each in present if each not in COLUMNS}
    return [known[each] for each in difflib.get_close_matches(name, known, n=1) or [each for each in known if name in each.split("_")][:1]]


def first_line(error: BaseException) -> str:
    """What a library says, without the rest."""
    return (str(error).splitlines() or [type(error).__name__])[0]

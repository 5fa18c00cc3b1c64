"""Access traces: one row becomes one ``xcache.fstream.v1`` record, the open of a file by a client, which the access table is made of.

A trace knows one moment of an access. It is both ends of the open's window, and the close is null. ``record_id`` is
``cache/import/HASH/ROW`` with a hash of the whole file: the same file gives the same ids again. Pure functions: thread-safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smartcache.traces import unix_us

from .errors import ParseError
from .jsontext import is_text
from .output import Record
from .pseudonym import Pseudonyms

STREAM = "fstream"
#: What the stream takes for a time: the years 2000 to 2100, and no later than a day ahead of the clock of who reads it.
EARLIEST_US = 946_684_800_000_000
LATEST_US = 4_102_444_800_000_000
AHEAD_US = 86_400_000_000
#: What it takes for a number of bytes.
MOST_BYTES = 1 << 50
_QUOTED = 60


def parse(values: Mapping[str, Any], start_us: int | None, prefix: str, pseudonyms: Pseudonyms, now_us: int) -> Record:
    """The record of a row, without ``record_id``, ``cache`` and ``recv_us``; :class:`ParseError` names the column, the rule and the value.

    ``t`` alone counts from ``start_us``; ``time`` is Unix time in seconds, ISO 8601 or a timestamp. ``prefix`` is put before the LFN.
    """
    time_us = _time(values, start_us, now_us)
    lfn = values.get("lfn")
    lfn = str(lfn) if type(lfn) is int else lfn
    if not is_text(lfn) or not lfn:
        raise ParseError("field", f"lfn must be text that is not empty, not {quoted(lfn)}")
    size = _count(values, "size")
    if size is None:
        raise ParseError("field", "size is missing")
    read = _count(values, "bytes_read")
    user = values.get("user")
    return {
        "lfn": prefix + lfn,
        "open_lo_us": time_us,
        "open_hi_us": time_us,
        "close_lo_us": None,
        "close_hi_us": None,
        "size": size,
        "b_read": read,
        "b_readv": None if read is None else 0,
        "b_write": None if read is None else 0,
        "n_read": None,
        "n_readv": None,
        "forced": None,
        "user": None if user is None else pseudonyms.of(str(user)),
        "client_host": None,
        "app": None,
    }


def quoted(value: object) -> str:
    """A value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _QUOTED else text[:_QUOTED] + "…"


def check_past(name: str, time_us: int, value: object, now_us: int) -> None:
    """Raise :class:`ParseError` where ``time_us``, read from ``value``, is later than any clock can be ahead of ``now_us``."""
    if time_us > now_us + AHEAD_US:
        raise ParseError("field", f"{name} must not be in the future, as {quoted(value)} is")


def _time(values: Mapping[str, Any], start_us: int | None, now_us: int) -> int:
    name = "time" if "time" in values else "t"
    value = values.get(name)
    time_us = unix_us(value)
    if time_us is None:
        raise ParseError("field", f"{name} must be a time, not {quoted(value)}")
    if name == "t":
        time_us += start_us or 0
    if not EARLIEST_US <= time_us <= LATEST_US:
        hint = ""
        if name == "time":
            hint = "; times that count from the start of the trace belong into a column t"
        elif start_us is None:
            hint = "; where times count from the start of the trace, say when that was with --start"
        raise ParseError("field", f"{name} must be in the years 2000 to 2100, not {quoted(value)}{hint}")
    check_past(name, time_us, value, now_us)
    return time_us


def _count(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    number: object = value
    if isinstance(value, str):
        try:
            number = int(value) if len(value) < _QUOTED else None
        except ValueError:
            try:
                number = float(value)
            except ValueError:
                number = None
    if type(number) is float and number.is_integer() and abs(number) < 2**53:
        number = int(number)
    if type(number) is not int or not 0 <= number <= MOST_BYTES:
        raise ParseError("field", f"{name} must be an integer of 0 to 2^50, not {quoted(value)}")
    return number

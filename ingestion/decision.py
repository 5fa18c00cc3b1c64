"""The plugin's decision log: one JSON datagram an answer becomes one ``xcache.decision.v1`` record.

The check is a table of types and ranges, an order of magnitude cheaper than a schema validator; a test holds it against the schema.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .counters import Counters
from .errors import ParseError
from .jsontext import INT64_MAX, decode_object, is_text
from .numbering import Numbering
from .output import Output, Record, quotable
from .sequence import Sequences

STREAM = "decision"
VERSION = 1
ANSWERS = frozenset(("admit", "bypass", "evict"))


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INT64_MAX


def _real(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= INT64_MAX and math.isfinite(value)


def _share(value: Any) -> bool:
    return _real(value) and 0 <= value <= 1


_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("cache", lambda v: is_text(v) and v != "", "text that is not empty"),
    ("boot_us", _count, "an integer of 0 or more"),
    ("seq", lambda v: _count(v) and v > 0, "an integer of 1 or more"),
    ("t_us", _count, "an integer of 0 or more"),
    ("lfn", lambda v: is_text(v) and v != "", "text that is not empty"),
    ("answer", lambda v: type(v) is str and v in ANSWERS, "admit, bypass or evict"),
    ("reason", lambda v: is_text(v) and v != "", "text that is not empty"),
    ("score", lambda v: v is None or _share(v), "null or a number from 0 to 1"),
    ("threshold", lambda v: v is None or _share(v), "null or a number from 0 to 1"),
    ("probability", _share, "a number from 0 to 1"),
    ("model", is_text, "text"),
    ("challenger_model", lambda v: v is None or is_text(v), "null or text"),
    ("challenger_answer", lambda v: v is None or (type(v) is str and v in ANSWERS), "null, admit, bypass or evict"),
    ("challenger_score", lambda v: v is None or _share(v), "null or a number from 0 to 1"),
    ("latency_us", lambda v: _real(v) and v >= 0, "a number of 0 or more"),
    ("on_disk", lambda v: type(v) is bool, "true or false"),
    ("size", lambda v: _count(v) or (type(v) is int and v == -1), "-1 or an integer of 0 or more"),
    ("fill", lambda v: _real(v) and (v == -1 or 0 <= v <= 1), "-1 or a number from 0 to 1"),
    ("read_share", lambda v: v is None or (_real(v) and (v == -1 or 0 <= v <= 4)), "null, -1 or a number from 0 to 4"),
    ("history_scanned", lambda v: v is None or type(v) is bool, "null, true or false"),
    ("history_boot_us", lambda v: v is None or _count(v), "null or an integer of 0 or more"),
    ("history_seq", lambda v: v is None or _count(v), "null or an integer of 0 or more"),
    ("side_table", lambda v: v is None or (_count(v) and v > 0), "null or an integer of 1 or more"),
)
_KNOWN = frozenset((*(name for name, _, _ in _RULES), "v", "features"))


def parse(raw: bytes) -> Record:
    """The record in a datagram, without ``recv_us``; :class:`ParseError` names the field and the rule.

    Fields that are not known yet are left out. Bytes that are not UTF-8 become U+FFFD.
    """
    fields = decode_object(raw.decode("utf-8", "replace"))
    if fields.get("v") != VERSION:
        raise ParseError("version", f"v must be {VERSION}")
    record: Record = {"record_id": ""}
    for name, rule, meaning in _RULES:
        value = fields.get(name)
        if not rule(value):
            raise ParseError("field", f"{name} must be {meaning}")
        record[name] = value
    features = fields.get("features")
    if features is not None and not (type(features) is list and all(_real(each) for each in features)):
        raise ParseError("field", "features must be null or a list of numbers")
    record["features"] = features
    record["record_id"] = f"{record['cache']}/{record['boot_us']}/{record['seq']}"
    if not fields.keys() <= _KNOWN:
        record["_unknown"] = len(fields.keys() - _KNOWN)
    return record


class DecisionHandler:
    """Datagrams of any number of plugins to ``xcache.decision.v1`` records."""

    def __init__(self, output: Output, counters: Counters, numbering: Numbering | None = None) -> None:
        self._output = output
        self._counters = counters
        self._sequences = Sequences(STREAM, 0, 1, counters, numbering)

    def handle(self, raw: bytes, source: str, recv_us: int) -> None:
        """See :class:`.output.Handler`."""
        try:
            record = parse(raw)
        except ParseError as error:
            self._counters.add("dead_letters", STREAM, error.cause)
            self._output.dead_letter(STREAM, str(error), quotable(raw, b'{"v":'), recv_us)
            return
        if not self._sequences.is_new((record["cache"], record["boot_us"]), record["seq"], record["t_us"], record["boot_us"]):
            return
        unknown = record.pop("_unknown", 0)
        if unknown:
            self._counters.add("records_ignored", STREAM, "unknown_field", unknown)
        record["recv_us"] = recv_us
        self._counters.add("records_parsed", STREAM)
        self._output.record(STREAM, record)

    def close(self, recv_us: int) -> None:
        """Nothing waits here."""

"""pfc's g-stream: one JSON header line, one JSON record a line, a closing NUL; ``file_close`` records become ``xcache.pfc.v1``.

The server writes the LFN into the record **without escaping it**. So the LFN is not read as JSON: it is what stands between
``"lfn":"`` and the last ``","size":`` of the line, byte by byte, and only the rest is JSON. That is right for quotes, backslashes and
control characters alike. A line that does not start with ``{"`` continues the one before it (a line feed within an LFN), and so does one
that does where that one's LFN has not ended. So a file's name cannot forge the other fields of its record; one with a line feed and the
beginning of a record behind it is taken for two, as nothing tells them apart.

Nearly all records look the same; :mod:`.gstream_usual` turns those from text to text, and leaves all others to :func:`parse_record`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from .counters import Counters
from .errors import ParseError
from .gstream_usual import UsualRecords
from .jsontext import INT64_MAX, decode_object, is_text
from .numbering import Numbering
from .output import Output, Record, quotable
from .sequence import Sequences

STREAM = "gstream"
#: The server's packet numbers run from 0 to 999.
PSEQ_MODULUS = 1000
#: Of the first packet of a server's life.
PSEQ_FIRST = 1
#: ``gs.type`` of pfc's stream; others (throttle, TPC, …) may be sent to the same port.
PFC = "C"
#: As XrdXrootdGStream writes it.
_PFC_HEADER = b'"gs":{"type":"C",'

_BETWEEN_RECORDS = re.compile(rb'\n(?=\{")')
_PREFIX = b'{"event":"file_close","lfn":"'
_AFTER_LFN = b'","size":'
_COUNTS = ("size", "blk_size", "n_blks", "n_blks_done", "access_cnt", "b_hit", "b_miss", "b_bypass", "n_cks_errs")
#: Since 5.7.2.
_NEW_COUNTS = ("b_todisk", "b_prefetch")
_TIMES = ("attach_t", "detach_t")
_KNOWN = frozenset((*_COUNTS, *_NEW_COUNTS, *_TIMES, "remotes", "event", "lfn"))
#: How deeply an unknown field may be nested, and how many characters of one are kept as text.
_DEPTH, _TEXT = 4, 4096
#: Seconds of Unix time beyond which microseconds do not fit; also far enough in the future (year 36812).
_MAX_TIME_S = 2**40


class Server(NamedTuple):
    """Who sent a packet. ``cache`` is host:port, empty where the header does not say (``nohdr``)."""

    cache: str
    start_s: int
    instance: str
    version: str
    site: str


class Packet(NamedTuple):
    """A parsed packet: ``code`` ``=`` (identity, no lines) or ``g``; ``lines`` are its records, not parsed yet."""

    code: str
    pseq: int
    server: Server
    sid: int
    kind: str
    begin_s: int
    lines: list[bytes]
    truncated: bool


def parse_packet(raw: bytes) -> Packet:
    """Read the header and part the lines. :class:`ParseError` where there is no header to go by.

    A packet without its closing NUL was cut: ``truncated`` is set, and its lines up to there are given.
    """
    truncated = not raw.endswith(b"\0")
    head, _, body = raw.rstrip(b"\0").partition(b"\n")
    header = decode_object(head.decode("utf-8", "replace"))
    code, source, stream = header.get("code"), header.get("src", {}), header.get("gs", {})
    if code not in ("=", "g") or type(source) is not dict or type(stream) is not dict:
        raise ParseError("header", "code must be '=' or 'g', src and gs objects")
    host, port = source.get("host", ""), source.get("port", 0)
    if not is_text(host) or type(port) is not int or not 0 <= port <= 65535:
        raise ParseError("header", "src.host must be text, src.port a port")
    server = Server(
        f"{host}:{port}" if host and port else "",
        _integer(header, "stod", _MAX_TIME_S),
        *(_text(source, name) for name in ("inst", "ver", "site")),
    )
    pseq, sid = _integer(header, "pseq", PSEQ_MODULUS - 1), _integer(header, "sid", INT64_MAX)
    if code == "=":
        return Packet(code, pseq, server, sid, "", 0, [], truncated)
    return Packet(code, pseq, server, sid, _text(stream, "type"), _integer(stream, "tbeg", _MAX_TIME_S), _lines(body), truncated)


def parse_record(line: bytes) -> Record:
    """The fields of one ``file_close``, named as in ``xcache.pfc.v1``. :class:`ParseError` where it is broken or (``event``) another event.

    Bytes of the LFN that are not UTF-8 become U+FFFD. Fields that are not known yet are kept under ``extra``.
    """
    if line.startswith(_PREFIX):
        end = line.rfind(_AFTER_LFN)
        if end < len(_PREFIX):
            raise ParseError("record", "no size after the lfn")
        lfn = line[len(_PREFIX) : end].decode("utf-8", "replace")
        fields = decode_object("{" + line[end + 2 :].decode("utf-8", "replace"))
    else:
        fields = decode_object(line.decode("utf-8", "replace"))
        if fields.get("event") != "file_close":
            raise ParseError("event", "it is no file_close; an event that is not known yet is kept here")
        lfn = fields.get("lfn", "")
        if not is_text(lfn):
            raise ParseError("record", "lfn must be text")
    if not lfn:
        raise ParseError("record", "the lfn is empty")
    record: Record = {"lfn": lfn}
    for name in _COUNTS:
        value = fields.get(name)
        if type(value) is not int or not 0 <= value <= INT64_MAX:
            raise ParseError("record", f"{name} must be an integer of 0 or more")
        record[name] = value
    for name in _NEW_COUNTS:
        value = fields.get(name)
        if value is not None and (type(value) is not int or not 0 <= value <= INT64_MAX):
            raise ParseError("record", f"{name} must be an integer of 0 or more")
        record[name] = value
    record["attach_us"] = _integer(fields, "attach_t", _MAX_TIME_S) * 1_000_000
    record["detach_us"] = _integer(fields, "detach_t", _MAX_TIME_S) * 1_000_000
    remotes = fields.get("remotes")
    if type(remotes) is not list or not all(type(remote) is str for remote in remotes):
        raise ParseError("record", "remotes must be a list of texts")
    record["remotes"] = remotes
    if not fields.keys() <= _KNOWN:
        record["extra"] = {name.encode("utf-8", "replace").decode(): _kept(fields[name]) for name in sorted(fields.keys() - _KNOWN)}
    return record


class GStreamHandler:
    """Packets of any number of caches to ``xcache.pfc.v1`` records."""

    #: Caches whose identity is remembered, for those that do not state it in each packet.
    MAX_IDENTITIES = 4096

    def __init__(
        self,
        output: Output,
        counters: Counters,
        numbering: Numbering | None = None,
        encoded: Callable[[str, bytes, bytes], None] | None = None,
    ) -> None:
        """``encoded(stream, key, value)`` takes usual records as they are sent, in place of ``output.record``, where it is given."""
        self._output = output
        self._encoded = encoded
        self._counters = counters
        self._sequences = Sequences(STREAM, PSEQ_MODULUS, PSEQ_FIRST, counters, numbering)
        self._identities: dict[tuple[str, int, int], Server] = {}

    def handle(self, raw: bytes, source: str, recv_us: int) -> None:
        """See :class:`.output.Handler`."""
        try:
            packet = parse_packet(raw)
        except ParseError as error:
            # Of pfc's own all of it: its records, which can be had from there, name files only. Else the header alone: the records of
            # other g-streams, as of third-party copies, have users in them.
            kept = quotable(raw, b'{"code":')
            head = kept.partition(b"\n")[0]
            self._dead_letter(error, kept if _PFC_HEADER in head else head, recv_us)
            return
        server = self._identify(packet, source)
        if server is None:
            reason = "the header does not name host and port, and no identity came; use `fullhdr` in xrootd.mongstream"
            self._dead_letter(ParseError("no_identity", reason), raw if packet.kind == PFC else raw.partition(b"\n")[0], recv_us)
            return
        if packet.code == "=":
            self._counters.add("records_ignored", STREAM, "ident")
            return
        if packet.kind != PFC:
            self._counters.add("records_ignored", STREAM, "other_gstream")
            return
        sender = (server.cache, server.start_s, packet.sid)
        if not self._sequences.is_new(sender, packet.pseq, hash(raw), server.start_s * 1_000_000):
            return
        if packet.truncated:
            cut = ParseError("truncated", "no closing NUL: the end of this packet is lost")
            self._dead_letter(cut, packet.lines[-1] if packet.lines else b"", recv_us)
        self._emit(packet, server, recv_us)

    def close(self, recv_us: int) -> None:
        """Nothing waits here."""

    def _emit(self, packet: Packet, server: Server, recv_us: int) -> None:
        cache = server.cache
        if not packet.lines and not packet.truncated:
            self._counters.add("records_ignored", STREAM, "empty_packet")
        # tbeg belongs into the id: pseq alone comes round again after 1000 packets.
        prefix = f"{cache}/{server.start_s}/{packet.sid}/{packet.begin_s}/{packet.pseq}/"
        start_us = server.start_s * 1_000_000
        parsed = 0
        emit = self._encoded
        usual = UsualRecords(prefix, cache, start_us, server.instance, server.version, server.site, recv_us)
        for index, line in enumerate(packet.lines):
            if emit is not None:
                encoded = usual.encode(line, index)
                if encoded is not None:
                    parsed += 1
                    emit(STREAM, *encoded)
                    continue
            try:
                fields = parse_record(line)
            except ParseError as error:
                self._dead_letter(error, line, recv_us)
                continue
            parsed += 1
            self._output.record(
                STREAM,
                {
                    "record_id": f"{prefix}{index}",
                    "cache": cache,
                    **fields,
                    "server_start_us": start_us,
                    "instance": server.instance,
                    "version": server.version,
                    "site": server.site,
                    "recv_us": recv_us,
                },
            )
        self._counters.add("records_parsed", STREAM, count=parsed)

    def _identify(self, packet: Packet, source: str) -> Server | None:
        server = packet.server
        key = (source, server.start_s, packet.sid)
        if server.cache:
            if packet.code == "=":
                self._identities[key] = server
                if len(self._identities) > self.MAX_IDENTITIES:
                    del self._identities[next(iter(self._identities))]
            return server
        return self._identities.get(key)

    def _dead_letter(self, error: ParseError, raw: bytes, recv_us: int) -> None:
        self._counters.add("dead_letters", STREAM, error.cause)
        self._output.dead_letter(STREAM, str(error), raw, recv_us)


def _lines(body: bytes) -> list[bytes]:
    """The records. An LFN may have line feeds, and what looks like JSON behind them: then the record's rest is in the lines that follow."""
    if not body:
        return []
    parts = _BETWEEN_RECORDS.split(body)
    if all(_AFTER_LFN in part for part in parts):
        return parts
    lines: list[bytes] = []
    record: list[bytes] = []  # the parts of the record at hand; joined once
    within_lfn = False
    for part in parts:
        starts = part.startswith(_PREFIX)
        if record and (starts or not within_lfn):
            lines.append(b"\n".join(record))
            record = []
        if not record:
            within_lfn = starts
        record.append(part)
        within_lfn = within_lfn and _AFTER_LFN not in part
    lines.append(b"\n".join(record))
    return lines


def _integer(fields: dict[str, Any], name: str, maximum: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= maximum:
        raise ParseError("record" if name.endswith("_t") else "header", f"{name} must be an integer from 0 to {maximum}")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not is_text(value):
        raise ParseError("header", f"{name} must be text")
    return str(value)


def _kept(value: Any) -> Any:
    """A value of a field that is not known: as it is, or as its JSON text where a consumer could not read that."""
    if _is_readable(value, _DEPTH):
        return value
    try:
        return json.dumps(value)[:_TEXT]
    except RecursionError:
        return "(nested too deeply)"


def _is_readable(value: Any, depth: int) -> bool:
    if type(value) is int:
        return -INT64_MAX <= value <= INT64_MAX
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is list:
        return depth > 0 and all(_is_readable(each, depth - 1) for each in value)
    if type(value) is dict:
        return depth > 0 and all(is_text(name) and _is_readable(each, depth - 1) for name, each in value.items())
    return value is None or type(value) is bool or is_text(value)

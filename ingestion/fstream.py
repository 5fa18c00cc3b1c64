"""XRootD's binary monitoring packets: the f-stream (``f``) and its map packets (``=`` server, ``u`` user, ``d`` path), parsed.

Layouts from ``XrdXrootd/XrdXrootdMonData.hh``; everything is big-endian. A packet is parsed as a whole or not at all, each offset is
checked against the packet's own length, and nothing but :class:`ParseError` comes out. Pure functions: thread-safe.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from .errors import ParseError

#: Packet numbers are one byte.
PSEQ_MODULUS = 256
#: Of the first packet of a server's life.
PSEQ_FIRST = 0
#: The server id is the lower 48 bits of its field.
SID_MASK = 2**48 - 1

#: Map and trace streams that carry nothing that is used here.
IGNORED_CODES = frozenset("imprstxTU")

CLOSE, OPEN, TIME, XFR, DISC = range(5)
_FORCED, _HAS_OPS, _HAS_SSQ = 0x01, 0x02, 0x04
_HAS_LFN, _HAS_SID = 0x01, 0x01

_PACKET = struct.Struct(">cBHI")  # code, pseq, length of the packet, Unix time of the server's start
_RECORD = struct.Struct(">BBHI")  # type, flags, length of the record, file or user id (TIME: two counts)
_MAP = struct.Struct(">I")  # dictionary id, then text
_TIME = struct.Struct(">IIQ")  # window begin, window end, server id
#: What a window's first record begins with: its type, the flag of a server id, its length.
_TIME_HEAD = struct.pack(">BBH", TIME, _HAS_SID, _RECORD.size + _TIME.size)
_OPEN = struct.Struct(">q")  # file size
_OPEN_LFN = struct.Struct(">qI")  # file size, user id; then the LFN with a NUL at least
_XFR = struct.Struct(">qqq")  # bytes by read, by readv, by write
_OPS = struct.Struct(">iiihhqiiiiii")  # reads, readvs, writes, readv segments min and max and sum, sizes min and max of each
_SSQ_SIZE = 32

#: The first line of a map packet. XRootD's own buffer has 1280 bytes; of a longer line matching would take long.
_USER = re.compile(r"(?P<protocol>[^/]*)/(?P<login>.*)\.(?P<pid>\d{1,10}):(?P<sid>\d{1,15})@(?P<host>.+)", re.DOTALL)
_SERVER = re.compile(r"=?/(?P<login>.*)\.(?P<pid>\d{1,10}):(?P<sid>\d{1,15})@(?P<host>.+)", re.DOTALL)
_MAX_FIRST_LINE = 1280
#: A longer name no server of XRootD's opens.
MAX_LFN_BYTES = 4096


class Header(NamedTuple):
    """The eight bytes that each packet starts with."""

    code: str
    pseq: int
    start_s: int


class Ident(NamedTuple):
    """A server says who it is."""

    sid: int
    cache: str


class User(NamedTuple):
    """A client has logged in. Holds identities: turn them into pseudonyms before anything else is done with it."""

    sid: int
    user_id: int
    session: str
    name: str
    host: str
    app: str


class Path(NamedTuple):
    """A file's name, for the open without one that has its ``file_id``. Holds identities, as :class:`User` does.

    ``session`` is the same text as in the user's packet. ``lfn`` is empty where the server has cut it.
    """

    sid: int
    file_id: int
    session: str
    name: str
    host: str
    lfn: str


class Open(NamedTuple):
    """A client opened a file. ``user_id`` is 0 where user monitoring is off, and, with an empty ``lfn``, without the option ``lfn``."""

    file_id: int
    size: int
    user_id: int
    lfn: str


class Close(NamedTuple):
    """A client closed a file, or was gone (``forced``). The counts of calls are None without the option ``ops``."""

    file_id: int
    forced: bool
    b_read: int
    b_readv: int
    b_write: int
    n_read: int | None
    n_readv: int | None


class Disconnect(NamedTuple):
    """A client's session ended."""

    user_id: int


class Window(NamedTuple):
    """An f-stream packet: what happened from ``begin_s`` to ``end_s`` (Unix seconds, cut), in order; ``ignored`` counts other records."""

    sid: int
    begin_s: int
    end_s: int
    events: list[Open | Close | Disconnect]
    ignored: int


def parse_header(raw: bytes) -> Header:
    """The packet's header; :class:`ParseError` where the packet is shorter or longer than it says."""
    if len(raw) < _PACKET.size:
        raise ParseError("truncated", f"{len(raw)} bytes are no packet")
    code, pseq, length, start_s = _PACKET.unpack_from(raw)
    if length != len(raw):
        raise ParseError("truncated" if length > len(raw) else "header", f"{len(raw)} bytes came, the header says {length}")
    return Header(code.decode("latin-1"), pseq, start_s)


def begins_as_window(raw: bytes) -> bool:
    """Whether this is an ``f`` packet by more than its first byte, which alone could be damage to a user's map packet."""
    return raw[:1] == b"f" and raw[_PACKET.size :].startswith(_TIME_HEAD)


def parse_ident(raw: bytes) -> Ident:
    """An ``=`` packet: ``/login.pid:sid@host LF &site=…&port=…&inst=…&pgm=…&ver=…``."""
    _, text, info = _map_text(raw)
    match = _SERVER.fullmatch(text)
    port = _option(info.rstrip("\0"), "port")
    if match is None or not port.isdecimal() or not port.isascii() or len(port) > 5:
        raise ParseError("ident", "it does not name a server, its host and port")
    return Ident(int(match["sid"]) & SID_MASK, f"{match['host']}:{int(port)}")


def parse_user(raw: bytes) -> User:
    """A ``u`` packet: ``protocol/login.pid:sid@host LF &p=…&n=…&R=…&x=app``. Who authenticated (``n``) counts before the login name."""
    user_id, session, info = _map_text(raw)
    match = _USER.fullmatch(session)
    if match is None:
        raise ParseError("user", "it does not name a user, a server and a host")
    info = info.rstrip("\0")
    return User(int(match["sid"]) & SID_MASK, user_id, session, _option(info, "n") or match["login"], match["host"], _option(info, "x"))


def parse_path(raw: bytes) -> Path:
    """A ``d`` packet: ``protocol/login.pid:sid@host LF path``, sent at each open under ``dest files``.

    XRootD cuts what is longer than its buffer (1280 bytes in all) by a NUL, and fills the packet with what lies behind that in its memory.
    """
    file_id, session, path = _map_text(raw)
    match = _USER.fullmatch(session)
    if match is None or not path:
        raise ParseError("path", "it does not name a user, a server and a path")
    whole = "\0" not in path and len(path) <= MAX_LFN_BYTES
    return Path(int(match["sid"]) & SID_MASK, file_id, session, match["login"], match["host"], path if whole else "")


def _open(raw: bytes, body: int, end: int, flags: int, file_id: int) -> Open:
    if not flags & _HAS_LFN:
        return Open(file_id, _OPEN.unpack_from(raw, body)[0], 0, "")
    if end - body <= _OPEN_LFN.size:
        raise ParseError("record", "an open has no room for its lfn")
    size, user_id = _OPEN_LFN.unpack_from(raw, body)
    lfn, terminator, _ = raw[body + _OPEN_LFN.size : end].partition(b"\0")
    if not terminator or not 0 < len(lfn) <= MAX_LFN_BYTES:
        raise ParseError("record", f"an open's lfn is empty, has no end or more than {MAX_LFN_BYTES} bytes")
    return Open(file_id, size, user_id, lfn.decode("utf-8", "replace"))


def _close(raw: bytes, body: int, end: int, flags: int, file_id: int) -> Close:
    need = _XFR.size + (_OPS.size if flags & (_HAS_OPS | _HAS_SSQ) else 0) + (_SSQ_SIZE if flags & _HAS_SSQ else 0)
    if end - body < need:
        raise ParseError("record", "a close has no room for what its flags say")
    b_read, b_readv, b_write = _XFR.unpack_from(raw, body)
    n_read = n_readv = None
    if flags & (_HAS_OPS | _HAS_SSQ):
        n_read, n_readv = _OPS.unpack_from(raw, body + _XFR.size)[:2]
    if min(b_read, b_readv, b_write, n_read or 0, n_readv or 0) < 0:
        raise ParseError("record", "a close has negative counts")
    return Close(file_id, bool(flags & _FORCED), b_read, b_readv, b_write, n_read, n_readv)


def _disconnect(_raw: bytes, _body: int, _end: int, _flags: int, user_id: int) -> Disconnect:
    return Disconnect(user_id)


class _Form(NamedTuple):
    """A record type: the smallest length with its head, and what reads it: ``(packet, begin and end of its body, flags, id)``."""

    min_size: int
    read: Callable[[bytes, int, int, int, int], Open | Close | Disconnect] | None


_FORMS = {
    CLOSE: _Form(_RECORD.size + _XFR.size, _close),
    OPEN: _Form(_RECORD.size + _OPEN.size, _open),
    DISC: _Form(_RECORD.size, _disconnect),
    TIME: _Form(_RECORD.size + _TIME.size, None),  # a window, no event
    XFR: _Form(_RECORD.size + _XFR.size, None),  # so far; the close has it all
}
#: A type that is not known yet is stepped over.
_UNKNOWN = _Form(_RECORD.size, None)


def parse_window(raw: bytes) -> Window:
    """An ``f`` packet. :class:`ParseError` where it does not start with its window or any record does not fit."""
    sid = begin_s = end_s = -1
    ignored = 0
    events: list[Open | Close | Disconnect] = []
    offset, end = _PACKET.size, len(raw)
    while offset < end:
        if end - offset < _RECORD.size:
            raise ParseError("record", f"{end - offset} bytes at offset {offset} are no record")
        kind, flags, size, number = _RECORD.unpack_from(raw, offset)
        form = _FORMS.get(kind, _UNKNOWN)
        if not form.min_size <= size <= end - offset:
            raise ParseError("record", f"record type {kind} at offset {offset} has impossible length {size}")
        body = offset + _RECORD.size
        offset += size
        if kind == TIME:
            begin_s, end_s, sid = _TIME.unpack_from(raw, body)
            if not flags & _HAS_SID or begin_s > end_s:
                raise ParseError("window", "the time record has no server id, or ends before it begins")
        elif sid < 0:
            raise ParseError("window", "the first record is not the time record")
        elif form.read is not None:
            events.append(form.read(raw, body, offset, flags, number))
        else:
            ignored += 1
    if sid < 0:
        raise ParseError("window", "no time record")
    return Window(sid & SID_MASK, begin_s, end_s, events, ignored)


def _map_text(raw: bytes) -> tuple[int, str, str]:
    """A map packet's id, the first line of its text, and what is behind that."""
    if len(raw) < _PACKET.size + _MAP.size:
        raise ParseError("truncated", "a map packet without its id")
    first, _, rest = raw[_PACKET.size + _MAP.size :].partition(b"\n")
    if len(first) > _MAX_FIRST_LINE:
        raise ParseError("truncated", f"the first line of a map packet has {len(first)} bytes")
    return _MAP.unpack_from(raw, _PACKET.size)[0], first.rstrip(b"\0").decode("utf-8", "replace"), rest.decode("utf-8", "replace")


def _option(info: str, name: str) -> str:
    """The value of ``&name=`` in a map packet's second line."""
    _, found, rest = info.partition(f"&{name}=")
    return rest.partition("&")[0] if found else ""

"""One segment file of the spool: frames one after the other, each a batch of records of one stream.

A frame is a header of 52 bytes (little-endian: magic, bytes and CRC-32 of the payload, number of records, Unix microseconds, the stream's
name, CRC-32 of the header), then the payload: all key lengths, all value lengths, all keys, all values. The header has a checksum of its
own, so that a file can be counted by going from header to header. Pure functions and one class that only reads: thread-safe.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

_MAGIC = b"scf1"
_HEADER = struct.Struct("<4sIIIQ24s")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
#: Longest name of a stream, in bytes.
MAX_NAME = 24
#: Length that says: this record has no key.
_NO_KEY = 0xFFFFFFFF
#: What is read of a file at once, to go from header to header: many small frames, or little of one that is large.
_AT_ONCE = 64 << 10
#: A header that claims more than this is not one of ours.
MAX_PAYLOAD = 64 << 20


class Corrupt(Exception):
    """Bytes that no collector wrote, or that have changed since."""


class Torn(Corrupt):
    """A frame whose end is missing: the write was cut off."""


class Header(NamedTuple):
    """What a frame holds: ``size`` is that of the whole frame, ``time_us`` when it was written."""

    stream: str
    time_us: int
    records: int
    size: int
    checksum: int


class Frame(NamedTuple):
    """Records of one stream, in order. A key is None where the record may go to any partition."""

    stream: str
    time_us: int
    keys: Sequence[bytes | None]
    values: Sequence[bytes]


def encode(frame: Frame) -> bytes:
    """The frame as it stands in a file."""
    count = len(frame.values)
    lengths = struct.pack(
        f"<{2 * count}I", *(_NO_KEY if key is None else len(key) for key in frame.keys), *(len(value) for value in frame.values)
    )
    payload = b"".join((lengths, *filter(None, frame.keys), *frame.values))
    name = frame.stream.encode()
    if len(name) > MAX_NAME:
        raise ValueError(f"the stream's name {frame.stream!r} must have {MAX_NAME} bytes or fewer")
    header = _HEADER.pack(_MAGIC, len(payload), crc32(payload), count, frame.time_us, name)
    return b"".join((header, _CHECKSUM.pack(crc32(header)), payload))


def parse_header(raw: bytes, offset: int, end: int) -> Header:
    """The header at ``offset`` of a file of ``end`` bytes; :class:`Torn` where the frame is not all there, :class:`Corrupt` else."""
    if end - offset < HEADER_BYTES:
        raise Torn(f"{end - offset} bytes are left, fewer than a header")
    head = raw[offset : offset + _HEADER.size]
    if _CHECKSUM.unpack_from(raw, offset + _HEADER.size)[0] != crc32(head) or head[:4] != _MAGIC:
        if not any(raw[offset : offset + HEADER_BYTES]):
            raise Torn("zeros where a header should be")
        raise Corrupt("the header's checksum is wrong")
    _, size, checksum, count, time_us, name = _HEADER.unpack(head)
    if size > MAX_PAYLOAD or 8 * count > size:
        raise Corrupt(f"{count} records in {size} bytes")
    if end - offset - HEADER_BYTES < size:
        raise Torn(f"{end - offset - HEADER_BYTES} of {size} bytes are there")
    return Header(name.rstrip(b"\0").decode("utf-8", "replace"), time_us, count, HEADER_BYTES + size, checksum)


def parse_payload(header: Header, payload: bytes) -> Frame:
    """The records behind ``header``; :class:`Corrupt` where the checksum or the lengths do not fit."""
    if crc32(payload) != header.checksum:
        raise Corrupt("the checksum of the records is wrong")
    count = header.records
    lengths = struct.unpack_from(f"<{2 * count}I", payload)
    keyed = [length if length != _NO_KEY else 0 for length in lengths[:count]]
    ends = list(accumulate((*keyed, *lengths[count:]), initial=8 * count))
    if ends[-1] != len(payload):
        raise Corrupt("the lengths of the records do not add up")
    parts = [payload[begin:end] for begin, end in pairwise(ends)]
    keys = [None if length == _NO_KEY else key for length, key in zip(lengths, parts[:count], strict=False)]
    return Frame(header.stream, header.time_us, keys, parts[count:])


def read(descriptor: int, offset: int) -> tuple[Frame, int] | None:
    """The frame at ``offset`` of an open file and where the next one begins; None at the end. Raises as :func:`parse_header` does."""
    end = os.fstat(descriptor).st_size
    if offset >= end:
        return None
    head = _pread(descriptor, HEADER_BYTES, offset)
    header = parse_header(head, 0, end - offset if len(head) == HEADER_BYTES else len(head))
    payload = _pread(descriptor, header.size - HEADER_BYTES, offset + HEADER_BYTES)
    return parse_payload(header, payload), offset + header.size


class Survey(NamedTuple):
    """What a file holds from an offset on, by its headers: whole frames up to ``end``, then ``problem`` (None: the file's end)."""

    begin: int
    end: int
    records: dict[str, int]
    problem: Corrupt | None


def survey(path: Path, begin: int = 0) -> Survey:
    """Go from header to header. ``begin`` need not be the start of a frame: the one that holds it is the first that counts.

    OSError where the disk gives an error: reading, unlike a mapping of the file, says so to who reads.
    """
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        offset, first = 0, -1
        raw, base = b"", 0
        records: dict[str, int] = {}
        problem: Corrupt | None = None
        while offset < size:
            if offset + HEADER_BYTES > base + len(raw):
                raw, base = _pread(descriptor, min(_AT_ONCE, size - offset), offset), offset
            try:
                # Of a file that somebody has cut meanwhile less is there than its size said.
                header = parse_header(raw, offset - base, size - base if len(raw) - (offset - base) >= HEADER_BYTES else len(raw))
            except Corrupt as error:
                problem = error
                break
            if offset + header.size > begin:
                if first < 0:
                    first = offset
                records[header.stream] = records.get(header.stream, 0) + header.records
            offset += header.size
        return Survey(first if first >= 0 else offset, offset, records, problem)


def _pread(descriptor: int, size: int, offset: int) -> bytes:
    """So many bytes, fewer at the file's end only: a read that is cut short by an error of the disk is no end, the next one says which."""
    raw = os.pread(descriptor, size, offset)
    while len(raw) < size and (more := os.pread(descriptor, size - len(raw), offset + len(raw))):
        raw += more
    return raw

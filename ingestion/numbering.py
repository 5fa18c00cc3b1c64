"""Where each sender's numbering stands, kept over the collector's end: what is sent while none runs is counted as lost too.

A file of slots of 40 bytes, one a sender, little-endian: hash of stream and sender (16 bytes), the number of its next packet (int64), when
it was heard (int64, Unix microseconds), CRC-32 of these (uint32), 4 bytes of nothing. The first slot holds a magic word and when the file
was made. The file is made once, beside its place; a slot is written in place, by one call that a killed process either made or not, once
the records before it are in the spool: a collector killed in between counts packets as lost which are there, never the other way round. A
machine that dies may leave older numbers, with the same effect, and so does a disk that is away when the collector ends. What a packet said
that is no record yet, as an open that waits for its close, is not in the spool: see :mod:`.opens`.

Where the file cannot be written (its disk is full, gone, or another one is in its place), the numbers stay in memory, and each second a new
file with all of them is tried.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from .jsontext import INT64_MAX

_SLOT = struct.Struct("<16sqqI4x")
_CHECKED = struct.Struct("<16sqq")
_MAGIC = b"smartcache seq 2"
#: Senders kept: those of three streams. The one heard longest ago gives its slot to a new one.
MAX_SENDERS = 3 * 4096
#: How often it is looked whether the file is still in its place, and, where it is not, a new one is tried.
LOOK_S = 1.0


class _Sender(NamedTuple):
    """Where one sender's numbering stands: its slot in the file, the number of its next packet, when it was heard (Unix microseconds)."""

    slot: int
    number: int
    heard_us: int


class Numbering:
    """The file and what is in it. Not thread-safe. Where it cannot be read or written the collector works on, and says so once."""

    def __init__(self, path: Path, say: Callable[[str], None], now_us: int, is_there: Callable[[], bool] = lambda: True) -> None:
        """Read the file, or make it. ``say`` takes what a person should know; ``is_there``: whether the folder is the spool's own."""
        self._path = path
        self._is_there = is_there
        self._beside = path.with_name(path.name + ".new")
        self._say = say
        #: Since when every packet should have come: the file's beginning, and this process's (Unix microseconds).
        self.since_us = self.opened_us = now_us
        self._senders: OrderedDict[bytes, _Sender] = OrderedDict()  # heard longest ago first
        self._moved: dict[tuple[str, Hashable], int] = {}
        self._digests: dict[tuple[str, Hashable], bytes] = {}
        self._file = -1
        self._failed = False
        self._look_s = time.monotonic() + LOOK_S
        self._free: list[int] = []
        try:
            self._open(now_us)
        except OSError as error:
            self._fail(error)

    def expected(self, stream: str, sender: Hashable) -> int | None:
        """The number that the sender's next packet had when its last one was heard; None where it is not known."""
        kept = self._senders.get(self._digest((stream, sender)))
        return None if kept is None else kept.number

    def moved(self, stream: str, sender: Hashable, number: int) -> None:
        """The sender's next packet has this number; ``commit`` writes it."""
        self._moved[stream, sender] = min(number, INT64_MAX)

    def commit(self, now_us: int) -> None:
        """Write what has moved. Call it once the records of these packets are in the spool."""
        for key, number in self._moved.items():
            digest = self._digest(key)
            slot = self._senders.pop(digest).slot if digest in self._senders else self._free_slot()
            self._senders[digest] = sender = _Sender(slot, number, now_us)
            self._write(digest, sender)
        self._moved.clear()
        if time.monotonic() >= self._look_s:
            self._look(now_us)

    def close(self) -> None:
        """Close the file. What has moved since ``commit`` is not written."""
        file, self._file = self._file, -1
        _close(file)

    def _digest(self, key: tuple[str, Hashable]) -> bytes:
        found = self._digests.get(key)
        if found is None:
            if len(self._digests) >= MAX_SENDERS:
                self._digests.clear()
            found = self._digests[key] = blake2b(repr(key).encode("utf-8", "backslashreplace"), digest_size=16).digest()
        return found

    def _free_slot(self) -> int:
        if self._free:
            return self._free.pop()
        if len(self._senders) < MAX_SENDERS:
            return len(self._senders) + 1
        return self._senders.popitem(last=False)[1].slot

    def _open(self, now_us: int) -> None:
        """Take the file as it stands: nothing of it is written anew, so nothing is lost to a full disk or a process that is killed here."""
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._make(now_us)
            return
        content = os.pread(self._file, (MAX_SENDERS + 1) * _SLOT.size, 0)
        slots = [content[at : at + _SLOT.size] for at in range(0, len(content) - _SLOT.size + 1, _SLOT.size)]
        head = _unpacked(slots[0]) if slots else None
        if head is None or head[0] != _MAGIC:
            self._say(f"{self._path} cannot be read: what was sent while no collector ran is not counted as lost this time")
            self.close()
            self._make(now_us)
            return
        self.since_us = head[1]
        found = [(slot, _unpacked(raw)) for slot, raw in enumerate(slots[1:], 1)]
        heard = sorted((each[2], slot, each[0], each[1]) for slot, each in found if each is not None)
        self._senders.update((digest, _Sender(slot, number, when)) for when, slot, digest, number in heard)
        used = {sender.slot for sender in self._senders.values()}
        self._free = [slot for slot, _ in found if slot not in used]

    def _make(self, now_us: int) -> None:
        """A new one with what is known, whole before it has its name."""
        file = os.open(self._beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            _put(file, 0, _MAGIC, self.since_us, now_us)
            for digest, sender in self._senders.items():
                _put(file, sender.slot, digest, sender.number, sender.heard_us)
            self._beside.replace(self._path)
        except OSError:
            _close(file)
            with contextlib.suppress(OSError):
                self._beside.unlink()
            raise
        self._file = file

    def _look(self, now_us: int) -> None:
        """Whether what is written can be found again; else all of it anew."""
        self._look_s = time.monotonic() + LOOK_S
        try:
            if self._file >= 0 and not self._in_place():
                raise OSError(errno.ENODEV, "it is not in its place any more")
            if self._file < 0 and self._is_there():
                self._make(now_us)
        except OSError as error:
            self._fail(error)
        if self._failed and self._file >= 0:
            self._failed = False
            self._say(f"{self._path} is written again")

    def _in_place(self) -> bool:
        try:
            ours, there = os.fstat(self._file), self._path.stat()
        except OSError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)

    def _write(self, digest: bytes, sender: _Sender) -> None:
        if self._file < 0:
            return
        try:
            _put(self._file, sender.slot, digest, sender.number, sender.heard_us)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        """Without it, rather than with numbers that are old: those would count as lost what is there."""
        if not self._failed:
            self._failed = True
            self._say(
                f"{self._path} cannot be used ({error.strerror}): until it can, what is sent while no collector runs may be counted wrong; "
                "make room, bring its disk back, or let this user write to [spool] dir"
            )
        self.close()
        if self._is_there():
            for each in (self._path, self._beside):
                with contextlib.suppress(OSError):
                    each.unlink()


def _close(file: int) -> None:
    """Of -1 nothing. A disk may tell only now what it could not write, and what is open is closed all the same."""
    if file >= 0:
        with contextlib.suppress(OSError):
            os.close(file)


def _put(file: int, slot: int, digest: bytes, number: int, heard_us: int) -> None:
    raw = _CHECKED.pack(digest, number, heard_us)
    if os.pwrite(file, _SLOT.pack(digest, number, heard_us, crc32(raw)), slot * _SLOT.size) < _SLOT.size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _unpacked(slot: bytes) -> tuple[bytes, int, int] | None:
    digest, number, heard_us, checksum = _SLOT.unpack(slot)
    return (digest, number, heard_us) if checksum == crc32(slot[: _CHECKED.size]) and number >= 0 else None

"""The spool: records on disk, in order, until Kafka has acknowledged them.

A folder of segment files (:mod:`.segment`) that are appended to at one end (:mod:`.writer`) and deleted at the other. A position is the
number of bytes ever appended before it; a segment's name is the position of its first byte. How far Kafka has acknowledged is kept beside
them (:mod:`.position`). What :meth:`Spool.append` has taken survives the death of the process; with ``fsync = "always"`` also that of the
machine.

Not thread-safe; the plain attributes may be read by other threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from smartcache import config, lock

from . import segment
from .aside import Aside
from .position import Position
from .recovery import SUFFIX, Segment, damaged, recover
from .segment import Corrupt, Frame, Torn
from .writer import Writer

#: A disk that is nearly full takes a small frame and not the next: it is said to be well again only after this long without a failure.
TROUBLE_S = 2.0
#: How long what cannot be read for want of something that comes back (file descriptors, memory, a mounted disk) is left alone.
READ_AGAIN_S = 1.0
_NAME = re.compile(r"(\d{20})\.spool")


class SpoolError(Exception):
    """The folder cannot be used; the text names the setting and the way out."""


class Spool:
    """Frames in at one end, out at the other, and forgotten once acknowledged. Bounded: the oldest segment goes when it is full."""

    def __init__(self, settings: config.Spool, say: Callable[[str], None], lost: Callable[[str, str, int], None]) -> None:
        """Lock the folder and survey what an earlier collector left there.

        ``say`` takes what a person should know; ``lost(stream, cause, count)`` records that are not there any more (``spool_full``,
        ``corrupt``) and, with the stream ``spool``, damaged segments (``torn``, ``corrupt``). :class:`SpoolError` where the folder cannot
        be used or another has it.
        """
        self._settings = settings
        self._say = say
        self._lost = lost
        self._folder = Path(settings.dir)
        self._segments: deque[Segment] = deque()
        self._reader: tuple[Segment, int] | None = None
        self._held = 0
        self._aside = Aside(self._folder)
        self._write_trouble = self._read_trouble = ""
        self._trouble_at = self._read_at = 0.0
        self._lock = self._acquire()
        self._writer = Writer(settings.fsync)
        self._position = Position(self._folder, self.has_folder, say)
        self._end = self._next = 0
        try:
            self._recover()
        except OSError as error:
            self._release()
            raise SpoolError(_unusable(self._folder, error)) from error

    @property
    def caught_up(self) -> bool:
        """Whether all that was appended has been read."""
        return self._next >= self._end

    @property
    def held_bytes(self) -> int:
        """What the segments take on disk, those that were set aside among them."""
        return self._held + self._aside.bytes

    @property
    def trouble(self) -> str:
        """What is wrong with the disk, empty while nothing is."""
        return self._write_trouble or self._read_trouble

    @property
    def resting(self) -> bool:
        """Whether :meth:`read` gives nothing for now, though there is something: it could not be read a moment ago."""
        return bool(self._read_trouble) and time.monotonic() < self._read_at

    @property
    def end(self) -> int:
        """The position behind all that was appended."""
        return self._end

    @property
    def next(self) -> int:
        """The position of the next byte that :meth:`read` gives, or of a gap before it."""
        return self._next

    @property
    def begin(self) -> int:
        """The position of the oldest byte that is still there."""
        return self._segments[0].base if self._segments else self._end

    @property
    def unread(self) -> dict[str, int]:
        """Records that :meth:`read` has not given yet, by stream."""
        total: dict[str, int] = {}
        for each in self._segments:
            for stream, count in each.unread.items():
                total[stream] = total.get(stream, 0) + count
        return total

    @property
    def oldest_unread_us(self) -> int:
        """When the next frame to be read was appended, Unix microseconds; 0 where there is none."""
        where = self._find()
        if where is None:
            return 0
        try:
            with where.path.open("rb") as file:
                file.seek(self._next - where.base)
                return segment.parse_header(file.read(segment.HEADER_BYTES), 0, where.size).time_us
        except (OSError, Corrupt):
            return 0

    def append(self, frame: Frame) -> int | None:
        """Take a frame; the position behind it, or None where the disk does not take it (:attr:`trouble` says why)."""
        raw = segment.encode(frame)
        active = self._segments[-1] if self._writer.is_open else None
        try:
            if active is None or active.size + len(raw) > self._settings.segment_bytes:
                active = self._rotate()
            while self.held_bytes + len(raw) > self._settings.max_bytes:
                if self._aside.forget_oldest():  # damaged ones are not kept at the price of good records
                    continue
                if self._segments[0] is active:
                    break
                self._drop_oldest()
            if not self._writer.is_open:  # what is dropped is written down, and that may have found the disk exchanged
                active = self._rotate()
            self._writer.write(raw, active.size)
        except OSError as error:
            if active is not None and not self._writer.is_open:
                self._end += len(raw)  # the next segment's name must be behind whatever is there
            self._in_trouble(error)
            return None
        if self._write_trouble and time.monotonic() - self._trouble_at > TROUBLE_S:
            self._write_trouble = ""
            self._say(f"the spool {self._folder} takes records again")
        active.size += len(raw)
        active.held += len(raw)
        active.unread[frame.stream] = active.unread.get(frame.stream, 0) + len(frame.values)
        self._held += len(raw)
        self._end += len(raw)
        return self._end

    def read(self) -> tuple[Frame, int] | None:
        """The next frame and the position behind it; None where all was read, or while the disk gives nothing (:attr:`resting`).

        A segment is left out, said and counted only where its bytes are not what was written, or it is gone: all else may pass.
        """
        if self.resting:
            return None
        while (where := self._find()) is not None:
            try:
                found = segment.read(self._open(where), self._next - where.base)
                if found is None:
                    raise Torn(f"the file ends at byte {self._next - where.base} of {where.size}")
            except Corrupt as error:
                self._give_up_on(where, str(error))
                continue
            except OSError as error:
                if isinstance(error, FileNotFoundError) and self.has_folder():
                    self._give_up_on(where, "the file is gone")
                    continue
                self._cannot_read(where, error)
                return None
            if self._read_trouble:
                self._read_trouble = ""
                self._say(f"the spool {self._folder} is read again")
            frame, after = found
            self._next = where.base + after
            self._given(where, frame)
            return frame, self._next
        self._read_trouble = ""  # what could not be read is there no more
        self._next = max(self._next, self._end)
        return None

    def skip(self, frame: Frame) -> None:
        """Count the frame that was appended just now as read: the caller has it in memory. Only where all before it was read."""
        self._next = self._end
        self._given(self._segments[-1], frame)

    def acknowledge(self, position: int) -> None:
        """All before ``position`` is Kafka's now: never to be read again, and deleted by whole segments."""
        self._position.acknowledge(position)
        self._retire_acknowledged()

    def rewind(self) -> None:
        """Read again from the acknowledged position on: the producer has nothing more. Who calls counts what is on disk no more."""
        acked = self._position.acked
        for each in self._segments:
            if each.base < self._next and not each.damage:
                with contextlib.suppress(OSError):
                    each.unread = segment.survey(each.path, max(0, acked - each.base)).records
        self._next = acked
        self._position.withdraw()

    def tick(self, now_s: float) -> None:
        """Write the acknowledged position where that is due; ``now_s`` is any steady clock."""
        self._position.tick(now_s)

    def close(self) -> None:
        """Leave the folder to the next collector. Who calls has counted what the producer has, and is on disk no more."""
        self._writer.close()
        self._retire_acknowledged()  # the last segment too, now that nothing is appended
        self._position.withdraw()
        self._position.write()
        self._release()

    # --- the folder -------------------------------------------------------------------------------------------------------------------

    def _acquire(self) -> int:
        try:
            self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            return lock.take(self._folder / "lock", 0o640)
        except OSError as error:
            raise SpoolError(_unusable(self._folder, error)) from error
        except lock.Held as error:
            raise SpoolError(
                f"the spool {self._folder} is in use by another collector (process {error.owner}): each needs a folder of its own; "
                "stop that one, or change [spool] dir"
            ) from error

    def _release(self) -> None:
        self._close_reader()
        with contextlib.suppress(OSError):  # of a disk that is gone
            os.close(self._lock)

    def has_folder(self) -> bool:
        """Whether the folder is the one whose lock we hold: where its disk is not mounted any more, another one may be in its place."""
        try:
            ours, there = os.fstat(self._lock), (self._folder / "lock").stat()
        except FileNotFoundError:
            return self._locked_again()
        except OSError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) or self._locked_again()

    def _locked_again(self) -> bool:
        """Where what we wrote is there, and nobody has it: the lock was deleted, or the disk was mounted again under another number.

        Nor may anybody have had it meanwhile, who has left more behind. What is open may be on a disk that is not there any more.
        """
        ours = {each.path.name: each.held for each in self._segments}
        try:
            there = {each.name for each in self._folder.iterdir() if _NAME.fullmatch(each.name)}
            if not any(ours.get(name) for name in there) or max(there - ours.keys(), default="") > min(ours):
                return False
            held, before = lock.take(self._folder / "lock", 0o640), self._lock
        except (OSError, lock.Held):
            return False
        self._lock = held
        with contextlib.suppress(OSError):
            os.close(before)
        self._writer.end()
        self._close_reader()
        self._say(f"the lock of the spool {self._folder} was not ours any more; it is locked anew")
        return True

    def _recover(self) -> None:
        dropped = self._position.read()
        self._end = self._next = self._position.acked
        self._aside.survey()
        for name in sorted(each.name for each in self._folder.iterdir() if _NAME.fullmatch(each.name)):
            one = recover(self._folder / name, self._position, self._say, self._lost)
            self._end = max(self._end, one.base + one.held)
            self._segments.append(one)
            self._held += one.held
        self._next = max(self._position.acked, self.begin)
        if self._find() is None:
            self._next = self._end
        self.acknowledge(self._next)
        if dropped:
            for stream, count in dropped.items():
                self._lost(stream, "spool_full", count)
            self._say(
                f"the spool {self._folder} was full, and the collector killed: {sum(dropped.values())} records that had been dropped from "
                "it, and that Kafka may not have, are counted as lost"
            )
            self._position.write()  # they are counted once

    # --- writing ----------------------------------------------------------------------------------------------------------------------

    def _rotate(self) -> Segment:
        if not self.has_folder():  # what is written beneath the place of a disk that is not mounted is lost once it is
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        path = self._folder / f"{self._end:020d}{SUFFIX}"
        self._writer.begin(path)
        if self._segments and self._segments[-1].path == path:  # nothing was ever written into it
            self._segments.pop()
        self._segments.append(Segment(path, self._end))
        self._retire_acknowledged()
        return self._segments[-1]

    def _in_trouble(self, error: OSError) -> None:
        if not self._write_trouble:
            way_out = f"bring {self._folder} back, or start the collector anew"
            if self.has_folder():
                way_out = "make room, or change [spool] dir, max_bytes"
            self._say(
                f"the spool {self._folder} takes no records ({error.strerror}): they go to Kafka directly, and are dropped "
                f"while it is away; {way_out}"
            )
        self._write_trouble = f"takes no records: {error.strerror or error}"
        self._trouble_at = time.monotonic()

    # --- reading and forgetting -------------------------------------------------------------------------------------------------------

    def _find(self) -> Segment | None:
        """The segment that holds the next frame; moves over gaps between segments."""
        for each in self._segments:
            if each.end > max(self._next, each.base):
                self._next = max(self._next, each.base)
                return each
        return None

    def _open(self, where: Segment) -> int:
        if self._reader is None or self._reader[0] is not where:
            self._close_reader()
            self._reader = (where, os.open(where.path, os.O_RDONLY | os.O_CLOEXEC))
        return self._reader[1]

    def _close_reader(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader[1], None
            with contextlib.suppress(OSError):  # of a disk that is gone; the descriptor is free all the same
                os.close(reader)

    def _cannot_read(self, where: Segment, error: OSError) -> None:
        self._close_reader()  # what is mounted again, or moved away, shows only to who opens it by its name
        if not self._read_trouble:
            way_out = "to go on without them, move the file away"
            if isinstance(error, FileNotFoundError):  # and the folder is gone with it
                way_out = f"bring {self._folder} back, or start the collector anew"
            self._say(
                f"{where.path} cannot be read ({error.strerror}): its records wait, and what is behind them; it is tried again each "
                f"second; {way_out}"
            )
        self._read_trouble = f"cannot be read: {error.strerror or error}"
        self._read_at = time.monotonic() + READ_AGAIN_S

    def _give_up_on(self, where: Segment, problem: str) -> None:
        offset = self._next - where.base
        if where is self._segments[-1]:
            self._writer.end()
        where.size = offset
        damaged(where, f"{problem} at byte {offset}", self._say, self._lost)
        for stream, count in where.unread.items():
            self._lost(stream, "corrupt", count)
        where.unread = {}
        self._retire_acknowledged()

    def _given(self, where: Segment, frame: Frame) -> None:
        """The producer has the frame that ends where the next one is read."""
        count = len(frame.values)
        left = where.unread.get(frame.stream, 0) - count
        if left > 0:
            where.unread[frame.stream] = left
        else:
            where.unread.pop(frame.stream, None)
        self._position.give(self._next, frame.stream, count)

    def _retire_acknowledged(self) -> None:
        while self._segments and self._segments[0].end <= self._position.acked and (len(self._segments) > 1 or not self._writer.is_open):
            self._retire(self._segments.popleft())

    def _retire(self, gone: Segment) -> None:
        if self._reader is not None and self._reader[0] is gone:
            self._close_reader()
        with contextlib.suppress(OSError):
            if gone.damage:
                self._aside.take(gone.path, gone.held)
            else:
                gone.path.unlink()
        self._held -= gone.held

    def _drop_oldest(self) -> None:
        gone = self._segments.popleft()
        for stream, count in gone.unread.items():
            self._lost(stream, "spool_full", count)
        self._position.drop(gone.end)
        self._next = max(self._next, gone.end)
        self._retire(gone)


def _unusable(folder: Path, error: OSError) -> str:
    what = f"{error.strerror}: {error.filename}" if error.filename not in (None, folder, str(folder)) else error.strerror
    return (
        f"the spool {folder} cannot be used ({what}): make it a folder that this user may write to, on a disk that can be read, or change "
        "[spool] dir"
    )

"""How far Kafka has acknowledged what was in the spool, kept on disk; and what was dropped from the full spool while the producer had it.

The file ``position`` has one line: the acknowledged position; where there are any, the dropped records by stream (JSON without spaces); the
CRC-32 of what stands before it. It is replaced as a whole. An older one costs repetition, never loss. Dropped records that Kafka did not
acknowledge before the collector was killed are nowhere: the next one counts them. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

#: It is written at most this often.
POSITION_S = 0.5


class Position:
    """The position behind all that Kafka has acknowledged without a gap, and what of the rest the producer has."""

    def __init__(self, folder: Path, is_there: Callable[[], bool], say: Callable[[str], None]) -> None:
        """``is_there``: whether ``folder`` is the spool's own. ``say`` takes what a person should know. Nothing is read yet."""
        self._file = folder / "position"
        self._beside = folder / "position.new"
        self._is_there = is_there
        self._say = say
        self._acked = 0
        #: Frames that the producer has, in order: the position behind each, its stream and its records. Those dropped are not on disk.
        self._given: deque[tuple[int, str, int]] = deque()
        self._dropped: deque[tuple[int, str, int]] = deque()
        self._dirty = True
        self._due_s = 0.0

    @property
    def acked(self) -> int:
        """The acknowledged position."""
        return self._acked

    def read(self) -> dict[str, int]:
        """Take what the last collector has written; the records by stream that it had dropped, and that Kafka may not have."""
        try:
            text, _, checksum = self._file.read_text("ascii", "replace").strip().rpartition(" ")
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._say(f"{self._file} cannot be read ({error.strerror}): all that is in the spool is sent again")
            return {}
        number, _, dropped = text.partition(" ")
        if not number.isdecimal() or checksum != f"{crc32(text.encode()):08x}":
            self._say(f"{self._file} cannot be read: all that is in the spool is sent again")
            return {}
        self._acked = int(number)
        return dict(json.loads(dropped)) if dropped else {}

    def give(self, end: int, stream: str, records: int) -> None:
        """The producer has the frame before ``end``."""
        self._given.append((end, stream, records))

    def acknowledge(self, position: int) -> None:
        """Kafka has all before ``position``."""
        if position <= self._acked:
            return
        self._acked = position
        self._dirty = True
        for frames in (self._dropped, self._given):
            while frames and frames[0][0] <= position:
                frames.popleft()

    def begin(self, position: int) -> None:
        """What is read of the segment that holds the acknowledged position begins here: at the start of a frame."""
        self._acked = position

    def drop(self, end: int) -> None:
        """What stands before ``end`` is about to be deleted. What the producer has of it is written down first, should this process die."""
        before = len(self._dropped)
        while self._given and self._given[0][0] <= end:
            self._dropped.append(self._given.popleft())
        if len(self._dropped) > before:
            self._dirty = True  # until it is written: a full disk may take it later only
            self.write()

    def withdraw(self) -> None:
        """The producer has nothing any more, and whoever took it away has counted what is on disk no more."""
        self._given.clear()
        self._dirty = self._dirty or bool(self._dropped)
        self._dropped.clear()

    def tick(self, now_s: float) -> None:
        """Write where that is due; ``now_s`` is any steady clock."""
        if self._dirty and now_s >= self._due_s:
            self._due_s = now_s + POSITION_S
            self.write()

    def write(self) -> None:
        """Replace the file."""
        dropped: Counter[str] = Counter()
        for _, stream, records in self._dropped:
            dropped[stream] += records
        text = str(self._acked) + (" " + json.dumps(dropped, separators=(",", ":")) if dropped else "")
        if not self._is_there():
            return
        # Not a record's loss: an older position only repeats what was delivered since.
        with contextlib.suppress(OSError):
            self._beside.write_text(f"{text} {crc32(text.encode()):08x}\n")
            self._beside.replace(self._file)
            self._dirty = False

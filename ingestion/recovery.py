"""One segment as the spool knows it, and what an earlier collector has left of one: counted, a torn end cut off, damage told."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import aside, segment
from .position import Position
from .segment import Torn

SUFFIX = ".spool"


@dataclass(eq=False)
class Segment:
    """``base`` is the position of its first byte, ``size`` what can be read, ``held`` what it takes on disk; ``unread`` counts records by
    stream; ``damage`` says what is wrong behind ``size``, if anything is.
    """

    path: Path
    base: int
    size: int = 0
    held: int = 0
    unread: dict[str, int] = field(default_factory=dict)
    damage: str = ""

    @property
    def end(self) -> int:
        """The position behind what can be read."""
        return self.base + self.size


def recover(path: Path, position: Position, say: Callable[[str], None], lost: Callable[[str, str, int], None]) -> Segment:
    """The segment at ``path`` from the acknowledged position on, which moves to the start of a frame where it is in this segment.

    A file that cannot be read stays as it is, and is read when its turn comes. OSError only where not even its size can be had.
    """
    one = Segment(path, int(path.name.removesuffix(SUFFIX)))
    one.size = one.held = path.stat().st_size
    acked = position.acked
    try:
        found = segment.survey(path, max(0, acked - one.base))
    except OSError as error:
        say(
            f"{path} cannot be read ({error.strerror}): how many records are in it is not known; they, and what is behind them, wait until "
            "it can be; to go on without them, move the file away"
        )
        return one
    one.size, one.unread = found.end, found.records
    if isinstance(found.problem, Torn):
        lost("spool", "torn", 1)
        say(f"{path}: cut off behind byte {found.end} of {one.held}, where the last write had ended early")
        with contextlib.suppress(OSError):  # nothing is read there, cut off or not
            os.truncate(path, found.end)
            one.held = found.end
    elif found.problem is not None:
        damaged(one, f"{found.problem} at byte {found.end}", say, lost)
    if one.base < acked < one.end:
        position.begin(one.base + found.begin)  # within a frame only where the file is another: then the frame is sent again
    return one


def damaged(one: Segment, damage: str, say: Callable[[str], None], lost: Callable[[str, str, int], None]) -> None:
    """Note and tell that nothing behind the segment's ``size`` can be used."""
    one.damage = damage
    lost("spool", "corrupt", 1)
    say(f"{one.path}: {damage}; what stands before it is delivered, the file is then set aside as *{aside.SUFFIX}")

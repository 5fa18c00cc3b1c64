"""Segments of the spool that were set aside because they are damaged: kept for a person to look at, as long as there is room.

Not thread-safe.
"""

from __future__ import annotations

import contextlib
from collections import deque
from pathlib import Path

SUFFIX = ".corrupt"
#: So many are kept; the oldest goes first.
KEPT = 8


class Aside:
    """The damaged segments of one folder, oldest first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: deque[tuple[Path, int]] = deque()
        #: What they take on disk.
        self.bytes = 0

    def survey(self) -> None:
        """Find what an earlier collector has left. OSError where the folder cannot be read."""
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            size = 0
            with contextlib.suppress(OSError):  # it is of use to nobody but a person
                size = path.stat().st_size
            self._keep(path, size)

    def take(self, path: Path, size: int) -> None:
        """Set a segment aside under another name. OSError where that is impossible."""
        self._keep(path.rename(path.with_suffix(SUFFIX)), size)

    def forget_oldest(self) -> bool:
        """Delete the one that is here longest; False where there is none."""
        if not self._files:
            return False
        path, size = self._files.popleft()
        self.bytes -= size
        with contextlib.suppress(OSError):
            path.unlink()
        return True

    def _keep(self, path: Path, size: int) -> None:
        self._files.append((path, size))
        self.bytes += size
        if len(self._files) > KEPT:
            self.forget_oldest()

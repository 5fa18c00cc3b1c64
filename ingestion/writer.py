"""The segment of the spool that is appended to, and when the disk is told to write it.

Not thread-safe; with ``fsync = "segment"`` a thread of its own does the waiting.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


class Writer:
    """At most one open file. A failed call leaves whole frames only, or no open file."""

    def __init__(self, fsync: str) -> None:
        """``fsync`` as in [spool]: ``never``, ``segment`` or ``always``."""
        self._fsync = fsync
        self._descriptor = -1
        self._syncer = ThreadPoolExecutor(1, "spool-fsync")

    @property
    def is_open(self) -> bool:
        """Whether there is a file to append to."""
        return self._descriptor >= 0

    def begin(self, path: Path) -> None:
        """Append to a new file at ``path`` from now on, which replaces one of that name. OSError leaves the one before open, or none."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self.end()
        self._descriptor = descriptor
        if self._fsync == "always":
            try:
                _sync_folder(path.parent)
            except OSError:
                self.end()
                raise

    def write(self, raw: bytes, size: int) -> None:
        """Append; the file has ``size`` bytes so far. After an OSError it has as many again, or is closed."""
        rest = memoryview(raw)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            if self._fsync == "always":
                os.fdatasync(self._descriptor)
        except OSError:
            # Half a frame would hide what is written behind it.
            try:
                os.ftruncate(self._descriptor, size)
            except OSError:
                with contextlib.suppress(OSError):
                    os.close(self._taken())
            raise

    def end(self) -> None:
        """Close the file, if there is one. What a disk says only now of what it has taken, shows where that is read."""
        if self._descriptor < 0:
            return
        if self._fsync == "segment":
            self._syncer.submit(_sync_and_close, self._taken())
        else:
            with contextlib.suppress(OSError):
                os.close(self._taken())

    def _taken(self) -> int:
        """The descriptor, to be closed: whatever the system says to that, the number is another file's from then on."""
        descriptor, self._descriptor = self._descriptor, -1
        return descriptor

    def close(self) -> None:
        """Close the file, and wait until the disk has what it was told to write."""
        self.end()
        self._syncer.shutdown()


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sync_and_close(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    with contextlib.suppress(OSError):
        os.close(descriptor)

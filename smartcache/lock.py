"""One process at a time: an exclusive lock on a file, which ends with the process that holds it, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class Held(Exception):
    """Another process has the lock; ``owner`` is its id as far as it is known, else ``unknown``."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


def take(path: Path, mode: int = 0o644) -> int:
    """Lock the file ``path``, made where it is absent, and write our process id into it; the file descriptor, which holds the lock.

    :class:`Held` where another process has it, OSError where the file cannot be made. The file stays when the lock is let go of: were it
    removed, two processes could lock two files of the same name. The descriptor does not go to programs that are started.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise Held(owner or "unknown") from None
    except OSError:
        os.close(lock)
        raise
    with contextlib.suppress(OSError):  # a full disk: others are refused all the same, but not told whose it is
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def is_held(path: Path) -> bool:
    """Whether a process has the lock now; false where there is no such file, or none that we may read."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False

"""The run folder: emptied at the start of a run, and of one run at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_LOCK = ".smartcache-run"


class FolderInUse(Exception):
    """The folder is another run's, or not ours to empty."""


@contextlib.contextmanager
def claim(run: Path) -> Iterator[None]:
    """Hold ``run`` for this process, emptied of what an earlier run left. FolderInUse says who holds it or why it is not touched."""
    if run.exists() and any(run.iterdir()) and not (run / _LOCK).exists():
        raise FolderInUse(f"{run} holds files that are not of a demo: empty it yourself, or name another folder with --run-dir")
    run.mkdir(parents=True, exist_ok=True)
    # The lock file stays: removing it would let two runs lock two different files of the same name.
    with (run / _LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise FolderInUse(
                f"another demo (process {holder}) is running in {run}: wait for it or stop it, or name another folder with --run-dir "
                "and other ports with --port-base"
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        for entry in run.iterdir():
            if entry.name == _LOCK:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        yield

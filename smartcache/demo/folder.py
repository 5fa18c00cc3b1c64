"""The run folder: emptied at the start of a run, and of one run at a time. What other commands keep there by default is left alone."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from .. import lock

_LOCK = ".smartcache-run"
#: Of `smartcache bench` and `smartcache simulate`.
_OF_OTHERS = ("bench", "simulate")


class FolderInUse(Exception):
    """The folder is another run's, or not ours to empty."""


@contextlib.contextmanager
def claim(run: Path, check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold ``run`` for this process, emptied of what an earlier run left. FolderInUse says who holds it or why it is not touched.

    ``check`` is called before anything is removed: what it raises leaves the earlier run's report where it is.
    """
    if run.exists() and any(entry.name not in _OF_OTHERS for entry in run.iterdir()) and not (run / _LOCK).exists():
        raise FolderInUse(f"{run} holds files that are not of a demo: empty it yourself, or name another folder with --run-dir")
    run.mkdir(parents=True, exist_ok=True)
    try:
        taken = lock.take(run / _LOCK)
    except lock.Held as error:
        raise FolderInUse(
            f"another demo (process {error.owner}) is running in {run}: wait for it or stop it, or name another folder with --run-dir "
            "and other ports with --port-base"
        ) from error
    try:
        check()
        for entry in run.iterdir():
            if entry.name in (_LOCK, *_OF_OTHERS):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        yield
    finally:
        os.close(taken)

"""What this host has uploaded to the endpoints, and so may delete there again.

A name is noted before it is uploaded and forgotten once it is known to be gone. The note is on disk: what a killed process has left at an
endpoint, and what is at one that was away when it was to be deleted, goes as soon as the endpoint can be asked. What other hosts have
uploaded is not in it, and is left to them.
"""

from __future__ import annotations

import contextlib
import re
import threading
from typing import Any, Final

from .install import UPLOADS, BundleDir

#: Of a model, as endpoints take it: part of a URL.
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")


class Uploads:
    """Names by endpoint. Thread-safe. ``folder``: where they outlive the process; None, or a disk that takes nothing: they do not."""

    def __init__(self, folder: BundleDir | None = None) -> None:
        self._folder = folder
        self._names: dict[str, set[str]] | None = None
        self._lock = threading.Lock()

    def at(self, url: str) -> set[str]:
        """What this host has uploaded to the endpoint ``url``."""
        with self._lock:
            return set(self._known().get(url, ()))

    def add(self, url: str, name: str) -> None:
        """``name`` is about to be uploaded there."""
        with self._lock:
            if name not in self._known().setdefault(url, set()):
                self._known()[url].add(name)
                self._write()

    def drop(self, url: str, name: str) -> None:
        """``name`` is not there any more."""
        with self._lock:
            if name in self._known().get(url, ()):
                self._known()[url].discard(name)
                self._write()

    def _known(self) -> dict[str, set[str]]:
        if self._names is None:
            read = self._folder.read_state(UPLOADS) if self._folder is not None else {}
            self._names = {url: _names(names) for url, names in read.items()}
        return self._names

    def _write(self) -> None:
        if self._folder is not None:
            # A full disk must not keep an endpoint from what it is to serve; the next change writes all of it.
            with contextlib.suppress(OSError):
                self._folder.write_state({url: sorted(names) for url, names in self._known().items() if names}, UPLOADS)


def _names(told: Any) -> set[str]:
    return {name for name in told if isinstance(name, str) and _NAME.fullmatch(name)} if isinstance(told, list) else set()

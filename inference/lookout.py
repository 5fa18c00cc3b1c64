"""Whether the alias has moved, while the watcher does what takes long: a replay, or waiting for an endpoint.

It is looked at each ``poll_s`` after the beginning of the round, and as soon as somebody wakes the watcher.
"""

from __future__ import annotations

import threading
import time

from .fetched import Overtaken, Stopped, wanted
from .registry import Registry, RegistryError, Version


class Lookout:
    """What ``champion`` names, as it was seen last by who follows it. One thread, but for :meth:`is_still`."""

    def __init__(self, registry: Registry, poll_s: float) -> None:
        self.champion: Version | None = None
        #: Somebody has woken the watcher since the round began, and not only for what is looked at here, maybe: the next round is due.
        self.woken = False
        self._registry = registry
        self._poll_s = poll_s
        self._stop = self._wake = threading.Event()
        self._next_s = 0.0

    def asked(self, stop: threading.Event, wake: threading.Event) -> None:
        """By these events the watcher is asked to end, or to look; the second may be the first."""
        self._stop, self._wake = stop, wake

    def begin(self) -> None:
        """A round begins: look. Raises :class:`~.registry.RegistryError`."""
        self._next_s = time.monotonic() + self._poll_s
        self.woken = False
        self.champion = self._registry.champion()

    def is_still(self, version: Version) -> bool:
        """Whether the registry says that the alias names ``version`` now. From any thread."""
        try:
            champion = self._registry.champion()
        except (RegistryError, OSError):
            return False
        return champion is not None and champion.number == version.number

    def judging(self, version: Version) -> None:
        """A replay may take long, and a download: nobody waits for one of a version that is the champion no more, or was forced since.

        Raises :class:`~.fetched.Overtaken` then, and :class:`~.fetched.Stopped` where the watcher is asked to end.
        """
        if self._stop.is_set():
            raise Stopped
        champion = self._looked_up(version)
        # Not by what gates have said: other hosts' say it meanwhile, too.
        if champion is None or wanted(champion) != wanted(version):
            raise Overtaken(champion)

    def waiting(self) -> None:
        """Called while endpoints are waited for: one that hangs holds up no other version, and no stop. Raises as :meth:`judging`."""
        if self._stop.is_set():
            raise Stopped
        was, champion = self.champion, self._looked_up(self.champion)
        # Not by its tags: those are written meanwhile, too.
        if (champion and wanted(champion)[:2]) != (was and wanted(was)[:2]):
            raise Overtaken(champion)

    def _looked_up(self, known: Version | None) -> Version | None:
        """The champion, if it is time to look again and the registry is there; else ``known``."""
        woken = self._wake is not self._stop and self._wake.is_set()
        if not woken and time.monotonic() < self._next_s:
            return known
        if woken:
            self._wake.clear()
            self.woken = True
        try:
            return self._registry.champion()
        except (RegistryError, OSError):
            return known
        finally:
            self._next_s = time.monotonic() + self._poll_s

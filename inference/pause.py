"""When to try again what has failed: after ``first_s``, then after twice as long each time, after ``most_s`` at most."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping


class Pause:
    """One attempt at a time, known by a key: another key is tried at once. One thread. ``most_s`` 0: there are no pauses."""

    def __init__(self, first_s: float, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._first_s, self._most_s, self._clock = first_s, most_s, clock
        self._key: Hashable = None
        self._text = ""
        self._next_s = self._length_s = 0.0

    def standing(self, key: Hashable) -> str:
        """Why the last attempt failed, as long as it is too early for the next one; else empty."""
        return self._text if key == self._key and self._clock() < self._next_s else ""

    def failed(self, key: Hashable, text: str) -> None:
        """An attempt has failed."""
        self._length_s = min(self._length_s * 2 if key == self._key else self._first_s, self._most_s)
        self._key, self._text, self._next_s = key, text, self._clock() + self._length_s

    def over(self) -> None:
        """An attempt has succeeded."""
        self._key, self._text = None, ""


class Pauses:
    """One for each of several, by name: one endpoint may be full, and another restarted. One thread."""

    def __init__(self, first_s: float, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._first_s, self._most_s, self._clock = first_s, most_s, clock
        self._each: dict[str, Pause] = {}

    def standing(self, key: Hashable) -> dict[str, str]:
        """Those for which it is too early, and why their last attempt failed."""
        return {name: said for name, pause in self._each.items() if (said := pause.standing(key))}

    def tried(self, key: Hashable, failed: Mapping[str, str], but: Collection[str]) -> None:
        """An attempt with all but those of ``but``: ``failed`` says where it did, and why."""
        self._each = {name: pause for name, pause in self._each.items() if name in failed or name in but}
        for name, text in failed.items():
            self._each.setdefault(name, Pause(self._first_s, self._most_s, self._clock)).failed(key, text)

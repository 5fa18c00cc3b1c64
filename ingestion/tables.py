"""Tables of what waits for packets still to come, bounded over all servers: by their number, and by the bytes of the names in them.

A name may be short or have 4096 bytes, so a number alone bounds no memory. All tables share one budget of such bytes. Who goes where there
are too many is not decided here, only who has most. Not thread-safe.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(slots=True, eq=False)
class Budget:
    """Bytes: how many there may be, and are."""

    most: int
    used: int = 0

    @property
    def exceeded(self) -> bool:
        """Whether something has to go."""
        return self.used > self.most


class Bound(Generic[V]):
    """What holds for all tables of one kind together: at most so many entries, each weighing so many bytes of the budget."""

    def __init__(self, most: int, budget: Budget, weigh: Callable[[V], int]) -> None:
        self._most = most
        self._budget = budget
        self._weigh = weigh
        self.count = 0

    @property
    def exceeded(self) -> bool:
        """Whether an entry has to go, by their number."""
        return self.count > self._most

    def enter(self, value: V) -> int:
        """Count it in; what it weighs."""
        weight = self._weigh(value)
        self.count += 1
        self._budget.used += weight
        return weight

    def leave(self, value: V) -> int:
        """Count it out; what it weighs."""
        weight = self._weigh(value)
        self.count -= 1
        self._budget.used -= weight
        return weight


class Table(Generic[V]):
    """One server's entries by their ids, oldest first."""

    __slots__ = ("_bound", "_entries", "bytes")

    def __init__(self, bound: Bound[V]) -> None:
        self._bound = bound
        self._entries: OrderedDict[int, V] = OrderedDict()
        #: What they weigh.
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: int) -> bool:
        return key in self._entries

    @property
    def oldest(self) -> int:
        """The id of the entry that came first; only where there is one."""
        return next(iter(self._entries))

    def get(self, key: int) -> V | None:
        """The entry; None where there is none."""
        return self._entries.get(key)

    def put(self, key: int, value: V) -> None:
        """Add the entry, or replace it in its place."""
        before = self._entries.get(key)
        if before is not None:
            self.bytes -= self._bound.leave(before)
        self._entries[key] = value
        self.bytes += self._bound.enter(value)

    def take(self, key: int) -> V | None:
        """The entry, which is here no more; None where there was none."""
        value = self._entries.pop(key, None)
        if value is not None:
            self.bytes -= self._bound.leave(value)
        return value

    def take_all(self) -> Iterable[V]:
        """All entries, oldest first, which are here no more."""
        values = list(self._entries.values())
        self._entries.clear()
        for value in values:
            self._bound.leave(value)
        self.bytes = 0
        return values

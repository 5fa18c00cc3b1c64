"""Many streams of events as one, in the order of time.

A stream is an iterator of events whose times do not go back. An event may be the start of another stream, so that what is yet to come
takes no memory: a stream is held from its start to its end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import Any, Generic, Protocol, TypeVar


class Timed(Protocol):
    """What happens at a time."""

    @property
    def time_s(self) -> float:
        """Seconds; where they begin is the stream's affair."""
        ...


T = TypeVar("T", bound=Timed)


@dataclass(frozen=True)
class Start(Generic[T]):
    """At this time another stream begins, with no event before it."""

    time_s: float
    stream: Iterator[T | Start[T]]


def merged(streams: Iterable[Iterator[T | Start[T]]], until_s: float) -> Iterator[T]:
    """All events before ``until_s``, those of the streams that are started among them; of one time, as they were drawn."""
    heap: list[tuple[float, int, Any, Any]] = []
    order = 0
    for stream in streams:
        event = next(stream, None)
        if event is not None:
            heappush(heap, (event.time_s, order, event, stream))
            order += 1
    while heap:
        time_s, _, event, stream = heap[0]
        if time_s >= until_s:
            return
        begun: tuple[Any, Any] | None = None
        if isinstance(event, Start):
            first = next(event.stream, None)
            begun = None if first is None else (first, event.stream)
        else:
            yield event
        following = next(stream, None)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (following.time_s, order, following, stream))
            order += 1
        if begun is not None:
            heappush(heap, (begun[0].time_s, order, *begun))
            order += 1


def arrivals(rng: random.Random, rate: float, begin: Callable[[float], Iterator[T | Start[T]]], from_s: float = 0.0) -> Iterator[Start[T]]:
    """A Poisson process of starts, ``rate`` a second. The first comes in half the mean time."""
    now = from_s + rng.expovariate(rate) / 2
    while True:
        yield Start(now, begin(now))
        now += rng.expovariate(rate)

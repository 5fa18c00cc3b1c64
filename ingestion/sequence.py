"""Lost, late and duplicate packets, from the sender's numbering.

A number ahead of the expected one is a gap: what lies between is lost until it comes after all. A number behind it is *late* where it was
missing, a *duplicate* where the same packet was seen with that number, and else the numbering has moved by more than half its range: a
gap that long. Every packet has a fingerprint, so that a number that comes round again is not taken for a duplicate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum
from typing import NamedTuple

from .counters import Counters

#: Packets remembered per stream, seen and missing each. A duplicate or a late one on a network comes within a few packets.
REMEMBERED = 64
#: Streams remembered. A site has tens of caches; a flood of made-up senders must not fill the memory.
MAX_STREAMS = 4096


class Verdict(Enum):
    """What a packet's number says of it."""

    NEXT = "next"
    LATE = "late"
    DUPLICATE = "duplicate"


class Observation(NamedTuple):
    """The verdict, and how many packets before this one are missing."""

    verdict: Verdict
    lost: int = 0


_NEXT = Observation(Verdict.NEXT)
_LATE = Observation(Verdict.LATE)
_DUPLICATE = Observation(Verdict.DUPLICATE)


class Sequence:
    """The numbering of one stream, modulo ``modulus`` (0: it never wraps). Not thread-safe."""

    __slots__ = ("_expected", "_missing", "_modulus", "_seen")

    def __init__(self, modulus: int) -> None:
        self._modulus = modulus
        self._expected = -1
        self._seen: dict[int, Hashable] = {}
        self._missing: dict[int, None] = {}

    def observe(self, number: int, fingerprint: Hashable) -> Observation:
        """Judge the packet with this number. The first packet of a stream is never a gap: who starts late has lost nothing."""
        modulus = self._modulus
        expected = self._expected
        if number == expected or expected < 0:
            self._advance(number, fingerprint)
            return _NEXT
        ahead = (number - expected) % modulus if modulus else number - expected
        behind = ahead < 0 or (modulus > 0 and ahead > modulus // 2)
        if behind:
            if number in self._seen and self._seen[number] == fingerprint:
                return _DUPLICATE
            if number in self._missing:
                del self._missing[number]
                self._remember(number, fingerprint)
                return _LATE
            if not modulus:
                return _LATE  # older than what is remembered; whether it was counted as lost is not known any more
        for each in range(max(0, ahead - REMEMBERED), ahead):
            _bounded_put(self._missing, (expected + each) % modulus if modulus else expected + each, None)
        self._advance(number, fingerprint)
        return Observation(Verdict.NEXT, ahead)

    def _advance(self, number: int, fingerprint: Hashable) -> None:
        self._remember(number, fingerprint)
        self._expected = (number + 1) % self._modulus if self._modulus else number + 1
        if self._missing:
            self._missing.pop(number, None)

    def _remember(self, number: int, fingerprint: Hashable) -> None:
        self._seen.pop(number, None)
        _bounded_put(self._seen, number, fingerprint)


class Sequences:
    """The numberings of all senders of one kind of stream, counted. The sender heard of longest ago is forgotten first."""

    def __init__(self, stream: str, modulus: int, counters: Counters) -> None:
        self._stream = stream
        self._modulus = modulus
        self._counters = counters
        self._sequences: OrderedDict[Hashable, Sequence] = OrderedDict()

    def is_new(self, sender: Hashable, number: int, fingerprint: Hashable) -> bool:
        """Count what this packet says of the sender's numbering; False where it is a duplicate, to be left out."""
        sequence = self._sequences.get(sender)
        if sequence is None:
            sequence = self._sequences[sender] = Sequence(self._modulus)
            if len(self._sequences) > MAX_STREAMS:
                self._sequences.popitem(last=False)
        else:
            self._sequences.move_to_end(sender)
        verdict, lost = sequence.observe(number, fingerprint)
        if lost:
            self._counters.add("packets_lost", self._stream, count=lost)
        if verdict is Verdict.LATE:
            self._counters.add("packets_late", self._stream)
        elif verdict is Verdict.DUPLICATE:
            self._counters.add("packets_duplicate", self._stream)
            return False
        return True


def _bounded_put(into: dict[int, Hashable] | dict[int, None], number: int, value: Hashable) -> None:
    into[number] = value  # type: ignore[assignment]
    if len(into) > REMEMBERED:
        del into[next(iter(into))]

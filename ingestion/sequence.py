"""Lost, late and duplicate packets, from the sender's numbering.

A number ahead of the expected one is a gap: what lies between is lost until it comes after all. A number behind it is *late* where it was
missing, a *duplicate* where the same packet was seen with that number, from *before* where it is just behind the first that was heard of a
sender, and else the numbering has moved by more than half its range: a gap that long. Every packet has a fingerprint, so that a number that
comes round again is not taken for a duplicate. As much is remembered as can be behind: half the range.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum
from typing import NamedTuple

from .counters import Counters
from .numbering import Numbering

#: Packets remembered per stream, seen and missing each, where the numbering never wraps; else half its range. A duplicate or a late one on
#: a network comes within a few packets, by way of a shoveler and a message bus within many.
REMEMBERED = 512
#: A packet from before the first that was heard of its sender comes within so many packets.
BEFORE = 64
#: Streams remembered. A site has tens of caches; a flood of made-up senders must not fill the memory: 0.1 MB each at most.
MAX_STREAMS = 1024
#: Clocks of two machines may differ by this much. A server that began longer than this after the collector's first start owes every packet.
CLOCKS_DIFFER_US = 60_000_000
#: Why a packet is missing: it was sent while this process took packets; or before the first one that it had of this sender.
ON_THE_WAY, AWAY = CAUSES = ("on_the_way", "away")


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

    __slots__ = ("_expected", "_missing", "_modulus", "_remembered", "_seen", "_span")

    def __init__(self, modulus: int, expected: int = -1) -> None:
        """``expected``: the number of the first packet, where it is known."""
        self._modulus = modulus
        self._expected = expected
        self._remembered = modulus // 2 or REMEMBERED
        #: How far the numbers have moved since the first packet, where that one could be any: no further than what is remembered.
        self._span = 0 if expected < 0 else self._remembered
        self._seen: dict[int, Hashable] = {}
        self._missing: dict[int, None] = {}

    @property
    def expected(self) -> int:
        """The number of the next packet; -1 where any will do."""
        return self._expected

    def observe(self, number: int, fingerprint: Hashable) -> Observation:
        """Judge the packet with this number. Where none was expected the first one is no gap: who starts late has lost nothing."""
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
            if self._span < min((expected - number) % modulus if modulus else expected - number, BEFORE + 1) <= BEFORE:
                self._remember(number, fingerprint)
                return _NEXT
            if not modulus:
                return _LATE  # older than what is remembered; whether it was counted as lost is not known any more
        for each in range(max(0, ahead - self._remembered), ahead):
            self._put(self._missing, (expected + each) % modulus if modulus else expected + each, None)
        self._span = min(self._span + ahead, self._remembered)
        self._advance(number, fingerprint)
        return Observation(Verdict.NEXT, ahead)

    def _advance(self, number: int, fingerprint: Hashable) -> None:
        self._remember(number, fingerprint)
        if self._span < self._remembered:
            self._span += 1
        self._expected = (number + 1) % self._modulus if self._modulus else number + 1
        if self._missing:
            self._missing.pop(number, None)

    def _remember(self, number: int, fingerprint: Hashable) -> None:
        self._seen.pop(number, None)
        self._put(self._seen, number, fingerprint)

    def _put(self, into: dict[int, Hashable] | dict[int, None], number: int, value: Hashable) -> None:
        into[number] = value  # type: ignore[assignment]
        if len(into) > self._remembered:
            del into[next(iter(into))]


class Sequences:
    """The numberings of all senders of one kind of stream, counted. The sender heard of longest ago is forgotten first.

    ``packets_lost`` is modulo the numbering's range: a gap longer than that counts by as many ranges too few.
    """

    def __init__(self, stream: str, modulus: int, first: int, counters: Counters, numbering: Numbering | None = None) -> None:
        """``first`` is the number of a sender's first packet; ``numbering`` what is known from the processes before this one."""
        self._stream = stream
        self._modulus = modulus
        self._first = first
        self._counters = counters
        self._numbering = numbering
        self._sequences: OrderedDict[Hashable, Sequence] = OrderedDict()

    def is_new(self, sender: Hashable, number: int, fingerprint: Hashable, start_us: int, *, settled: bool = True) -> bool:
        """Count what this packet says of the sender's numbering; False where it is a duplicate, to be left out.

        ``start_us``: when the numbering began, by the sender's clock (Unix microseconds). Without ``settled`` what is in the packet waits
        in memory: a collector that is killed before :meth:`settle` has lost it, and the next one counts it so.
        """
        cause = ON_THE_WAY
        sequence = self._sequences.get(sender)
        if sequence is None:
            expected, cause = self._known_before(sender, start_us)
            sequence = self._sequences[sender] = Sequence(self._modulus, expected)
            if self._numbering is not None and not settled:
                self._numbering.moved(self._stream, sender, number if expected < 0 else expected)
            if len(self._sequences) > MAX_STREAMS:
                self._sequences.popitem(last=False)
        else:
            self._sequences.move_to_end(sender)
        verdict, lost = sequence.observe(number, fingerprint)
        if lost:
            self._counters.add("packets_lost", self._stream, cause, lost)
        if verdict is Verdict.LATE:
            self._counters.add("packets_late", self._stream)
        elif verdict is Verdict.DUPLICATE:
            self._counters.add("packets_duplicate", self._stream)
            return False
        if settled:
            self.settle(sender)
        return True

    def settle(self, sender: Hashable) -> None:
        """What was taken of this sender so far is on its way into the spool, or counted."""
        sequence = self._sequences.get(sender)
        if self._numbering is not None and sequence is not None:
            self._numbering.moved(self._stream, sender, sequence.expected)

    def _known_before(self, sender: Hashable, start_us: int) -> tuple[int, str]:
        """What the first packet's number should be (-1: any), and why what is missing before it would be."""
        numbering = self._numbering
        if numbering is None:
            return -1, ON_THE_WAY
        expected = numbering.expected(self._stream, sender)
        if expected is not None:
            return expected, AWAY
        if start_us > numbering.since_us + CLOCKS_DIFFER_US:
            return self._first, AWAY if start_us < numbering.opened_us else ON_THE_WAY
        return -1, ON_THE_WAY

"""An HEP-like population of files and the opens that its users make, from a seed.

What is imitated, at a scale of minutes instead of months, has the shapes of published studies of XCache and Tier-2 accesses: two thirds of
the requested volume is requested again, more than half of the files are read once, analysis reads parts of files, jobs read whole datasets
in campaigns and are run again by the same user after a while.

=========  ===========  =================================================================================================
kind       tier         behaviour
=========  ===========  =================================================================================================
analysis   NANOAODSIM   a user's campaign reads every file of the dataset, and is run again, some times, after a gap
skim       AODSIM, RAW  a campaign reads every file once, and nobody comes back
pileup     PREMIX       a few files of a popular dataset, small parts of them, by everybody, all the time
private    USER         single files of a user, some opened again, most not
=========  ===========  =================================================================================================

New datasets of every kind keep appearing, so that what was learnt of old ones must carry over. An open knows nothing of its kind: only the
LFN (and what was seen before) tells.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter

from ..workload import draw
from ..workload.agenda import Start, arrivals, merged

MIB = 1 << 20
KIB = 1 << 10


@dataclass(frozen=True)
class File:
    """A file at the origin: ``lfn``, ``size`` in bytes, ``serial`` that its content is made from."""

    lfn: str
    size: int
    serial: int


@dataclass(frozen=True)
class Open:
    """One open by one user: at ``time_s`` from the start, then reads of ``ranges`` (offset, length), ``held_s`` after them a close."""

    time_s: float
    file: File
    user: str
    ranges: tuple[tuple[int, int], ...]
    held_s: float = 0.0

    @property
    def bytes_read(self) -> int:
        """What the client reads in all."""
        return sum(length for _, length in self.ranges)

    @property
    def sequential(self) -> bool:
        """Whether the ranges follow each other: a copy, where an analysis would read vectors of baskets."""
        return all(offset + length == following for (offset, length), (following, _) in pairwise(self.ranges))


@dataclass(frozen=True)
class Shape:
    """How much of everything: rates per second, sizes in bytes, times in seconds."""

    seed: int
    duration_s: float
    #: Mean opens per second, all kinds together.
    rate: float
    #: Median size of a file.
    file_size: int
    files_per_dataset: tuple[int, int] = (8, 20)
    #: Mean time until a campaign is run again.
    rerun_gap_s: float = 50.0
    #: Mean number of further runs of an analysis campaign.
    reruns: float = 3.0
    users: int = 6
    #: Mean time that a job keeps a file open after its last read, for it works on what it has read.
    held_s: float = 0.1


#: Share of all opens by kind; the rest of the opens are of private files.
_ANALYSIS, _SKIM, _PILEUP = 0.56, 0.20, 0.12


def generate(shape: Shape) -> list[Open]:
    """The opens of a run, in order of time. The same shape gives the same opens."""
    return list(_Population(shape).opens())


class _Population:
    """Draws campaigns as time goes on and merges their jobs in order of time."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._random = random.Random(shape.seed)  # noqa: S311 - a workload, not a secret
        # Of its own: how long files are held changes nothing of which are opened when.
        self._holding = random.Random(shape.seed)  # noqa: S311
        self._serial = 0
        self._datasets = 0
        self._users = [f"u{number:02d}" for number in range(shape.users)]

    def opens(self) -> Iterator[Open]:
        rate = self._shape.rate
        files = sum(self._shape.files_per_dataset) / 2
        mean_runs = 1 + self._shape.reruns
        streams: tuple[Iterator[Open | Start[Open]], ...] = (
            arrivals(self._random, _ANALYSIS * rate / (files * mean_runs), self._analysis),
            arrivals(self._random, _SKIM * rate / files, self._skim),
            arrivals(self._random, (1 - _ANALYSIS - _SKIM - _PILEUP) * rate / 1.4, self._private),
            self._pileup(_PILEUP * rate),
        )
        # Campaigns that began before the first open are in their later runs by then, as they would be on any day.
        start_s = self._shape.reruns * self._shape.rerun_gap_s
        for one in merged(streams, start_s + self._shape.duration_s):
            if one.time_s >= start_s:
                held_s = min(self._holding.expovariate(1 / self._shape.held_s), 10 * self._shape.held_s)
                yield replace(one, time_s=one.time_s - start_s, held_s=held_s)

    def _analysis(self, now: float) -> Iterator[Open]:
        primary = self._random.choice(draw.PRIMARY)
        dataset = self._dataset("mc", primary, "NANOAODSIM")
        files = self._files(dataset, self._random.randint(*self._shape.files_per_dataset))
        user = self._random.choice(self._users)
        # An analysis reads the same branches of every file, each time.
        part = self._random.uniform(0.3, 1.0)
        runs = 1 + draw.poisson(self._random, self._shape.reruns)
        begin, jobs = now, list[Open]()
        for _ in range(runs):
            jobs += self._campaign(begin, files, user, part)
            begin += self._shape.rerun_gap_s * self._random.uniform(0.5, 1.5)
        yield from sorted(jobs, key=attrgetter("time_s"))

    def _skim(self, now: float) -> Iterator[Open]:
        tier = self._random.choice(("AODSIM", "RAW"))
        dataset = self._dataset("data" if tier == "RAW" else "mc", self._random.choice(draw.PRIMARY), tier)
        files = self._files(dataset, self._random.randint(*self._shape.files_per_dataset), larger=1.5)
        yield from sorted(self._campaign(now, files, self._random.choice(self._users), 1.0), key=attrgetter("time_s"))

    def _private(self, now: float) -> Iterator[Open]:
        user = self._random.choice(self._users)
        (file,) = self._files(f"/store/user/{user}/{self._random.choice(('ntuples', 'limits', 'plots'))}", 1)
        opens = [Open(now, file, user, _ranges(file, self._random.uniform(0.2, 1.0)))]
        while self._random.random() < 0.3:
            now += self._random.expovariate(1 / self._shape.rerun_gap_s)
            opens.append(Open(now, file, user, _ranges(file, 1.0)))
        yield from opens

    def _pileup(self, rate: float) -> Iterator[Open | Start[Open]]:
        files = self._files(self._dataset("mc", "Neutrino_E-10_gun", "PREMIX"), 24, larger=2.0)
        now = 0.0
        while True:
            now += self._random.expovariate(rate)
            yield Start(now, self._read_pileup(now, files))

    def _read_pileup(self, now: float, files: list[File]) -> Iterator[Open]:
        file = files[min(int(self._random.paretovariate(0.9)) - 1, len(files) - 1)]
        yield Open(now, file, self._random.choice(self._users), _ranges(file, 0.15))

    def _campaign(self, begin: float, files: list[File], user: str, part: float) -> list[Open]:
        """One job a file, started over a fifth of a re-run gap."""
        spread = 0.2 * self._shape.rerun_gap_s
        return [Open(begin + self._random.uniform(0, spread), file, user, _ranges(file, part)) for file in files]

    def _dataset(self, area: str, primary: str, tier: str) -> str:
        self._datasets += 1
        return draw.folder(self._random, area, primary, self._datasets, tier)

    def _files(self, folder: str, count: int, larger: float = 1.0) -> list[File]:
        files = []
        for _ in range(count):
            self._serial += 1
            size = int(draw.spread(self._random, larger * self._shape.file_size, 0.5))
            files.append(File(f"{folder}/{draw.file_name(self._random)}", max(size, 64 * KIB), self._serial))
        return files


def _ranges(file: File, part: float) -> tuple[tuple[int, int], ...]:
    """Which bytes are read: the whole file in order, or baskets spread over it, the same ones each time the same part is read."""
    if part > 0.95:
        return tuple((offset, min(MIB, file.size - offset)) for offset in range(0, file.size, MIB))
    basket = 128 * KIB
    baskets = max(1, file.size // basket)
    chosen = random.Random(file.serial).sample(range(baskets), max(1, round(part * baskets)))  # noqa: S311 - a workload, not a secret
    return tuple((index * basket, min(basket, file.size - index * basket)) for index in sorted(chosen))

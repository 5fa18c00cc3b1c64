"""Accesses, and datasets whose files can be listed again whenever they are read: nothing of a dataset is kept but its number."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from . import draw
from .agenda import Start, merged

DAY_S = 86400.0
GB = 1_000_000_000


class Access(NamedTuple):
    """One open of a file: when (seconds from the start), of what size it is, and how much of it is read, both in bytes."""

    time_s: float
    lfn: str
    size: int
    bytes_read: int
    user: str


#: What a workload is made of.
Events = Iterator[Access | Start[Access]]


def generator(seed: int, *what: object) -> random.Random:
    """Random numbers of their own for each thing that is drawn, the same for the same seed."""
    return random.Random(" ".join(map(str, (seed, *what))))  # noqa: S311 - a workload, not a secret


@dataclass(frozen=True)
class Dataset:
    """``files`` files of a folder; sizes are log-normal around ``median_bytes``."""

    seed: int
    serial: int
    folder: str
    files: int
    median_bytes: float
    sigma: float

    def listed(self) -> list[tuple[str, int]]:
        """LFN and size in bytes of each file, always the same, in the order in which jobs read them."""
        rng = generator(self.seed, "files", self.serial)
        return [
            (f"{self.folder}/{draw.file_name(rng)}", max(1, round(draw.spread(rng, self.median_bytes, self.sigma))))
            for _ in range(self.files)
        ]


class Catalogue:
    """Makes new datasets, each with a number of its own. Not thread-safe."""

    def __init__(self, seed: int, rng: random.Random, first: int = 0) -> None:
        self._seed = seed
        self._rng = rng
        self._made = first

    def new(self, area: str, tier: str, files: int, median_bytes: float, sigma: float, primary: str = "") -> Dataset:
        """A dataset nobody has read yet."""
        self._made += 1
        primary = primary or self._rng.choice(draw.PRIMARY)
        folder = draw.folder(self._rng, area, primary, self._made, tier)
        return Dataset(self._seed, self._made, folder, files, median_bytes, sigma)


def one_pass(
    rng: random.Random, dataset: Dataset, begin_s: float, lasts_s: float, beside: int, part: float, user: str, until: float = 1.0
) -> list[Access]:
    """A job for each file, one after the other with ``beside`` of them at a time: in their order, but for what jobs overtake each other.

    ``part`` of each file is read; ``until``: the share of the files after which the pass is given up.
    """
    files = dataset.listed()
    step_s, beside = lasts_s / len(files), min(beside, len(files))
    opened = [
        Access(begin_s + step_s * (number + rng.uniform(0, beside)), lfn, size, max(1, round(part * size)), user)
        for number, (lfn, size) in enumerate(files[: max(1, round(until * len(files)))])
    ]
    opened.sort(key=lambda access: access.time_s)
    return opened


def from_the_start(streams: list[Events], lead_s: float, days: float) -> Iterator[Access]:
    """The accesses of a trace of so many days, from 0 on: what comes in the first ``lead_s`` of the streams is before it."""
    for access in merged(streams, lead_s + days * DAY_S):
        if access.time_s >= lead_s:
            yield access._replace(time_s=access.time_s - lead_s)

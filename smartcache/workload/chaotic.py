"""Chaotic analysis: whoever reads whatever, a few files very often and most of them once.

How often a file is read is drawn from counts that were published, file by file; that files of a dataset are alike popular comes from a
Gaussian copula: each file's normal deviate has a part that is its dataset's. A dataset is read for a while. What lies past the end of the
trace is put at its beginning, so that each moment of the trace looks alike and the counts stay those that were drawn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import ClassVar, Final

from . import draw
from .agenda import Start
from .datasets import DAY_S, GB, Access, Catalogue, Dataset, Events, generator
from .parameters import ASSUMED, EOS, FREIBURG, Parameters, WrongParameter, parameter

_NORMAL: Final = NormalDist()
#: The counts at which EOS's shares are stated, in the order of the parameters.
_STATED: Final = (2, 5, 10, 100)


@dataclass(frozen=True)
class Chaotic(Parameters):
    """See the module."""

    kind: ClassVar[str] = "chaotic"
    about: ClassVar[str] = "many users read files of popular and unpopular datasets, in no order; most files once, few very often"

    twice_share: float = parameter(0.44, "share of the files that are read at least twice", f"{EOS}: 56 % are read once", 0.0, 1.0)
    five_share: float = parameter(0.089, "at least five times", f"{EOS}: 8.9 %", 0.0, 1.0)
    ten_share: float = parameter(0.040, "at least ten times", f"{EOS}: 4.0 %", 0.0, 1.0)
    hundred_share: float = parameter(0.0083, "at least a hundred times", f"{EOS}: 0.83 %", 0.0, 1.0)
    most_reads: int = parameter(
        5000, "of the most popular file", f"{EOS}: chosen so that the files read 100 times take 80 % of the reads", 101, 10_000_000
    )
    alike: float = parameter(0.5, "share of a file's popularity that is its dataset's (variance of the normal deviate)", ASSUMED, 0.0, 1.0)
    files_per_dataset: float = parameter(30.0, "median files of a dataset", ASSUMED, 1.0, 1e6)
    files_sigma: float = parameter(0.8, "spread of that: standard deviation of the logarithm", ASSUMED, 0.0, 3.0)
    file_gb: float = parameter(1.3, "median size of a file, GB", f"{FREIBURG}: the small file, 1.3 GB", 1e-6, 1e4)
    size_sigma: float = parameter(1.15, "spread of that", f"{FREIBURG}: from 1.3 to 4.9 and 13 GB", 0.0, 3.0)
    active_days: float = parameter(6.0, "median time over which a dataset is read, days", ASSUMED, 0.01, 3660.0)
    active_sigma: float = parameter(0.8, "spread of that", ASSUMED, 0.0, 2.0)
    least_part: float = parameter(0.1, "least part of a file that is read; up to all of it, uniformly", ASSUMED, 0.001, 1.0)
    users: int = parameter(60, "users", ASSUMED, 1, 100_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = (1.0, self.twice_share, self.five_share, self.ten_share, self.hundred_share)
        if any(more > less for less, more in pairwise(shares)):
            raise WrongParameter(f"{self.kind}: twice_share, five_share, ten_share and hundred_share must not rise, they are {shares[1:]}")


class Counts:
    """How often files are read: a count for each share of them, log-linear between what is stated."""

    def __init__(self, parameters: Chaotic) -> None:
        shares = (parameters.twice_share, parameters.five_share, parameters.ten_share, parameters.hundred_share)
        #: (share of the files that are read at least so often, count), the shares falling; shares of 0 left out.
        self._points = [(1.0, 1), *((share, count) for share, count in zip(shares, _STATED, strict=True) if share > 0)]
        self._most = parameters.most_reads

    def of(self, above: float) -> int:
        """The count of the file that a share ``above`` of all files is read more often than."""
        points = self._points
        place = sum(share > above for share, _ in points) - 1
        share, count = points[max(place, 0)]
        if count == 1:
            return 1
        if place + 1 < len(points):
            next_share, next_count = points[place + 1]
            # Zipf's law between two points that are known.
            exponent = math.log(next_count / count) / math.log(share / next_share) if next_share < share else 0.0
            return min(next_count - 1, int(count * (share / max(above, 1e-12)) ** exponent))
        # Past the last: uniform in the logarithm.
        last = max(self._most, count + 1)
        return min(last, int(count * (last / count) ** (1 - above / share)))

    def mean(self) -> float:
        """Reads of a file on average."""
        steps = 20_000
        return sum(self.of((step + 0.5) / steps) for step in range(steps)) / steps


def events(parameters: Chaotic, seed: int) -> tuple[list[Events], float]:
    """The streams, and 0: nothing comes before the trace."""
    counts = Counts(parameters)
    span_s = parameters.days * DAY_S
    files = parameters.days * parameters.opens_per_day / counts.mean()
    datasets = max(1, round(files / draw.mean_of_spread(parameters.files_per_dataset, parameters.files_sigma)))
    return [_starts(parameters, seed, counts, datasets, span_s)], 0.0


def _starts(parameters: Chaotic, seed: int, counts: Counts, datasets: int, span_s: float) -> Events:
    """First what began before the end and goes on at the beginning, then each dataset in its turn."""
    for number in range(datasets):
        if _Activity(parameters, seed, number, datasets, span_s).wraps:
            yield Start(0.0, _reads(parameters, seed, counts, number, datasets, span_s, late=True))
    for number in range(datasets):
        begin_s = _Activity(parameters, seed, number, datasets, span_s).begin_s
        yield Start(begin_s, _reads(parameters, seed, counts, number, datasets, span_s, late=False))


class _Activity:
    """When a dataset is read, and by how many files it is: always the same for the same number."""

    def __init__(self, parameters: Chaotic, seed: int, number: int, datasets: int, span_s: float) -> None:
        self.rng = generator(seed, "chaotic", number)
        self.begin_s = span_s * (number + self.rng.random()) / datasets
        self.lasts_s = min(span_s, draw.spread(self.rng, parameters.active_days, parameters.active_sigma) * DAY_S)
        self.wraps = self.begin_s + self.lasts_s > span_s


def _reads(parameters: Chaotic, seed: int, counts: Counts, number: int, datasets: int, span_s: float, *, late: bool) -> Iterator[Access]:
    """The reads of a dataset that come before the end of the trace; ``late``: those after it."""
    active = _Activity(parameters, seed, number, datasets, span_s)
    rng = active.rng
    dataset = _dataset(parameters, seed, number, rng)
    popular = rng.gauss(0, 1)
    users = [f"u{rng.randrange(parameters.users):05d}" for _ in range(1 + draw.poisson(rng, 3))]
    part = rng.uniform(parameters.least_part, 1.0)
    times: list[tuple[float, int]] = []
    files = dataset.listed()
    for file in range(len(files)):
        deviate = math.sqrt(parameters.alike) * popular + math.sqrt(1 - parameters.alike) * rng.gauss(0, 1)
        for _ in range(counts.of(1 - _NORMAL.cdf(deviate))):
            time_s = active.begin_s + active.lasts_s * rng.random()
            if (time_s >= span_s) == late:
                times.append((time_s - span_s if late else time_s, file))
    times.sort()
    for time_s, file in times:
        lfn, size = files[file]
        yield Access(time_s, lfn, size, max(1, round(part * size)), rng.choice(users))


def _dataset(parameters: Chaotic, seed: int, number: int, rng: random.Random) -> Dataset:
    files = max(1, round(draw.spread(rng, parameters.files_per_dataset, parameters.files_sigma)))
    catalogue = Catalogue(seed, rng, first=number)
    return catalogue.new("group", rng.choice(("USER", "NANOAOD")), files, parameters.file_gb * GB, parameters.size_sigma)

"""What is drawn alike in every workload: names as CMS has them, sizes, counts."""

from __future__ import annotations

import math
import random
from typing import Final

PRIMARY: Final = ("TTTo2L2Nu", "DYJetsToLL", "WJetsToLNu", "QCD_HT", "ZZTo4L", "SingleMuon", "JetHT", "EGamma", "ttHToNonbb", "WWTo2L2Nu")
CAMPAIGNS: Final = ("RunIISummer20UL18", "RunIIAutumn18", "Run3Summer22", "Run3Winter24")


def folder(rng: random.Random, area: str, primary: str, serial: int, tier: str) -> str:
    """The folder of a dataset, one of its own by ``serial``."""
    return f"/store/{area}/{rng.choice(CAMPAIGNS)}/{primary}-v{serial}/{tier}"


def file_name(rng: random.Random) -> str:
    """The name of a file within its dataset."""
    return f"{rng.getrandbits(64):016X}.root"


def spread(rng: random.Random, median: float, sigma: float) -> float:
    """Log-normal: ``sigma`` is the standard deviation of the logarithm."""
    return median * math.exp(rng.gauss(0, sigma))


def mean_of_spread(median: float, sigma: float) -> float:
    """What :func:`spread` gives on average."""
    return median * math.exp(sigma * sigma / 2)


def poisson(rng: random.Random, mean: float) -> int:
    """Knuth's method; for small means."""
    limit, count, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        count += 1
        product *= rng.random()
    return count


def geometric(rng: random.Random, mean: float) -> int:
    """1 or more, with this mean (at least 1)."""
    if mean <= 1:
        return 1
    return 1 + int(math.log(1 - rng.random()) / math.log(1 - 1 / mean))

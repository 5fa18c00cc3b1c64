"""Production and reprocessing: datasets are read whole, once, and nobody comes back, beside a pile-up library that all jobs read from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from . import draw
from .agenda import Start, arrivals
from .datasets import DAY_S, GB, Access, Catalogue, Dataset, Events, generator, one_pass
from .parameters import ASSUMED, ATLAS, FREIBURG, INFN, LMU, Parameters, parameter


@dataclass(frozen=True)
class Production(Parameters):
    """See the module."""

    kind: ClassVar[str] = "production"
    about: ClassVar[str] = "datasets are read whole, once, file by file, with a pile-up library that jobs read from at random"

    files_per_dataset: float = parameter(
        220.0, "median files of a dataset", f"{ATLAS}, 3.1: a dataset of about 5000 files; scaled as opens_per_day", 1.0, 1e6
    )
    files_sigma: float = parameter(0.8, "spread of that: standard deviation of the logarithm", ASSUMED, 0.0, 3.0)
    file_gb: float = parameter(
        4.9, "median size of a file, GB", f"{FREIBURG}: small, medium and large files of 1.3, 4.9 and 13 GB", 1e-6, 1e4
    )
    size_sigma: float = parameter(1.15, "spread of that", f"{FREIBURG}: 1.3 and 13 GB as one standard deviation", 0.0, 3.0)
    pass_days: float = parameter(1.5, "median time that reading a dataset takes, days", ASSUMED, 0.001, 30.0)
    pass_sigma: float = parameter(0.6, "spread of that", ASSUMED, 0.0, 2.0)
    jobs_beside: int = parameter(20, "jobs of a workflow that run at the same time", ASSUMED, 1, 10_000)
    part: float = parameter(1.0, "part of a file that a job reads", f"{LMU}: no streaming, all data is copied to scratch disk", 0.001, 1.0)
    retry_share: float = parameter(
        0.03, "jobs that fail and read their file again", f"{INFN}, table 1: 3 % of the time with a cold cache", 0.0, 1.0
    )
    retry_hours: float = parameter(3.0, "mean time until then, hours", ASSUMED, 0.01, 1000.0)
    pileup_share: float = parameter(
        0.15,
        "share of all opens that are of the pile-up library",
        f"{LMU}: most reuse came from the pile-up sample; how much is assumed",
        0.0,
        0.99,
    )
    pileup_files: int = parameter(150, "files of the library", ASSUMED, 1, 1_000_000)
    pileup_days: float = parameter(15.0, "the library is another one after so many days", ASSUMED, 0.01, 3660.0)


def events(parameters: Production, seed: int) -> tuple[list[Events], float]:
    """The streams, and how many seconds of them come before the trace begins."""
    rng = generator(seed, "production")
    catalogue = Catalogue(seed, rng, first=1_000_000)
    files = draw.mean_of_spread(parameters.files_per_dataset, parameters.files_sigma)
    opens = parameters.opens_per_day / DAY_S
    rate = (1 - parameters.pileup_share) * opens / (files * (1 + parameters.retry_share))
    streams: list[Events] = [arrivals(rng, rate, lambda now: _workflow(parameters, rng, catalogue, now))]
    if parameters.pileup_share > 0:
        streams.append(_pileup(parameters, seed, parameters.pileup_share * opens))
    return streams, 4 * parameters.pass_days * DAY_S


def _workflow(parameters: Production, rng: random.Random, catalogue: Catalogue, now: float) -> Iterator[Access]:
    files = max(1, round(draw.spread(rng, parameters.files_per_dataset, parameters.files_sigma)))
    area, tier = rng.choice((("data", "RAW"), ("mc", "GEN-SIM"), ("mc", "AODSIM")))
    dataset = catalogue.new(area, tier, files, parameters.file_gb * GB, parameters.size_sigma)
    lasts_s = draw.spread(rng, parameters.pass_days, parameters.pass_sigma) * DAY_S
    jobs = one_pass(rng, dataset, now, lasts_s, parameters.jobs_beside, parameters.part, "production")
    again = [
        job._replace(time_s=job.time_s + rng.expovariate(1 / (parameters.retry_hours * 3600)))
        for job in jobs
        if rng.random() < parameters.retry_share
    ]
    yield from sorted([*jobs, *again], key=lambda access: access.time_s)


def _pileup(parameters: Production, seed: int, rate: float) -> Iterator[Access | Start[Access]]:
    """Reads of the library of the time, each file as likely."""
    rng = generator(seed, "pileup")
    catalogue = Catalogue(seed, rng, first=2_000_000)
    library: Dataset | None = None
    files: list[tuple[str, int]] = []
    now, renewed_s = 0.0, 0.0
    while True:
        now += rng.expovariate(rate)
        if library is None or now >= renewed_s:
            library = catalogue.new(
                "mc", "PREMIX", parameters.pileup_files, parameters.file_gb * GB, parameters.size_sigma, "Neutrino_E-10_gun"
            )
            files, renewed_s = library.listed(), now + parameters.pileup_days * DAY_S
        lfn, size = rng.choice(files)
        yield Access(now, lfn, size, max(1, round(parameters.part * size)), "production")

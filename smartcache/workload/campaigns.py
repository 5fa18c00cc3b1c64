"""Campaigns: a group reads a dataset file by file, and many of them read it again days later; some give up half-way and never come back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from . import draw
from .agenda import Start, arrivals
from .datasets import DAY_S, GB, Access, Catalogue, Dataset, Events, generator, one_pass
from .parameters import ASSUMED, ATLAS, FREIBURG, INFN, Parameters, parameter


@dataclass(frozen=True)
class Campaigns(Parameters):
    """See the module."""

    kind: ClassVar[str] = "campaigns"
    about: ClassVar[str] = "datasets are read file by file, and again by the same or another user after days; some are abandoned"

    files_per_dataset: float = parameter(
        220.0, "median files of a dataset", f"{ATLAS}, 3.1: a dataset of about 5000 files; scaled as opens_per_day", 1.0, 1e6
    )
    files_sigma: float = parameter(0.8, "spread of that: standard deviation of the logarithm", ASSUMED, 0.0, 3.0)
    file_gb: float = parameter(
        4.9, "median size of a file, GB", f"{FREIBURG}: small, medium and large files of 1.3, 4.9 and 13 GB", 1e-6, 1e4
    )
    size_sigma: float = parameter(
        1.15, "spread of that", f"{FREIBURG}: 1.3 and 13 GB are taken as one standard deviation from 4.9 GB", 0.0, 3.0
    )
    again_share: float = parameter(
        0.667,
        "share of the datasets that are read again",
        f"{INFN}, fig. 6: two thirds of the volume are requested again in a month",
        0.0,
        1.0,
    )
    further_passes: float = parameter(2.0, "mean further passes of those", ASSUMED, 1.0, 100.0)
    gap_days: float = parameter(4.0, "median time from the beginning of a pass to that of the next, days", ASSUMED, 0.01, 365.0)
    gap_sigma: float = parameter(0.6, "spread of that", ASSUMED, 0.0, 2.0)
    other_user_share: float = parameter(
        0.4,
        "share of the further passes that another user makes",
        f"{INFN}, conclusion of section 3: around 40 % is accessed again",
        0.0,
        1.0,
    )
    pass_days: float = parameter(0.7, "median time that a pass takes, days", ASSUMED, 0.001, 30.0)
    pass_sigma: float = parameter(0.6, "spread of that", ASSUMED, 0.0, 2.0)
    jobs_beside: int = parameter(8, "jobs of a pass that run at the same time", ASSUMED, 1, 10_000)
    abandoned_share: float = parameter(0.1, "share of the passes that are given up half-way; nobody comes back", ASSUMED, 0.0, 1.0)
    least_part: float = parameter(0.3, "least part of a file that an analysis reads; up to all of it, uniformly", ASSUMED, 0.001, 1.0)
    users: int = parameter(40, "users", ASSUMED, 1, 100_000)


def events(parameters: Campaigns, seed: int) -> tuple[list[Events], float]:
    """The streams, and how many seconds of them come before the trace begins: by then, campaigns are in all their passes."""
    rng = generator(seed, "campaigns")
    lead_s = 2 * parameters.further_passes * parameters.gap_days * DAY_S
    catalogue = Catalogue(seed, rng)
    rate = parameters.opens_per_day / DAY_S / opens_of_one(parameters)
    return [arrivals(rng, rate, lambda now: _campaign(parameters, rng, catalogue, now))], lead_s


def opens_of_one(parameters: Campaigns) -> float:
    """Opens that a campaign makes on average."""
    files = draw.mean_of_spread(parameters.files_per_dataset, parameters.files_sigma)
    kept = 1 - parameters.abandoned_share
    # Of the first pass, and of each further one as long as none was given up; half a pass where one is.
    chance, whole = 1.0, 0.0
    for further in range(200):
        whole += chance * (kept + 0.5 * parameters.abandoned_share)
        more = parameters.again_share if further == 0 else 1 - 1 / parameters.further_passes
        chance *= kept * more
    return files * whole


def _campaign(parameters: Campaigns, rng: random.Random, catalogue: Catalogue, now: float) -> Events:
    files = max(1, round(draw.spread(rng, parameters.files_per_dataset, parameters.files_sigma)))
    dataset = catalogue.new("mc", rng.choice(("NANOAODSIM", "MINIAODSIM")), files, parameters.file_gb * GB, parameters.size_sigma)
    user = f"u{rng.randrange(parameters.users):05d}"
    part = rng.uniform(parameters.least_part, 1.0)
    further = draw.geometric(rng, parameters.further_passes) if rng.random() < parameters.again_share else 0
    for _ in range(1 + further):
        abandoned = rng.random() < parameters.abandoned_share
        yield Start(now, _pass(parameters, rng, dataset, now, part, user, rng.random() if abandoned else 1.0))
        if abandoned:
            return
        now += draw.spread(rng, parameters.gap_days, parameters.gap_sigma) * DAY_S
        if rng.random() < parameters.other_user_share:
            user = f"u{rng.randrange(parameters.users):05d}"
            part = rng.uniform(parameters.least_part, 1.0)


def _pass(
    parameters: Campaigns, rng: random.Random, dataset: Dataset, now: float, part: float, user: str, until: float
) -> Iterator[Access]:
    lasts_s = draw.spread(rng, parameters.pass_days, parameters.pass_sigma) * DAY_S
    yield from one_pass(rng, dataset, now, lasts_s, parameters.jobs_beside, part, user, until)

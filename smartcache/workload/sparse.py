"""The last step of an analysis: small parts of each file of a dataset, the same columns again and again within hours, then seldom."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from . import draw
from .agenda import Start, arrivals
from .datasets import DAY_S, GB, Access, Catalogue, Dataset, Events, generator, one_pass
from .parameters import ASSUMED, ATLAS, LMU, Parameters, parameter


@dataclass(frozen=True)
class Sparse(Parameters):
    """See the module."""

    kind: ClassVar[str] = "sparse"
    about: ClassVar[str] = "columnar analysis: a small part of each file of a dataset, read again and again for a few days"

    files_per_dataset: float = parameter(
        320.0, "median files of a dataset", f"{LMU}: 7000 PHYSLITE files of 2015 data; scaled as opens_per_day", 1.0, 1e6
    )
    files_sigma: float = parameter(0.8, "spread of that: standard deviation of the logarithm", ASSUMED, 0.0, 3.0)
    file_gb: float = parameter(0.143, "median size of a file, GB", f"{LMU}: about 1 TB in 7000 files", 1e-6, 1e4)
    size_sigma: float = parameter(0.5, "spread of that", ASSUMED, 0.0, 3.0)
    part: float = parameter(0.02, "median part of a file that a columnar analysis reads", f"{LMU}: about 2 % of the data", 1e-4, 1.0)
    part_sigma: float = parameter(0.7, "spread of that", ASSUMED, 0.0, 2.0)
    streaming_share: float = parameter(0.3, "share of the analyses that are not columnar", ASSUMED, 0.0, 1.0)
    streaming_part: float = parameter(
        0.10, "part of a file that those read", f"{ATLAS}, section 1: a typical job may consume only 10 % of the file content", 1e-4, 1.0
    )
    passes: float = parameter(5.0, "mean passes of an analysis over its dataset", ASSUMED, 1.0, 1000.0)
    gap_hours: float = parameter(8.0, "median time from the beginning of a pass to that of the next, hours", ASSUMED, 0.01, 1e4)
    gap_sigma: float = parameter(1.0, "spread of that", ASSUMED, 0.0, 2.0)
    pass_hours: float = parameter(
        0.125, "median time that a pass takes, hours", f"{LMU}: 7000 files were read within 5 to 10 minutes by 100 tasks", 1e-3, 1e3
    )
    pass_sigma: float = parameter(0.5, "spread of that", ASSUMED, 0.0, 2.0)
    jobs_beside: int = parameter(100, "jobs of a pass that run at the same time", f"{LMU}: about 100 parallel tasks", 1, 10_000)
    shared_share: float = parameter(0.3, "share of the analyses of a dataset that another analysis has begun to read", ASSUMED, 0.0, 1.0)
    users: int = parameter(30, "users", ASSUMED, 1, 100_000)


#: Datasets of late that another analysis may take up.
_RECENT = 12


def events(parameters: Sparse, seed: int) -> tuple[list[Events], float]:
    """The streams, and how many seconds of them come before the trace begins."""
    rng = generator(seed, "sparse")
    catalogue = Catalogue(seed, rng, first=3_000_000)
    recent: list[Dataset] = []
    files = draw.mean_of_spread(parameters.files_per_dataset, parameters.files_sigma)
    rate = parameters.opens_per_day / DAY_S / (files * parameters.passes)
    lead_s = 3 * parameters.passes * draw.mean_of_spread(parameters.gap_hours, parameters.gap_sigma) * 3600
    return [arrivals(rng, rate, lambda now: _analysis(parameters, rng, catalogue, recent, now))], lead_s


def _analysis(parameters: Sparse, rng: random.Random, catalogue: Catalogue, recent: list[Dataset], now: float) -> Events:
    if recent and rng.random() < parameters.shared_share:
        dataset = rng.choice(recent)
    else:
        files = max(1, round(draw.spread(rng, parameters.files_per_dataset, parameters.files_sigma)))
        dataset = catalogue.new("mc", "PHYSLITE", files, parameters.file_gb * GB, parameters.size_sigma)
        recent.append(dataset)
        del recent[:-_RECENT]
    user = f"u{rng.randrange(parameters.users):05d}"
    streaming = rng.random() < parameters.streaming_share
    part = parameters.streaming_part if streaming else min(1.0, draw.spread(rng, parameters.part, parameters.part_sigma))
    for _ in range(draw.geometric(rng, parameters.passes)):
        yield Start(now, _pass(parameters, rng, dataset, now, part, user))
        now += draw.spread(rng, parameters.gap_hours, parameters.gap_sigma) * 3600


def _pass(parameters: Sparse, rng: random.Random, dataset: Dataset, now: float, part: float, user: str) -> Iterator[Access]:
    lasts_s = draw.spread(rng, parameters.pass_hours, parameters.pass_sigma) * 3600
    yield from one_pass(rng, dataset, now, lasts_s, parameters.jobs_beside, part, user)

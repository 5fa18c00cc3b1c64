"""A site: campaigns, chaotic analysis and production at one cache, people by day and on working days, machines all the time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Final

import numpy as np

from . import campaigns, chaotic, production
from .agenda import merged
from .datasets import DAY_S, Access, Events, from_the_start
from .parameters import ASSUMED, INFN, MWT2, Parameters, WrongParameter, parameter

_HOURS: Final = 7 * 24


@dataclass(frozen=True)
class Site(Parameters):
    """See the module. The kinds that it is made of have their own defaults."""

    kind: ClassVar[str] = "site"
    about: ClassVar[str] = (
        "campaigns, chaotic analysis and production at one cache, with the rhythm of day and week, and abandoned datasets"
    )

    chaotic_share: float = parameter(
        0.3,
        "share of the opens that is chaotic analysis",
        f"{MWT2}: with the next, an infinite cache hits about 60 % of the bytes",
        0.0,
        1.0,
    )
    production_share: float = parameter(0.1, "share of the opens that is production; the rest are campaigns", f"{MWT2}: as above", 0.0, 1.0)
    again_share: float = parameter(
        0.667, "share of the campaigns' datasets that are read again", f"{INFN}, fig. 6: two thirds of the volume", 0.0, 1.0
    )
    further_passes: float = parameter(5.0, "mean further passes of those", f"{MWT2}: as above", 1.0, 100.0)
    abandoned_share: float = parameter(
        0.1, "share of the campaigns' passes that are given up half-way; nobody comes back", ASSUMED, 0.0, 1.0
    )
    day_swing: float = parameter(
        0.6, "how far people's rate goes above and below its mean within a day, as a share of it", ASSUMED, 0.0, 1.0
    )
    busiest_hour: float = parameter(15.0, "hour of the day at which that is highest", ASSUMED, 0.0, 24.0)
    weekend_rate: float = parameter(0.4, "people's rate on the last two days of a week over that on the others", ASSUMED, 0.01, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        together = self.chaotic_share + self.production_share
        if together > 1:
            raise WrongParameter(f"{self.kind}: chaotic_share and production_share must be at most 1 together, not {together:g}")


class Rhythm:
    """Time as people spend it: what would come evenly comes by day and on working days. The trace begins on a Monday, at midnight."""

    def __init__(self, parameters: Site) -> None:
        rates = [
            (1 + parameters.day_swing * math.cos(2 * math.pi * (hour % 24 + 0.5 - parameters.busiest_hour) / 24))
            * (parameters.weekend_rate if hour >= 5 * 24 else 1.0)
            for hour in range(_HOURS)
        ]
        total = sum(rates)
        self._spent = np.array([0.0, *accumulate(rates)]) * (_HOURS * 3600 / total)
        self._clock = np.arange(_HOURS + 1) * 3600.0

    def at(self, spent_s: float) -> float:
        """The time on the clock at which so much time of people has been spent; both in seconds, never going back."""
        week_s = _HOURS * 3600.0
        weeks, rest = divmod(spent_s, week_s)
        return float(weeks * week_s + np.interp(rest, self._spent, self._clock))


def events(parameters: Site, seed: int) -> tuple[list[Events], float]:
    """The streams, and 0: nothing comes before the trace."""
    rhythm = Rhythm(parameters)
    # People's accesses are drawn for a week more: at the end of the trace the clock may be ahead of what they have spent.
    days = parameters.days + 7
    own = 1 - parameters.chaotic_share - parameters.production_share
    streams: list[Iterator[Access]] = []
    if own > 0:
        kind = campaigns.Campaigns(
            opens_per_day=own * parameters.opens_per_day,
            again_share=parameters.again_share,
            further_passes=parameters.further_passes,
            abandoned_share=parameters.abandoned_share,
            days=days,
        )
        streams.append(_by_day(rhythm, from_the_start(*campaigns.events(kind, seed), kind.days)))
    if parameters.chaotic_share > 0:
        mixed = chaotic.Chaotic(opens_per_day=parameters.chaotic_share * parameters.opens_per_day, days=days)
        streams.append(_by_day(rhythm, from_the_start(*chaotic.events(mixed, seed), mixed.days)))
    if parameters.production_share > 0:
        made = production.Production(opens_per_day=parameters.production_share * parameters.opens_per_day, days=parameters.days)
        streams.append(from_the_start(*production.events(made, seed), made.days))
    return [merged(streams, parameters.days * DAY_S)], 0.0


def _by_day(rhythm: Rhythm, accesses: Iterator[Access]) -> Iterator[Access]:
    for access in accesses:
        yield access._replace(time_s=rhythm.at(access.time_s))

"""What misses cost a site besides bytes: the link to the origin, and the processor time of those who wait.

The link
    All that is fetched goes over one link of ``origin_bytes_per_s``, shared by all who read, as the network in equation 1 of
    Caspart et al., "Advancing throughput of HEP analysis work-flows using caching concepts" (KIT), where what is not cached takes
    (1 - x) V / r_network. What comes faster than the link can carry waits in a queue, first come, first served: a fluid queue, fed evenly
    within each window of the trace, which drains at r_network. By Little's law the mean wait of a byte is the integral of the queue over
    time, divided by the bytes. A burst shorter than a window is not seen: more windows see more. The trace itself does not slow down.

CPU efficiency
    The ratio of the sum of CPU time to the sum of wall time, as Ciangottini et al., "Integration of the Italian cache federation within the
    CMS computing model" (INFN) define it, with what they measured for one analysis (table 1): 92 % from a warm cache, 87 % through a cold
    one, 78 % from afar without a cache. With equal CPU time for each byte that is read, the wall time of a byte is in proportion to 1 / its
    efficiency, so that over all bytes

        efficiency = bytes / (hit / e_hit + missed and stored / e_miss + bypassed / e_bypass)

    The wait for the link is not in it: how much CPU time a byte takes is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smartcache.config import Config

    from .figures import Window


@dataclass(frozen=True)
class Site:
    """The link in bytes/s, 0 where it has no bound, and the CPU efficiencies of bytes that are hit, missed and stored, bypassed."""

    origin_bytes_per_s: float = 0.0
    cpu_efficiency_hit: float = 1.0
    cpu_efficiency_miss: float = 1.0
    cpu_efficiency_bypass: float = 1.0

    @classmethod
    def of(cls, config: Config) -> Site:
        """As section ``simulate`` of ``config`` has it."""
        given = config.simulate
        return cls(given.origin_bytes_per_s, given.cpu_efficiency_hit, given.cpu_efficiency_miss, given.cpu_efficiency_bypass)


@dataclass(frozen=True)
class Link:
    """How the link was used in the judged windows: bytes/s on average, its share of the bound, and the mean seconds that a byte waited.

    None: no time passed; the last two also where there is no bound.
    """

    bytes_per_s: float | None
    share: float | None
    wait_s: float | None


def link(windows: Sequence[Window], bound: float) -> Link:
    """Of the windows of one run, in their order. What the unjudged ones have left in the queue counts."""
    if not windows:
        return Link(None, None, None)
    ends = [*(window.from_s for window in windows[1:]), windows[-1].to_s]
    queue = waited = fetched = seconds = 0.0
    for window, end in zip(windows, ends, strict=True):
        lasts = max(0.0, end - window.from_s)
        area, queue = _through(queue, window.fetched_bytes, lasts, bound)
        if window.judged:
            waited, fetched, seconds = waited + area, fetched + window.fetched_bytes, seconds + lasts
    if seconds <= 0:
        return Link(None, None, None)
    rate = fetched / seconds
    if not bound:
        return Link(rate, None, None)
    # The end of the trace does not end the wait.
    waited += queue * queue / (2 * bound)
    return Link(rate, rate / bound, waited / fetched if fetched else 0.0)


def _through(queue: float, arrives: float, seconds: float, bound: float) -> tuple[float, float]:
    """A window: the integral of the queue over it, and the queue at its end."""
    if not bound:
        return 0.0, 0.0
    after = queue + arrives - bound * seconds
    if after >= 0:
        return (queue + after) / 2 * seconds, after
    # It is empty before the end, and stays so.
    emptied = queue * seconds / (queue - after)
    return queue / 2 * emptied, 0.0


def cpu_efficiency(sums: Mapping[str, int], site: Site) -> float | None:
    """By the formula above, of counts; None where nothing was read."""
    if not sums["bytes"]:
        return None
    hit, missed = sums["hit_bytes"], sums["bytes"] - sums["hit_bytes"]
    bypassed = min(missed, max(0, sums["fetched_bytes"] - sums["written_bytes"]))
    wall = hit / site.cpu_efficiency_hit + (missed - bypassed) / site.cpu_efficiency_miss + bypassed / site.cpu_efficiency_bypass
    return sums["bytes"] / wall

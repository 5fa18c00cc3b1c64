"""The gate of latency: how long an endpoint takes to answer for a version, timed before that version serves.

As a plugin asks: single rows, one after the other, on one connection that is kept. Measured from this host, so the network is in it. A
host that is busy for a moment must not refuse a model: where the limits are passed, it is measured again, and the best of three counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from smartcache.config import Gates as Settings

from .bundle import Bundle
from .gates import Gate
from .serving import ANSWER_TIMEOUT_S, TIMED_S, Endpoint

GATE: Final = "latency"
_TRIES: Final = 3
#: One endpoint is given so long in all, then it counts as away: the next one waits for it.
MOST_S: Final = _TRIES * (TIMED_S + ANSWER_TIMEOUT_S)


@dataclass(frozen=True)
class Latency:
    """What one endpoint took for ``requests`` predictions; milliseconds."""

    url: str
    requests: int
    p50_ms: float
    p99_ms: float

    def within(self, settings: Settings) -> bool:
        """Whether it is within the limits."""
        return self.p50_ms <= settings.latency_p50_ms and self.p99_ms <= settings.latency_p99_ms

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:.3f} ms, p99 {self.p99_ms:.3f} ms at {self.url}"


def measure(endpoint: Endpoint, bundle: Bundle, settings: Settings) -> Latency:
    """Time ``endpoint``, which has ``bundle``. Raises :class:`~.serving.ServingError`."""
    found: list[Latency] = []
    for _ in range(_TRIES):
        seconds = endpoint.timed(bundle, settings.latency_requests)
        p50, p99 = (float(np.quantile(seconds, share, method="higher")) * 1e3 for share in (0.5, 0.99))
        found.append(Latency(endpoint.url, len(seconds), p50, p99))
        if found[-1].within(settings):
            break
    return min(found, key=lambda each: each.p99_ms / settings.latency_p99_ms + each.p50_ms / settings.latency_p50_ms)


def gate(found: Sequence[Latency], settings: Settings) -> Gate:
    """The gate's answer about what was measured, at least one."""
    rule = f"p50 at most {settings.latency_p50_ms:g} ms, p99 at most {settings.latency_p99_ms:g} ms, one connection, at each endpoint"
    value = "; ".join(f"{each} ({each.requests} requests)" for each in found)
    return Gate(GATE, value, rule, all(each.within(settings) for each in found))

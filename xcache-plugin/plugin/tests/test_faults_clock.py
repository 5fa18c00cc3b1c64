"""The system's clock is set, forwards and backwards, under a running server."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_client import Clients
from plugin_endpoint import Endpoint
from plugin_invariants import counted, watched
from plugin_site import Site, another_site, wait_until

from smartcache.local import xrootd

pytestmark = pytest.mark.slow

#: The steps are the fault here, not a busy machine.
DEADLINE_MS = 200
#: On a busy machine three in a row may be late, too.
LATE = frozenset({"deadline", "breaker_open"})
HOUR_S, YEAR_S = 3600, 365 * 86400


class Clock:
    """The server's system clock, by libfaketime. Its monotonic clock is left alone, as it is when an administrator or NTP sets the time: so
    is every timer that runs by it. libfaketime reads the offset from the file at each look at the clock, and would, if it were not told,
    shift the times of files with it.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set(0)
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
        self.env = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, offset_s: float) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset_s:+}\n")
        new.replace(self._file)


@pytest.fixture(scope="module")
def clock() -> Iterator[Clock]:
    with xrootd.temporary_folder() as folder:
        yield Clock(folder)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as one:
        yield one


@pytest.fixture(scope="module")
def cache(origin: xrootd.Xrootd, endpoint: Endpoint, clock: Clock) -> Iterator[Site]:
    with another_site(origin) as site:
        settings = site.model(endpoint.url, deadline_ms=DEADLINE_MS, breaker_failures=3, breaker_open_s=0.2)
        site.start(settings, env=clock.env)
        site.wait_for_model()
        yield site


@pytest.mark.parametrize("offset_s", [-HOUR_S, HOUR_S, -10 * YEAR_S, 10 * YEAR_S, 0])
def test_a_step(offset_s: int, cache: Site, clients: Clients, clock: Clock, endpoint: Endpoint) -> None:
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}, beside=LATE) as watch:
        watch.open(cache.lfns)
        clock.set(offset_s)
        watch.soak(cache.lfns, opens=100)
    now_us = (time.time() + offset_s) * 1e6
    assert abs(watch.decisions[-1]["t_us"] - now_us) < 60e6
    assert all(math.isfinite(value) for decision in watch.decisions for value in decision["features"])
    # What waits in the background goes on by the monotonic clock: the breaker closes again.
    endpoint.vanish()
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"unreachable", "breaker_open"}) as watch:
        watch.open(cache.lfns)
    endpoint.listen()
    answered = 'smartcache_model_requests_total{role="champion",source="endpoint",result="answered"}'
    before = counted(cache)[answered]
    wait_until(lambda: clients.open(cache.lfns) == [""] * len(cache.lfns) and cache.counter(answered) > before, "answered again")


def test_a_clock_that_never_rests(cache: Site, clients: Clients, clock: Clock) -> None:
    ended = threading.Event()

    def toggle() -> None:
        for offset_s in itertools.cycle((-HOUR_S, 0, YEAR_S, -0.5)):
            clock.set(offset_s)
            if ended.wait(0.02):
                return

    thread = threading.Thread(target=toggle)
    thread.start()
    try:
        with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}, beside=LATE) as watch:
            watch.soak(cache.lfns)
    finally:
        ended.set()
        thread.join()
        clock.set(0)
    assert [d["seq"] for d in sorted(watch.decisions, key=lambda d: d["seq"])] == list(
        range(min(d["seq"] for d in watch.decisions), max(d["seq"] for d in watch.decisions) + 1)
    )

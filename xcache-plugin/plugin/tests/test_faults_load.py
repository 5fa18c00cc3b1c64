"""64 clients at once, on an endpoint that answers, that does not, and that wants everything evicted."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from plugin_client import Clients
from plugin_endpoint import ADMIT, BYPASS, EVICT, Endpoint
from plugin_invariants import anonymous_bytes, watched
from plugin_site import Site, another_site, wait_until

from smartcache.local import paths, xrootd
from smartcache.local.ports import LOOPBACK
from smartcache.local.xrootd import BLOCK_BYTES

pytestmark = pytest.mark.slow

CLIENTS = 64
MANY_OPENS = 25_000
#: For each open: less than one node of a map, or one string that does not fit where it stands.
LEAK_BYTES = 100
MOST_ROUNDS = 40
FILE_BYTES = BLOCK_BYTES + 50_000
TAIL_BYTES = 1000
#: With so many at once the endpoint of these tests needs some patience.
DEADLINE_MS = 500


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as one:
        yield one


@pytest.fixture(scope="module")
def cache(origin: xrootd.Xrootd, endpoint: Endpoint) -> Iterator[Site]:
    with another_site(origin) as site:
        site.start(site.model(endpoint.url, deadline_ms=DEADLINE_MS, breaker_failures=1_000_000))
        site.wait_for_model()
        yield site


def files(site: Site, folder: str) -> list[str]:
    """64 files that no cache has seen."""
    target = site.origin_data / "store" / folder
    target.mkdir()
    for i in range(CLIENTS):
        (target / f"{i}.root").write_bytes(bytes([i]) * FILE_BYTES)
    return [f"/store/{folder}/{i}.root" for i in range(CLIENTS)]


def test_new_files(cache: Site, clients: Clients) -> None:
    lfns = files(cache, "new")
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}) as watch:
        watch.open(lfns, users=CLIENTS, threads=CLIENTS)
        watch.open(lfns, users=CLIENTS, threads=CLIENTS)
    assert {decision["lfn"] for decision in watch.decisions} == set(lfns)


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "never stored"])
def test_many_thousand_opens_leave_nothing_behind(stored: bool, origin: xrootd.Xrootd, endpoint: Endpoint) -> None:
    """What a leak of a few bytes an open would add up to, through the embedded model; in the background, and while the open waits.

    What is needed once comes in some round or other, and some give memory back: the median of the rounds is judged.
    """
    with another_site(origin) as site:
        lfns = files(site, f"many-{stored}")
        toml = site.model(endpoint.url, use="embedded")
        site.embed("reuse_v1", ADMIT if stored else BYPASS)
        site.start(toml)
        site.wait_for_model()
        (site.folder / "lfns").write_text("\n".join(lfns))
        server = f"cache={LOOPBACK}:{site.cache.port}={site.cache.process.pid}"
        argv = [str(paths.BUILD / "plugin" / "open_bench"), "8", "4", "1", str(site.folder / "lfns"), server]
        opens, growth, before = 0, [], None
        while opens < MANY_OPENS or statistics.median(growth) >= LEAK_BYTES:
            assert opens < MANY_OPENS or len(growth) < MOST_ROUNDS, f"bytes an open that were not given back, by round: {growth}"
            done = subprocess.run(argv, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            count = json.loads(done.stdout)["opens"]
            memory = anonymous_bytes(site.cache.process.pid)
            if before is not None:
                opens += count
                growth.append((memory - before) / count)
            before = memory
        assert {site.on_disk(lfn) for lfn in lfns} == {stored}


def test_the_same_file(cache: Site, clients: Clients) -> None:
    lfn = files(cache, "same")[0]
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}) as watch:
        watch.soak([lfn], opens=4 * CLIENTS, threads=CLIENTS)


def test_programs(cache: Site, clients: Clients) -> None:
    lfns = files(cache, "programs")

    def tail(number: int) -> bytes:
        argv = [paths.xrootd_program("xrdfs"), cache.cache.url, "tail", "-c", str(TAIL_BYTES), lfns[number]]
        return subprocess.run(argv, env={**os.environ, **paths.xrootd_env()}, check=True, capture_output=True, timeout=120).stdout

    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}) as watch, ThreadPoolExecutor(CLIENTS) as pool:
        assert list(pool.map(tail, range(CLIENTS))) == [bytes([i]) * TAIL_BYTES for i in range(CLIENTS)]
    assert {decision["lfn"] for decision in watch.decisions} == set(lfns)


def test_an_endpoint_that_does_not_answer(cache: Site, clients: Clients, endpoint: Endpoint) -> None:
    lfns = files(cache, "silent")
    endpoint.order(lambda talk: talk.wait())
    try:
        with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"deadline"}) as watch:
            watch.open(lfns * 2, users=CLIENTS, threads=CLIENTS)
    finally:
        endpoint.order(None)


def test_files_that_all_are_to_be_evicted_and_all_are_open(cache: Site, clients: Clients, endpoint: Endpoint) -> None:
    lfns = files(cache, "held-too")
    assert clients.open(lfns) == [""] * CLIENTS
    busy = 'smartcache_evictions_total{result="busy"}'
    before = cache.counter(busy)
    endpoint.outputs = EVICT
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}) as watch:
        for lfn in lfns:
            clients.hold(lfn)
        wait_until(lambda: cache.counter(busy) >= before + CLIENTS / 2, "tried")
        there = {lfn: cache.on_disk(lfn) for lfn in lfns}
        for lfn in lfns:
            clients.release(lfn)
    wanted = {decision["lfn"] for decision in watch.decisions if decision["answer"] == "evict"}
    assert len(wanted) > CLIENTS / 2
    assert all(there.values())
    wait_until(lambda: not any(cache.on_disk(lfn) for lfn in wanted), "evicted once they were closed", 120)
    endpoint.outputs = ADMIT
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}) as watch:
        watch.open(lfns, users=CLIENTS, threads=CLIENTS)

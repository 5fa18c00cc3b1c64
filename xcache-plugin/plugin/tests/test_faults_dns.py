"""Name service that does not answer, or badly: neither the server's start nor an open waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plugin_client import Clients
from plugin_dns import NameServer
from plugin_endpoint import BYPASS, Endpoint
from plugin_invariants import require_waited, watched
from plugin_site import Site, another_site, wait_until

from smartcache.local import xrootd

pytestmark = pytest.mark.slow

DEADLINE_MS = 10


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with xrootd.temporary_folder() as folder:
        one = NameServer(folder)
        yield one
        one.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as one:
        one.outputs = BYPASS  # so that each open waits
        yield one


@pytest.fixture(scope="module")
def cache(origin: xrootd.Xrootd, names: NameServer, endpoint: Endpoint) -> Iterator[Site]:
    with another_site(origin) as site:
        url = f"http://endpoint.smartcache.test:{endpoint.port}"
        site.start(site.model(url, stores_little=True, deadline_ms=DEADLINE_MS, breaker_failures=1_000_000), wrapper=names.wrapper)
        site.wait_for_model()
        yield site


@pytest.mark.parametrize("mode", ["silent", "unknown", "failing", "garbage"])
def test_the_endpoints_name_has_no_address(mode: str, cache: Site, clients: Clients, names: NameServer) -> None:
    names.mode = mode
    asked = names.asked
    wait_until(lambda: names.asked > asked, "asked for the address")
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"unreachable"}) as watch:
        watch.soak(cache.lfns)
    require_waited(watch)


def test_once_it_has_one_the_model_decides(cache: Site, clients: Clients, names: NameServer) -> None:
    names.mode = "known"
    answered = 'smartcache_answers_total{answer="bypass",reason="model"}'
    wait_until(lambda: clients.open(cache.lfns) and cache.counter(answered) > 0, "answered by the model")
    names.mode = "silent"  # an address that worked is better than none
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}) as watch:
        watch.soak(cache.lfns)
    require_waited(watch)


def test_the_collectors_name_has_no_address(origin: xrootd.Xrootd, names: NameServer) -> None:
    names.mode = "silent"
    with another_site(origin) as site:
        site.start(decision_log='host = "collector.smartcache.test"', wrapper=names.wrapper)
        said = r'SmartCache_Config: \S+: \[decision_log\] host must be a host that can be reached, but is "collector'
        with site.clients() as clients:
            with watched(site, clients, deadline_ms=0, reasons={"no_model"}, heard=False, noise=(said,)) as watch:
                watch.soak(site.lfns)
                wait_until(lambda: "[decision_log] host must be" in site.server_log(), "said")
            log = site.server_log()
            assert log.count("[decision_log] host must be") == 1
            assert log.index("SmartCache_Config: ready") < log.index("[decision_log] host must be"), "the start has waited for the address"
            assert site.counter('smartcache_decision_log_datagrams_total{result="sent"}') == 0
            names.mode = "known"
            wait_until(lambda: "has an address now" in site.server_log(), "looked up again", 60)
            with watched(site, clients, deadline_ms=0, reasons={"no_model"}) as watch:
                watch.open(site.lfns)

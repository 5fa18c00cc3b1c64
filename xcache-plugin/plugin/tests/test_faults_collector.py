"""A collector that goes, or does not read: answers go on, datagrams are lost."""

from __future__ import annotations

import socket

import pytest
from plugin_invariants import answers, counted, watched
from plugin_site import Site

from smartcache.local.ports import LOOPBACK

pytestmark = pytest.mark.slow


def test_a_collector_that_goes_and_comes_back(site: Site) -> None:
    site.start()
    port = site.log.getsockname()[1]
    with site.clients() as clients:
        with watched(site, clients, deadline_ms=0, reasons={"no_model"}) as watch:
            watch.open(site.lfns)
        site.log.close()
        site.log = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # at another port
        site.log.bind((LOOPBACK, 0))
        with watched(site, clients, deadline_ms=0, reasons={"no_model"}, heard=False) as watch:
            watch.soak(site.lfns)
        assert watch.decisions == []
        counters = counted(site)
        sent, dropped = (counters[f'smartcache_decision_log_datagrams_total{{result="{result}"}}'] for result in ("sent", "dropped"))
        assert sent + dropped == answers(counters).total()
        assert dropped >= 0.9 * watch.answers, "that nobody listened is reported with the next datagram"
        site.log.close()
        site.log = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        site.log.bind((LOOPBACK, port))
        with watched(site, clients, deadline_ms=0, reasons={"no_model"}) as watch:
            watch.open(site.lfns)


def test_a_collector_that_does_not_read(site: Site) -> None:
    site.start()
    site.log.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with site.clients() as clients, watched(site, clients, deadline_ms=0, reasons={"no_model"}, heard=False) as watch:
        watch.soak(site.lfns)

"""The port of the metrics under clients that hold connections: it is answered, and its descriptors are bounded."""

from __future__ import annotations

import contextlib
import gc
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from collector_site import WAIT_S, until

from smartcache.ingestion import metrics
from smartcache.ingestion.counters import Counters
from smartcache.ingestion.metrics import Health, MetricsServer
from smartcache.local.ports import LOOPBACK, free_ports


@pytest.fixture
def port():
    (port,) = free_ports(1)
    server = MetricsServer(LOOPBACK, port, Counters(), {}, lambda: Health(True, []))
    yield port
    server.close()


def descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_connections_that_say_nothing_keep_nobody_out_and_are_bounded(port, capfd):
    gc.collect()  # what other tests have left open is not closed in between
    before = descriptors()
    with contextlib.ExitStack() as held:
        for _ in range(metrics.MAX_CONNECTIONS * 3):
            held.enter_context(socket.create_connection((LOOPBACK, port), WAIT_S))
        with urlopen(f"http://{LOOPBACK}:{port}/healthz", timeout=WAIT_S) as answer:
            assert answer.read() == b"ok\n"
        ours = metrics.MAX_CONNECTIONS * 3
        until(lambda: descriptors() <= before + ours + metrics.MAX_CONNECTIONS, "the oldest are cut off")
    until(lambda: descriptors() <= before, "all are closed")
    assert capfd.readouterr().err == ""


def test_a_connection_that_says_nothing_is_closed(port, monkeypatch, capfd):
    monkeypatch.setattr(metrics._Quiet, "timeout", 0.1)
    with socket.create_connection((LOOPBACK, port), WAIT_S) as idle:
        idle.sendall(b"GET /healthz")
        assert idle.recv(1) == b""
    assert capfd.readouterr().err == ""

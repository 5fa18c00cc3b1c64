"""The plugin in real servers: an origin, an XCache that has loaded it, xrdcp as the client, and an endpoint that answers to order."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from plugin_endpoint import ADMIT, BYPASS, EVICT, Endpoint
from plugin_raw import RawClient
from plugin_site import FILE_BYTES, Site, another_site, wait_until

from smartcache import _core
from smartcache.local import xrootd
from smartcache.local.ports import LOOPBACK, free_ports

pytestmark = pytest.mark.slow

CHECKSUMS = "SmartCache_Config: pfc.cschk checks what comes over the network"


def test_without_a_model_everything_is_admitted_and_logged(site: Site) -> None:
    site.start()
    lfn = "/store/set/0.root"
    first = site.opened(lfn)
    assert (first["answer"], first["reason"], first["on_disk"], first["size"]) == ("admit", "no_model", False, -1)
    assert (first["seq"], first["probability"], first["score"], first["model"]) == (1, 1, None, "")
    assert site.on_disk(lfn)
    second = site.opened(lfn)
    assert (second["seq"], second["on_disk"], second["size"]) == (2, True, FILE_BYTES)
    assert 0 <= second["fill"] <= 1
    assert "SmartCache_Config: ready:" in site.server_log()


def test_the_cache_id_is_the_one_of_the_g_stream(site: Site) -> None:
    site.start()
    decision = site.opened("/store/set/0.root")
    header = json.loads(site.gstream.recv(65536).split(b"\n", 1)[0].rstrip(b"\0"))
    assert decision["cache"] == f"{header['src']['host']}:{header['src']['port']}"


def test_bypass_leaves_nothing_on_disk(site: Site) -> None:
    site.start('[policy]\nnever_admit = ["/store/set/1"]\n')
    decision = site.opened("/store/set/1.root")
    assert (decision["answer"], decision["reason"]) == ("bypass", "rule")
    assert not site.on_disk("/store/set/1.root")
    assert site.opened("/store/set/2.root")["answer"] == "admit"
    assert site.on_disk("/store/set/2.root")


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_a_read_past_the_end_gives_what_there_is(stored: bool, site: Site) -> None:
    lfn = "/store/set/1.root"
    site.start("" if stored else '[policy]\nnever_admit = ["/store/set/1"]\n')
    content = (site.origin_data / lfn.lstrip("/")).read_bytes()
    with RawClient(site.cache.port) as client:
        assert client.content(lfn.encode(), FILE_BYTES + 1) == content
        assert client.content(lfn.encode(), 100, FILE_BYTES - 10) == content[-10:]
        assert client.content(lfn.encode(), 100, FILE_BYTES) == b""
    assert site.on_disk(lfn) is stored
    assert CHECKSUMS not in site.server_log()


def test_checksums_of_the_network_with_which_such_a_read_fails_are_warned_of(site: Site) -> None:
    site.start(directives=["pfc.cschk net"])
    wait_until(lambda: "SmartCache_Config: ready:" in site.server_log(), "ready")
    assert (CHECKSUMS in site.server_log()) is bool(re.search(r"xrd version v5\.", site.server_log()))


def test_the_model_decides_and_evict_removes_the_file(site: Site, endpoint: Endpoint) -> None:
    lfn, other = "/store/set/3.root", "/store/set/4.root"
    site.start(site.model(endpoint.url))
    site.wait_for_model()
    decision = site.opened(lfn)
    assert (decision["answer"], decision["reason"], decision["score"], decision["model"]) == ("admit", "model", 0.9, "reuse_v1")
    assert endpoint.requests[-1]["model"] == "reuse_v1"
    assert [np.float32(v) for v in endpoint.requests[-1]["values"]] == [np.float32(v) for v in decision["features"]]
    assert site.on_disk(lfn)

    endpoint.outputs = BYPASS
    decision = site.opened(other)
    assert (decision["answer"], decision["reason"]) == ("bypass", "model")
    assert not site.on_disk(other)
    decision = site.opened(lfn)
    assert (decision["answer"], decision["reason"]) == ("admit", "cached")

    endpoint.outputs = EVICT
    decision = site.opened(lfn)
    assert (decision["answer"], decision["reason"], decision["on_disk"]) == ("evict", "model", True)
    wait_until(lambda: not site.on_disk(lfn), "evicted", 120)
    wait_until(lambda: site.counter('smartcache_evictions_total{result="done"}') == 1, "counted")
    assert not (site.cache.data / (lfn.lstrip("/") + ".cinfo")).exists()


def test_an_open_of_a_file_on_disk_waits_for_nobody(site: Site, endpoint: Endpoint) -> None:
    site.start(site.model(endpoint.url, deadline_ms=1000, breaker_failures=1_000_000))
    site.wait_for_model()
    there, new = "/store/set/3.root", "/store/set/4.root"
    site.opened(there)
    with site.clients() as clients:
        assert clients.open([there]) == [""]  # from now on they are at work, and know the server
        site.decision()
        endpoint.order(lambda talk: talk.wait())
        site.forget_decisions()
        assert clients.open([there]) == [""]
        gone_on_us = time.time() * 1e6
        decision = site.decision()
        assert (decision["lfn"], decision["on_disk"], decision["reason"]) == (there, True, "deadline")
        assert decision["t_us"] + decision["latency_us"] > gone_on_us, "decided when the client had long gone on"
        began = time.monotonic()
        assert clients.open([new]) == [""]
        assert time.monotonic() - began >= 1, "one that is not there waits until the deadline"
        assert site.decision()["reason"] == "deadline"


def test_an_open_file_is_not_evicted_until_it_is_closed(site: Site, endpoint: Endpoint) -> None:
    lfn = "/store/set/3.root"
    site.start(site.model(endpoint.url))
    site.wait_for_model()
    site.opened(lfn)
    # The file's last reader must have gone before the next open asks for a decision again.
    endpoint.outputs = EVICT
    program = (
        "import sys; from XRootD import client; f = client.File(); s, _ = f.open(sys.argv[1], timeout=30); assert s.ok, s.message;"
        "f.read(0, 10); print('open', flush=True); sys.stdin.read(); f.close()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, f"{site.cache.url}{lfn}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "open\n"
        assert site.decision()["answer"] == "evict"
        wait_until(lambda: site.counter('smartcache_evictions_total{result="busy"}') >= 1, "found open")
        assert site.on_disk(lfn)
        holder.stdin.close()
        wait_until(lambda: not site.on_disk(lfn), "evicted after the close", 120)
        assert holder.wait(30) == 0


def test_an_evictor_that_is_not_enabled_only_logs(site: Site, origin: xrootd.Xrootd, endpoint: Endpoint) -> None:
    lfn = "/store/set/3.root"
    site.start(site.model(endpoint.url) + "[evictor]\nenabled = false\n")
    site.wait_for_model()
    site.opened(lfn)
    endpoint.outputs = EVICT
    assert site.opened(lfn)["answer"] == "evict"
    # Another cache that is allowed to, asked later, has removed its copy: by then this one would have, too.
    with another_site(origin) as control:
        control.start(control.model(endpoint.url))
        control.wait_for_model()
        endpoint.outputs = ADMIT
        control.opened(lfn)
        assert control.on_disk(lfn)
        endpoint.outputs = EVICT
        assert control.opened(lfn)["answer"] == "evict"
        wait_until(lambda: not control.on_disk(lfn), "evicted where that is allowed", 120)
    assert site.on_disk(lfn)
    assert site.counter('smartcache_evictions_total{result="done"}') == 0


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("[policy]\nfallbak = 'bypass'\n", 'unknown key "fallbak"; did you mean "fallback"?'),
        ("[policy]\nfallback = 'sometimes'\n", '[policy] fallback must be "admit" or "bypass", but is "sometimes"'),
        ("[policy", "not TOML"),
    ],
)
def test_a_bad_configuration_is_said_and_everything_is_admitted(site: Site, raw: str, message: str) -> None:
    site.start(raw=raw)
    site.read("/store/set/0.root")
    assert site.on_disk("/store/set/0.root")
    log = site.server_log()
    assert message in log
    assert str(site.config) in log
    assert "every open is admitted" in log


def test_an_endpoint_that_is_not_there_fails_no_open(site: Site) -> None:
    site.start(site.model(f"http://{LOOPBACK}:{free_ports(1)[0]}", breaker_failures=2, breaker_open_s=600))
    site.wait_for_model()
    reasons = [site.opened(f"/store/set/{i}.root")["reason"] for i in range(4)]
    assert reasons == ["unreachable", "unreachable", "breaker_open", "breaker_open"]
    assert all(site.on_disk(f"/store/set/{i}.root") for i in range(4))


def test_an_endpoint_that_does_not_answer_fails_no_open_and_holds_none_up(site: Site, endpoint: Endpoint) -> None:
    site.start(site.model(endpoint.url, deadline_ms=20, breaker_failures=6, breaker_open_s=600))
    site.wait_for_model()
    endpoint.outputs = None
    decisions = [site.opened(f"/store/set/{i}.root") for i in range(8)]
    assert [d["reason"] for d in decisions] == ["deadline"] * 6 + ["breaker_open"] * 2
    assert all(d["answer"] == "admit" for d in decisions)
    # The fastest of them: a loaded machine may deschedule any one.
    assert min(d["latency_us"] for d in decisions[:6]) < 60_000


def test_replaying_the_log_gives_the_features_that_were_served(site: Site) -> None:
    site.start()
    for i in (0, 1, 0, 2, 1):
        site.read(f"/store/set/{i}.root")
    site.wait_let_go("/store/set/0.root")
    looked_at = time.monotonic()
    wait_until(lambda: time.monotonic() > looked_at + 1.1, "forgotten what was seen of the file")
    site.read("/store/set/0.root")
    log = sorted((site.decision() for _ in range(6)), key=lambda decision: decision["seq"])
    replayed = _core.Core().replay(
        np.array([d["t_us"] for d in log]),
        [d["lfn"] for d in log],
        np.array([d["on_disk"] for d in log]),
        np.array([d["size"] for d in log]),
        np.array([d["fill"] for d in log], np.float32),
        np.array([d["read_share"] for d in log], np.float32),
    )
    assert any(d["read_share"] > 0 for d in log)
    assert replayed.tobytes() == np.array([d["features"] for d in log]).astype(np.float32).tobytes()

"""The model inside the plugin, in a real XCache: alone, and in place of an endpoint that does not answer."""

from __future__ import annotations

import os

import pytest
from plugin_endpoint import ADMIT, Endpoint
from plugin_site import Site, wait_until

from smartcache.local.ports import LOOPBACK, free_ports

pytestmark = pytest.mark.slow

COPY = [0.3, 0.6, 0.1]


def test_it_needs_no_endpoint(site: Site) -> None:
    toml = site.model("", use="embedded")
    site.embed("reuse_v1", COPY)
    site.start(toml)
    site.wait_for_model()
    decision = site.opened("/store/set/0.root")
    assert (decision["answer"], decision["reason"], decision["model"]) == ("bypass", "model", "reuse_v1")
    assert decision["score"] == pytest.approx(COPY[0], abs=1e-6)
    assert not site.on_disk("/store/set/0.root")
    wait_until(lambda: site.counter('smartcache_model_requests_total{role="champion",source="embedded",result="answered"}') == 1, "counted")


def test_a_bundle_is_used_at_once_though_its_endpoint_is_absent(site: Site) -> None:
    toml = site.model(f"http://{LOOPBACK}:{free_ports(1)[0]}")
    site.embed("reuse_v1", COPY)
    site.start(toml)
    site.wait_for_model()
    for number in range(3):
        decision = site.opened(f"/store/set/{number}.root")
        assert (decision["answer"], decision["reason"], decision["model"]) == ("bypass", "unreachable", "reuse_v1")
        assert decision["score"] == pytest.approx(COPY[0], abs=1e-6)
    assert "its embedded copy answers" in site.server_log()


def test_it_answers_within_the_deadline_where_the_endpoint_falls_silent(site: Site, endpoint: Endpoint) -> None:
    toml = site.model(endpoint.url, deadline_ms=20, breaker_failures=6, breaker_open_s=600)
    site.embed("reuse_v1", COPY)
    site.start(toml)
    site.wait_for_model()
    site.wait_for_check()
    wait_until(lambda: site.opened("/store/set/0.root")["score"] == ADMIT[0], "in time")
    endpoint.outputs = None
    decisions = [site.opened(f"/store/set/{number}.root") for number in range(1, 8)]
    assert [each["reason"] for each in decisions] == ["deadline"] * 6 + ["breaker_open"]
    assert all(each["answer"] == "bypass" and each["score"] == pytest.approx(COPY[0], abs=1e-6) for each in decisions)
    # The fastest of them: a loaded machine may deschedule any one.
    assert min(each["latency_us"] for each in decisions[:6]) < 60_000


def test_damaged_weights_are_refused_and_the_model_before_stays(site: Site) -> None:
    toml = site.model("", use="embedded")
    site.embed("reuse_v1", COPY)
    site.start(toml)
    site.wait_for_model()
    site.install("reuse_v2")
    weights = site.embed("reuse_v2", ADMIT)
    whole = weights.read_bytes()
    os.truncate(weights, len(whole) // 2)
    site.point_at("reuse_v2")
    wait_until(lambda: "reuse_v2/weights.json" in site.server_log(), "refused")
    assert site.opened("/store/set/0.root")["model"] == "reuse_v1"
    weights.write_bytes(whole)
    site.wait_for_model("reuse_v2")
    decision = site.opened("/store/set/0.root")
    assert (decision["answer"], decision["reason"], decision["model"]) == ("admit", "model", "reuse_v2")

"""A challenger beside the champion, in a real XCache: it decides for its share of the files, or is asked without effect."""

from __future__ import annotations

import shutil

import pytest
from plugin_endpoint import ADMIT, BYPASS, EVICT, Endpoint
from plugin_site import Site, wait_until

pytestmark = pytest.mark.slow


def challenge(site: Site, name: str, outputs: list[float]) -> None:
    """As `smartcache watch` leaves it."""
    site.install(name)
    site.embed(name, outputs)
    folder = site.models / "challenger"
    folder.mkdir()
    shutil.move(site.models / name, folder / name)
    (folder / "current").symlink_to(name)


def start(site: Site, **settings: object) -> None:
    """A champion that wants everything, a challenger that wants nothing."""
    toml = site.model("", use="embedded")
    site.embed("reuse_v1", ADMIT)
    challenge(site, "reuse_v2", BYPASS)
    site.start(f"{toml}[challenger]\n" + "".join(f"{key} = {str(value).lower()}\n" for key, value in settings.items()))
    site.wait_for_model()
    wait_until(lambda: site.counter('smartcache_challenger_info{model="reuse_v2"}') == 1, "the challenger is tried")


def test_canary(site: Site) -> None:
    start(site, canary_share=0.5)
    decisions = {lfn: site.opened(lfn) for lfn in site.lfns}
    canary = {lfn for lfn, decision in decisions.items() if decision["model"] == "reuse_v2"}
    assert 0 < len(canary) < len(decisions)
    for lfn, decision in decisions.items():
        assert decision["answer"] == ("bypass" if lfn in canary else "admit")
        assert site.on_disk(lfn) == (lfn not in canary)
        assert "challenger_model" not in decision
    # The same files at the next open, and none once the challenger is gone.
    assert {lfn for lfn in site.lfns if site.opened(lfn)["model"] == "reuse_v2"} == canary
    (site.models / "challenger" / "current").unlink()
    wait_until(lambda: "challenger reuse_v2 is not tried any more" in site.server_log(), "gone")
    wait_until(lambda: site.counter('smartcache_challenger_info{model="reuse_v2"}') == 0, "not asked any more")
    assert {site.opened(lfn)["model"] for lfn in site.lfns} == {"reuse_v1"}


def test_shadow(site: Site) -> None:
    start(site, shadow=True)
    for lfn in site.lfns[:4]:
        decision = site.opened(lfn)
        assert (decision["model"], decision["answer"]) == ("reuse_v1", "admit")
        assert (decision["challenger_model"], decision["challenger_answer"]) == ("reuse_v2", "bypass")
        assert decision["challenger_score"] == pytest.approx(BYPASS[0], abs=1e-6)
        assert site.on_disk(lfn)


def test_the_canary_asks_the_endpoint_by_its_own_name(site: Site, endpoint: Endpoint) -> None:
    """One question an open, for the one or for the other; what the challenger does wrong there is its copy's to mend."""
    endpoint.of_model = {"reuse_v1": ADMIT, "reuse_v2": BYPASS}
    toml = site.model(endpoint.url, breaker_failures=1, breaker_open_s=3600.0)
    site.embed("reuse_v1", ADMIT)
    challenge(site, "reuse_v2", EVICT)  # as its copy has it: told from the endpoint's answer
    site.start(f"{toml}[challenger]\ncanary_share = 0.5\n")
    site.wait_for_check()
    wait_until(lambda: "challenger reuse_v2 is tried" in site.server_log(), "the challenger is tried")
    canary = set()
    for lfn in site.lfns:
        before = len(endpoint.requests)
        decision = site.opened(lfn)
        # What keeps idle connections warm asks with zeros.
        asked = [request["model"] for request in endpoint.requests[before:] if any(request["values"])]
        assert asked == [decision["model"]]
        challenged = decision["model"] == "reuse_v2"
        canary |= {lfn} if challenged else set()
        assert decision["score"] == pytest.approx((BYPASS if challenged else ADMIT)[0])
        assert (decision["answer"], decision["reason"]) == ("bypass" if challenged else "admit", "model")
    assert 0 < len(canary) < len(site.lfns)
    # Its breaker is its own.
    endpoint.of_model["reuse_v2"] = [1.0]
    for reason in ("invalid_reply", "breaker_open"):
        decision = site.opened(min(canary))
        assert (decision["model"], decision["reason"]) == ("reuse_v2", reason)
        assert decision["score"] == pytest.approx(EVICT[0], abs=1e-6)
    champion = next(lfn for lfn in site.lfns if lfn not in canary)
    assert site.opened(champion)["reason"] == "model"

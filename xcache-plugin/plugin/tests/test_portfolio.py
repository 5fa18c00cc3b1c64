"""The portfolio in a real XCache: it votes without a model, its evictor goes by the vote, and it outlives the server."""

from __future__ import annotations

import re
import signal

import pytest
from plugin_site import FILE_BYTES, Site, wait_until

pytestmark = pytest.mark.slow

#: Room for four files at the low mark, for seven at the high one.
CAPACITY = 2_500_000


def configuration(site: Site, more: str = "") -> str:
    folder = site.folder / "kept"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    return (
        f'[portfolio]\nenabled = true\nfile = "{folder}/portfolio"\n[history]\nsave_s = 0.2\nscan = false\n[policy]\nexplore = 0.0\n'
        f"[evictor]\ncapacity_bytes = {CAPACITY}\nscan_s = 0.2\nhigh = 0.84\nlow = 0.5\n{more}"
    )


def ready(site: Site) -> None:
    """The size of the cache is known from the first open on."""
    wait_until(lambda: site.counter("smartcache_portfolio_ready") == 1, "the portfolio ready")


def voted(site: Site, *lfns: str) -> dict:
    """The first decision of an open of these that the portfolio said something to: not while its state is written down or read."""
    for lfn in lfns:
        unsaid = site.counter("smartcache_portfolio_unsaid_opens_total")
        decision = site.opened(lfn)
        if decision["reason"] == "vote":
            return decision
        wait_until(lambda before=unsaid: site.counter("smartcache_portfolio_unsaid_opens_total") > before, "counted as unsaid")
    raise AssertionError(f"no vote on {len(lfns)} opens: {decision}")


def test_it_votes_and_the_evictor_goes_by_the_vote(site: Site) -> None:
    site.start(configuration(site, '[trace]\nlevel = "evictor"\n'))
    assert site.opened(site.lfns[0])["reason"] == "no_model"
    ready(site)
    popular, once = site.lfns[:3], site.lfns[3:]
    for _ in range(3):
        for lfn in popular:
            assert voted(site, *[lfn] * 5)["answer"] == "admit"
            site.wait_let_go(lfn)
    for lfn in once:
        site.opened(lfn)
        site.wait_let_go(lfn)
    wait_until(lambda: site.counter("smartcache_portfolio_files") == 8, "told of all")
    wait_until(lambda: site.counter('smartcache_evictor_runs_total{result="reached"}') >= 1, "down to its low mark")
    assert site.counter("smartcache_portfolio_lost_opens_total") == 0
    assert sum(site.counter(f'smartcache_portfolio_weight{{cache="{name}"}}') for name in ("lru", "lirs", "arc", "s3-fifo")) > 0
    assert "portfolio: in use" in site.server_log()
    # What its caches hold no more went first, and nothing that has a higher vote than what stayed.
    worst = [(float(vote), lfn) for lfn, vote in re.findall(r'worst \d+: "([^"]+)", \d+ bytes, vote (\S+)', site.server_log())]
    gone = [lfn for lfn in site.lfns if not site.on_disk(lfn)]
    assert worst == sorted(worst, key=lambda each: each[0])
    assert worst[0][0] == -1
    assert sorted(gone) == sorted(lfn for _, lfn in worst[: len(gone)])


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_it_outlives_the_server(site: Site, sign: signal.Signals) -> None:
    site.start(configuration(site))
    site.opened(site.lfns[0])
    ready(site)
    for lfn in site.lfns[1:4]:
        voted(site, *[lfn] * 5)
    kept = site.folder / "kept" / "portfolio"
    wait_until(lambda: kept.exists() and site.counter("smartcache_portfolio_files") == 4, "saved")
    for _ in range(2):  # the one that was being saved when the last file was counted may be without it
        last = kept.stat().st_mtime_ns
        wait_until(lambda before=last: kept.stat().st_mtime_ns > before, "saved once more")
    site.cache.process.stop(sign=sign)
    site.start_again()
    site.opened(site.lfns[0])
    ready(site)
    assert site.counter("smartcache_portfolio_files") == 4
    assert "portfolio: in use, 4 files known" in site.server_log()


def test_a_damaged_file_is_set_aside_and_nothing_else_happens(site: Site) -> None:
    text = configuration(site)
    (site.folder / "kept" / "portfolio").write_bytes(b"no portfolio" * 100)
    site.start(text)
    assert site.opened(site.lfns[0])["answer"] == "admit"
    ready(site)
    voted(site, *site.lfns[1:6])
    assert "[portfolio] file must be a portfolio that this plugin saved" in site.server_log()
    assert list((site.folder / "kept").glob("portfolio.bad-*"))


def test_a_file_that_has_no_place_is_bypassed(site: Site) -> None:
    """One that is larger than the room for all. The evictor, which would remove it at once, only looks at the room."""
    settings = configuration(site).replace(f"capacity_bytes = {CAPACITY}", f"enabled = false\ncapacity_bytes = {FILE_BYTES // 4}")
    site.start(settings)
    assert site.opened(site.lfns[0])["answer"] == "admit"
    ready(site)
    site.wait_let_go(site.lfns[0])
    wait_until(lambda: site.opened(site.lfns[0])["read_share"] > 0.9, "its size seen, and that all of it was read", 60)
    decision = voted(site, *site.lfns[1:6])
    assert decision["answer"] == "bypass"
    assert not site.on_disk(decision["lfn"])

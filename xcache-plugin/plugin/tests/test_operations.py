"""What an admin sees of the plugin in a real XCache: counters over HTTP, the trace, budgets."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request

import pytest
from plugin_site import FILE_BYTES, Site, wait_until
from prometheus_client.parser import text_string_to_metric_families

from smartcache.local.ports import LOOPBACK, free_ports

pytestmark = pytest.mark.slow


def configuration(site: Site, port: int, more: str = "") -> str:
    return f"""
[decision_log]
port = {site.log.getsockname()[1]}
[plugin_metrics]
textfile = "{site.metrics}/smartcache.prom"
interval_s = 0.2
port = {port}
{more}"""


def ours(site: Site) -> list[str]:
    return [line for line in site.server_log().splitlines() if "SmartCache" in line]


def test_the_counters_are_served_as_prometheus_reads_them(site: Site) -> None:
    port = free_ports(1)[0]
    site.start(raw=configuration(site, port))
    for _ in range(2):
        site.opened("/store/set/0.root")
    url = f"http://{LOOPBACK}:{port}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/metrics", timeout=10) as reply:
        page = reply.read().decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    answered = {(s.labels["answer"], s.labels["reason"]): s.value for s in families["smartcache_answers"].samples}
    assert answered == {("admit", "no_model"): 2}
    assert families["smartcache_decide_seconds"].type == "histogram"
    assert next(s.value for s in families["smartcache_decide_seconds"].samples if s.name.endswith("_count")) == 2
    assert all(family.documentation and family.type != "unknown" for family in families.values())
    wait_until(lambda: site.counter('smartcache_answers_total{answer="admit",reason="no_model"}') == 2, "in the textfile too")
    with opener.open(f"{url}/healthz", timeout=10) as reply:
        assert reply.read() == b"ok\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        opener.open(f"{url}/store/set/0.root", timeout=10)


def test_a_port_that_is_taken_is_said_and_nothing_else_happens(site: Site) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        site.start(raw=configuration(site, taken.getsockname()[1]))
        assert site.opened("/store/set/0.root")["answer"] == "admit"
    said = [line for line in ours(site) if "[plugin_metrics] port must be" in line]
    assert len(said) == 1
    assert "ready:" in site.server_log()


def test_nothing_is_logged_per_open(site: Site) -> None:
    site.start("[history]\nscan = false\n")
    site.opened("/store/set/0.root")
    before = ours(site)
    for i in range(100):
        site.opened(f"/store/set/{i % 8}.root")
    assert ours(site) == before


def test_the_fill_is_that_of_the_space_that_holds_the_data(site: Site) -> None:
    spaces = {name: site.folder / f"space-{name}" for name in ("data", "meta")}
    for folder in spaces.values():
        folder.mkdir()
        folder.chmod(0o777)
    site.start(directives=[*(f"oss.space {name} {folder}" for name, folder in spaces.items()), "pfc.spaces data meta"])
    site.opened("/store/set/0.root")
    wait_until(lambda: site.counter("smartcache_cache_size_bytes") > 0, "measured")
    disk = os.statvfs(spaces["data"])
    assert site.counter("smartcache_cache_size_bytes") == pytest.approx(disk.f_blocks * disk.f_frsize, rel=0.1)
    assert 0 < site.opened("/store/set/1.root")["fill"] <= 1
    assert any(path.is_file() for path in spaces["data"].rglob("*"))
    assert "the usage of the cache's disk is not known" not in site.server_log()
    # What is in the spaces is a link away from the name space, and is found.
    site.wait_let_go("/store/set/0.root")
    assert site.opened("/store/set/0.root")["on_disk"]


def test_a_trace_of_decisions_is_one_line_per_open(site: Site) -> None:
    site.start(raw=configuration(site, 0, '[trace]\nlevel = "decisions"\n[policy]\nnever_admit = ["*/set/1.*"]\n'))
    for i in (0, 1, 0):
        site.opened(f"/store/set/{i}.root")

    def traced() -> list[str]:
        return [line.split("SmartCache_decisions: ", 1)[1] for line in ours(site) if "SmartCache_decisions: " in line]

    wait_until(lambda: len(traced()) >= 3, "traced")  # an answer is given and logged before it is traced
    lines = traced()
    assert [line.split(" ")[:3] for line in lines] == [
        ['"/store/set/0.root"', "admit", "no_model"],
        ['"/store/set/1.root"', "bypass", "rule"],
        ['"/store/set/0.root"', "admit", "no_model"],
    ]
    assert f"on_disk size {FILE_BYTES}" in lines[2]


def test_the_servers_own_directive_wins(site: Site) -> None:
    site.start(raw=configuration(site, 0, '[trace]\nlevel = "all"\n'), directives=["smartcache.trace off"])
    site.opened("/store/set/0.root")
    assert "SmartCache_decisions" not in site.server_log()


def test_a_trace_directive_that_is_none_is_said(site: Site) -> None:
    site.start(directives=["smartcache.trace decisions loud"])
    site.opened("/store/set/0.root")
    assert 'smartcache.trace must be off, all, or some of decisions, model, evictor, but is "decisions loud"' in site.server_log()
    assert "SmartCache_decisions" not in site.server_log()


def test_over_the_budget_files_are_read_past_the_cache(site: Site) -> None:
    # The first file is a debt for days: what it costs is not known before it is on disk.
    site.start(f"[budget]\nwrite_bytes_per_s = 1\nunknown_size_bytes = {FILE_BYTES}\n")
    first = site.opened("/store/set/0.root")
    assert (first["answer"], first["reason"]) == ("admit", "no_model")
    second = site.opened("/store/set/1.root")
    assert (second["answer"], second["reason"], second["score"], second["threshold"]) == ("bypass", "budget", None, None)
    assert not site.on_disk("/store/set/1.root")
    again = site.opened("/store/set/0.root")
    assert (again["answer"], again["on_disk"]) == ("admit", True)
    wait_until(lambda: site.counter("smartcache_budget_charged_bytes_total") == FILE_BYTES, "charged once")

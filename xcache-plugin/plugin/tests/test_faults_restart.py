"""The server ends while clients read, in order or not, and starts again with what its disk holds."""

from __future__ import annotations

import signal

import pytest
from plugin_endpoint import Endpoint
from plugin_invariants import require_alive, watched
from plugin_site import Site, wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("answering", [True, False])
def test_ended_in_the_middle(sign: signal.Signals, answering: bool, site: Site, endpoint: Endpoint) -> None:
    folder = site.folder / "history"
    folder.mkdir()
    folder.chmod(0o777)
    site.start(
        site.model(endpoint.url, deadline_ms=50, breaker_open_s=0.2) + f'[history]\nfile = "{folder}/of-this-cache"\nsave_s = 0.05\n'
    )
    site.wait_for_model()
    if not answering:  # the end comes while opens wait for the model
        endpoint.order(lambda talk: talk.wait())
    with site.clients() as clients:
        for _ in range(2):
            site.forget_decisions()
            clients.begin({"do": "open", "opens": [[f"u{i % 8}", site.lfns[i % 8]] for i in range(800)], "threads": 8})
            site.decision()  # clients are at work
            site.cache.process.stop(sign=sign)
            assert site.cache.process.returncode == -sign
            site.start_again()
            # XRootD's clients find the server again: whoever opens or reads goes on, with the right bytes. A close may find nobody.
            failed = [result for result in clients.result() if result and not result.startswith("close: ")]
            assert not failed, failed
        require_alive(site, site.cache.process.pid)
        endpoint.order(None)
        site.wait_for_model()
        site.wait_for_check()
        answered = 'smartcache_model_requests_total{role="champion",source="endpoint",result="answered"}'
        wait_until(lambda: clients.open(site.lfns) == [""] * len(site.lfns) and site.counter(answered) > 0, "answered by the model again")
        with watched(site, clients, deadline_ms=50, reasons={"model"}, beside=frozenset({"deadline", "breaker_open"})) as watch:
            watch.open(site.lfns * 8)
        assert "SmartCache_Config: ready" in site.server_log()
        assert not list(folder.glob("*.bad-*")), "a history was left behind that cannot be read"

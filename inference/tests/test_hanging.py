"""An endpoint that takes a call and answers nothing: it holds up no roll-back, no other version and no stop."""

import subprocess
import sys
import threading
import time
from concurrent.futures import wait
from contextlib import ExitStack

import pytest

from smartcache import config as configs
from smartcache.inference import rollout
from smartcache.inference.install import BundleDir
from smartcache.inference.rollout import Fleet
from smartcache.inference.serving import Endpoint
from smartcache.inference.tests.fakes import METRICS, site_config
from smartcache.inference.watch import Watch

HASH = "0123456789abcdef"
#: Of the calls to endpoints: so long that who waits for one that hangs fails the test.
LONG_S = 600.0
#: What happens at once otherwise, on a machine that has much to do.
SOON_S = 60.0


class Hanging:
    """From :meth:`begin` on a server keeps who calls it (with a path that begins so) waiting until :meth:`end`."""

    def __init__(self, fake):
        self.reached, self._over, self._path = threading.Event(), threading.Event(), None
        fake.before = self._hold

    def begin(self, path=""):
        self._path = path

    def end(self):
        self._path = None
        self._over.set()

    def _hold(self, path):
        if self._path is not None and path.startswith(self._path):
            self.reached.set()
            self._over.wait()


@pytest.fixture
def site(fakes, registry, tmp_path, monkeypatch, said):
    """Two endpoints, the first of which may hang; a watcher that looks at the alias each tenth of a second."""
    monkeypatch.setattr("smartcache.inference.serving.ANSWER_TIMEOUT_S", LONG_S)
    config = configs.parse({"gates": {"replay_days": 0, "latency_requests": 0}, "watch": {"retry_most_s": 0, "poll_s": 0.1}}, "test")
    with ExitStack() as stack:
        servers = [stack.enter_context(fakes.serve()) for _ in range(2)]
        endpoints = [stack.enter_context(Endpoint(url, timeout_s=LONG_S)) for _, url in servers]
        folder = BundleDir(tmp_path / "bundles", "reuse")
        watch = Watch(registry, folder, Fleet(endpoints, wait_s=LONG_S), config, HASH, said.append)
        watch.servers = [fake for fake, _ in servers]
        watch.hanging = Hanging(watch.servers[0])
        watch.wake = threading.Event()
        stop = threading.Event()
        running = threading.Thread(target=watch.run, args=(stop, 0.1, watch.wake))
        stack.callback(running.join)
        stack.callback(watch.hanging.end)
        stack.callback(watch.wake.set)
        stack.callback(stop.set)
        running.start()
        watch.running, watch.stop = running, stop
        yield watch


def until(what):
    """Waits for the condition ``what``."""
    over_s, tick = time.monotonic() + SOON_S, threading.Event()
    while not what():
        assert time.monotonic() < over_s, "it has not come"
        tick.wait(0.01)


def defaults(watch):
    return [fake.default for fake in watch.servers]


def serve_two(watch, publish):
    for number in (1, 2):
        publish()
        until(lambda number=number: [watch.bundles_.current(), *defaults(watch)] == [f"reuse_v{number}"] * 3)


@pytest.mark.parametrize("path", ["", "/json"])
def test_it_holds_up_no_roll_back(site, publish, registry, path):
    """Neither where the plugin reads, nor at the other endpoint; and it gets the version when it answers again."""
    serve_two(site, publish)
    site.fleet.members[0]._verified.clear()  # so that it is asked for predictions too
    site.hanging.begin(path)
    registry.aliases["champion"] = 1
    until(lambda: site.bundles_.current() == "reuse_v1")
    until(lambda: defaults(site) == ["reuse_v2", "reuse_v1"])
    assert site.hanging.reached.is_set()
    site.hanging.end()
    until(lambda: defaults(site) == ["reuse_v1", "reuse_v1"])


@pytest.mark.parametrize("path", ["/upload", "/models"])
def test_it_holds_up_no_other_version(site, publish, registry, path):
    """It hangs while it is to take version 3; the alias is moved back to version 1."""
    serve_two(site, publish)
    site.hanging.begin(path)
    publish()
    until(site.hanging.reached.is_set)
    registry.aliases["champion"] = 1
    until(lambda: [site.bundles_.current(), site.servers[1].default] == ["reuse_v1", "reuse_v1"])
    assert site.servers[0].default == "reuse_v2"


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(rollout, "MOST_S", 2.0)


def test_it_holds_up_no_deployment_for_longer_than_its_calls_may_take(short, site, publish):
    """An answer that trickles in, say: no piece of it is late."""
    serve_two(site, publish)
    site.fleet.wait_s = 0.0
    site.hanging.begin()
    publish()
    until(lambda: [site.bundles_.current(), site.servers[1].default] == ["reuse_v3", "reuse_v3"])
    assert site.servers[0].default == "reuse_v2"
    assert not site.fleet.members[0].serves


@pytest.mark.parametrize("path", ["/models", "/upload"])
def test_it_holds_up_no_stop(site, publish, said, path):
    """While it is to keep what is live, and while it is to take another; neither is a failure."""
    serve_two(site, publish)
    site.hanging.begin(path)
    publish()
    until(site.hanging.reached.is_set)
    site.stop.set()
    site.wake.set()
    site.running.join(SOON_S)
    assert not site.running.is_alive()
    assert [line for line in said if "trying again" in line] == []
    assert site.failures == 0


@pytest.fixture
def waits(server, fakes, registry, said, tmp_path, monkeypatch):
    """A watcher of two endpoints, the second of which may hang; ``waits.vain``: what was waited for there in vain."""
    monkeypatch.setattr("smartcache.inference.serving.ANSWER_TIMEOUT_S", LONG_S)
    with fakes.serve() as (fake, url), Endpoint(url, timeout_s=LONG_S) as endpoint:
        folder = BundleDir(tmp_path / "bundles", "reuse")
        watch = Watch(registry, folder, Fleet([server.endpoint, endpoint], wait_s=0), site_config(), HASH, said.append)
        watch.vain, watch.hanging, watch.second = [], Hanging(fake), fake
        calls = watch.fleet.members[1].calls
        submit, there, begun = calls.submit, [], threading.Event()
        monkeypatch.setattr(calls, "submit", lambda *call: there.append(submit(*call)) or there[-1])
        watch.begin = lambda: (begun.set(), watch.hanging.begin())
        watch.end = lambda: (begun.clear(), watch.hanging.end())

        def until_over(futures, *_):
            """As long as is waited, where the hanging one is known."""
            asked = list(futures)
            wait([future for future in asked if future not in there or not begun.is_set()], SOON_S)
            watch.vain += [future for future in asked if not future.done()]
            for future in asked:
                future.cancel()

        monkeypatch.setattr(rollout, "wait_until", until_over)
        try:
            with folder.writer():
                yield watch
        finally:
            watch.end()


def test_it_is_waited_for_once(waits, publish, registry, server):
    """Not once each as a version is installed, kept and pruned, nor again in the next round; and asked again once it answers."""
    publish()
    assert waits.round()
    waits.begin()
    publish()
    assert not waits.round()
    assert (waits.bundles_.current(), server.default, len(waits.vain)) == ("reuse_v2", "reuse_v2", 1)
    publish(metrics=METRICS | {"skill": 0.0})
    assert not waits.round()
    assert (waits.bundles_.current(), server.names, len(waits.vain)) == ("reuse_v2", {"reuse_v1", "reuse_v2"}, 1)
    registry.aliases["champion"] = 2
    waits.end()
    until(waits.round)
    assert waits.second.default == "reuse_v2"


def test_a_call_that_hangs_holds_up_no_end_of_the_process():
    """Python waits at its end for the threads of a pool."""
    program = """
import threading
from smartcache.inference.calls import Calls, wait_until
begun, over = threading.Event(), threading.Event()
calls = Calls()
first, second = calls.submit(lambda: begun.set() or over.wait()), calls.submit(print, "not wanted any more")
begun.wait()
wait_until([first, second], 0.0, lambda: None)
assert second.cancelled()
print(calls.submit(print, "never").done())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SOON_S, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "False\n", "")

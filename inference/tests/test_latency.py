"""Predictions are timed on a kept connection before a version serves; what is too slow does not go live."""

import json
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from smartcache.inference import latency
from smartcache.inference.install import BundleDir
from smartcache.inference.rollout import Fleet
from smartcache.inference.serving import Endpoint, EndpointAway, ServingError
from smartcache.inference.tests.fakes import site_config
from smartcache.inference.watch import Watch

HASH = "0123456789abcdef"


@pytest.fixture
def timed():
    """A server that answers each prediction after ``seconds``; it counts connections and keeps the requests."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self):
            super().setup()
            server.connections += 1

        def do_POST(self):
            server.asked.append((dict(self.headers.items()), json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            time.sleep(server.seconds.pop(0) if server.seconds else 0)  # the fault that is injected: slowness
            body = b"[0.1, 0.2, 0.7]" if server.status == 200 else b"no"
            self.send_response(server.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.connections, server.asked, server.seconds, server.status = 0, [], [], 200
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_one_connection_and_the_rows_of_the_bundle(timed, make):
    bundle = make(name="reuse_v1")
    with Endpoint(timed.url, "secret") as endpoint:
        assert len(endpoint.timed(bundle, 20)) == 20
    assert timed.connections == 1
    assert len(timed.asked) == 21
    headers, body = timed.asked[1]
    assert headers["Authorization"] == "Bearer secret"
    assert body["model"] == "reuse_v1"
    assert body["keys"] == bundle.info.feature_schema.names
    assert body["values"] == pytest.approx(bundle.golden_inputs[1].tolist())


def test_the_slowest_of_a_hundred_counts(timed, make, monkeypatch):
    monkeypatch.setattr("smartcache.inference.serving.TIMED_S", 300.0)
    settings = site_config(latency_requests=100, latency_p50_ms=200.0, latency_p99_ms=300.0).gates
    # In each of the three tries two of a hundred are slow; the first request of each is not counted.
    timed.seconds = ([0.0] * 50 + [0.35, 0.35] + [0.0] * 49) * 3
    with Endpoint(timed.url) as endpoint:
        found = latency.measure(endpoint, make(), settings)
    assert found.requests == 100
    assert found.p50_ms < 200
    assert found.p99_ms >= 350
    answer = latency.gate([found], settings)
    assert not answer.passed
    assert f"ms at {timed.url} (100 requests)" in answer.value


def test_a_host_that_is_busy_for_a_moment_refuses_nothing(timed, make):
    settings = site_config(latency_requests=2, latency_p50_ms=1000.0, latency_p99_ms=1000.0).gates
    timed.seconds = [1.2] * 3
    with Endpoint(timed.url) as endpoint:
        found = latency.measure(endpoint, make(), settings)
    assert latency.gate([found], settings).passed


def test_what_is_slow_says_so_early(timed, make, monkeypatch):
    monkeypatch.setattr("smartcache.inference.serving.TIMED_S", 0.2)
    timed.seconds = [0.05] * 1000
    with Endpoint(timed.url) as endpoint:
        assert 1 <= len(endpoint.timed(make(), 1000)) < 20


@pytest.mark.parametrize(("status", "kind"), [(404, ServingError), (500, ServingError), (503, EndpointAway)])
def test_an_endpoint_that_refuses(timed, make, status, kind):
    timed.status = status
    with Endpoint(timed.url) as endpoint, pytest.raises(kind, match=f"/json: status {status}") as raised:
        endpoint.timed(make(), 5)
    assert type(raised.value) is kind


def test_an_endpoint_that_is_away(make):
    with Endpoint("http://127.0.0.1:1", timeout_s=1) as endpoint, pytest.raises(EndpointAway, match="cannot be reached"):
        endpoint.timed(make(), 5)


# --- the watcher ---


@pytest.fixture
def publish(registry, make, tmp_path):
    def publish(**tags):
        number = len(registry.known) + 1
        registry.add(make(tmp_path / "registry" / str(number), seed=number, provenance={"run_id": f"run-{number}"}), tags)
        registry.aliases["champion"] = number

    return publish


@pytest.fixture
def watcher(registry, server, tmp_path):
    said = []
    folder = BundleDir(tmp_path / "bundles", "reuse")

    def watcher(**gates):
        watch = Watch(registry, folder, Fleet([server.endpoint], wait_s=0), site_config(latency_requests=10, **gates), HASH, said.append)
        watch.said = said
        return watch

    with folder.writer():
        yield watcher


def test_it_is_timed_before_it_serves_and_noted_with_the_version(watcher, publish, registry, server):
    watch = watcher(latency_p50_ms=500.0, latency_p99_ms=5000.0)
    publish()
    seen = []
    server.before = lambda path: seen.append((path, watch.bundles_.current(), server.default))
    assert watch.round()
    # Five golden rows, and eleven of which ten count: all before anything serves. Then the five again.
    assert [path for path, live, default in seen if path == "/json" and live is None and not default] == ["/json"] * 16
    assert [path for path, live, default in seen if path == "/json"] == ["/json"] * 21
    tags = registry.known[1].tags
    assert tags["smartcache.gates"] == "passed"
    assert tags["smartcache.gate.latency"].startswith("passed: p50 0") or tags["smartcache.gate.latency"].startswith("passed: p50 ")
    report = registry.report("run-1")
    assert report.startswith("# reuse_v1: passed\n")
    assert "| latency | p50 " in report
    assert {"name", "value", "rule", "passed"} == json.loads(registry.report("run-1", "json"))[0].keys()


def test_one_that_is_too_slow_does_not_serve(watcher, publish, registry, server):
    watch = watcher(latency_p50_ms=500.0, latency_p99_ms=5000.0)
    publish()
    assert watch.round()
    publish()
    watch.config = site_config(latency_requests=10, latency_p50_ms=1e-4)
    assert not watch.round()
    assert watch.bundles_.current() == server.default == "reuse_v1"
    # It is deleted where it was tried, and not fetched again each round.
    assert server.names == {"reuse_v1"}
    downloads = registry.downloads
    assert not watch.round()
    assert registry.downloads == downloads
    assert len([line for line in watch.said if "refused by its gates: latency failed: p50 " in line]) == 1
    assert registry.known[2].tags["smartcache.gates"] == "failed"
    assert registry.report("run-2").startswith("# reuse_v2: failed")
    # Roll-back needs no gate.
    registry.aliases["champion"] = 1
    assert watch.round()


def test_one_that_was_forced_serves(watcher, publish, registry):
    watch = watcher(latency_p50_ms=1e-4)
    publish(**{"smartcache.gates": "forced: far away"})
    assert watch.round()
    assert watch.bundles_.current() == "reuse_v1"
    assert registry.known[1].tags["smartcache.gate.latency"].startswith("failed: ")


# --- many endpoints ---


@pytest.fixture
def many(fakes, monkeypatch):
    """Twenty endpoints together; ``timed_now`` is how many of them were timed at the same time, each time that one was."""
    timed, lock, now, seen = Endpoint.timed, threading.Lock(), [], []

    def spied(endpoint, *arguments):
        with lock:
            now.append(endpoint)
            seen.append(len(now))
        try:
            return timed(endpoint, *arguments)
        finally:
            with lock:
                now.remove(endpoint)

    monkeypatch.setattr(Endpoint, "timed", spied)
    with ExitStack() as stack:
        servers = [stack.enter_context(fakes.serve()) for _ in range(20)]
        fleet = Fleet([stack.enter_context(Endpoint(url, timeout_s=60)) for _, url in servers], wait_s=0)
        fleet.servers, fleet.timed_now = [fake for fake, _ in servers], seen
        yield fleet


def test_many_endpoints_are_timed_one_after_the_other(many, make):
    """In threads of one process each would be charged with the others' processor time, and with enough of them none is fast enough."""
    settings = site_config(latency_requests=3, latency_p50_ms=5e3, latency_p99_ms=5e3).gates
    found = many.prepare(make(name="reuse_v1"), settings)
    assert [each.url for each in found] == [member.endpoint.url for member in many.members]
    assert many.timed_now == [1] * 20


def test_one_that_hangs_as_it_is_timed_holds_up_the_others_for_its_own_time(many, make, monkeypatch):
    monkeypatch.setattr("smartcache.inference.serving.ANSWER_TIMEOUT_S", 600.0)
    monkeypatch.setattr("smartcache.inference.latency.MOST_S", 5.0)
    settings = site_config(latency_requests=3, latency_p50_ms=5e3, latency_p99_ms=5e3).gates
    bundle, over = make(name="reuse_v1"), threading.Event()

    def hold(_):
        if many.servers[0].requests.count("POST /json") == len(bundle.golden_inputs):
            over.wait()

    many.servers[0].before = hold
    try:
        with pytest.raises(ServingError, match=f"endpoint {many.members[0].endpoint.url} has not answered in 5 s, and is not waited for"):
            many.prepare(bundle, settings)
    finally:
        over.set()
    assert [name for member in many.members for name in member.timed] == ["reuse_v1"] * 19
    assert many.members[0].away_since_us is not None

"""The plugin in real servers: an origin, an XCache that has loaded it, xrdcp as the client, and an endpoint that answers to order."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from smartcache import _core
from smartcache.local import paths, xrootd
from smartcache.local.ports import LOOPBACK, free_ports

pytestmark = pytest.mark.slow

SIZE = xrootd.CacheSize(base=64 << 20, nominal=128 << 20, maximum=256 << 20)
FILE_BYTES = 300_000
ADMIT, BYPASS, EVICT = [0.9, 0.05, 0.05], [0.3, 0.6, 0.1], [0.01, 0.09, 0.9]


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not {what} after {timeout_s} s"
        time.sleep(0.05)


class Endpoint:
    """Speaks the TFaaS API and answers every request with ``outputs``; None: not at all."""

    def __init__(self) -> None:
        self.outputs: list[float] | None = ADMIT
        self.requests: list[dict] = []
        self.released = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                outer.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                if outer.outputs is None:
                    outer.released.wait()
                    return
                body = json.dumps(outer.outputs).encode()
                with contextlib.suppress(OSError):
                    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                    self.wfile.write(head.encode() + body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server.server_port}"

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class Site:
    """A folder with an origin's files, a decision log socket, and one XCache with the plugin."""

    def __init__(self, folder: Path, origin: xrootd.Xrootd) -> None:
        self.folder = folder
        self.origin = origin
        self.log = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.log.bind((LOOPBACK, 0))
        self.log.settimeout(20)
        self.gstream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.gstream.bind((LOOPBACK, 0))
        self.gstream.settimeout(40)
        self.metrics = folder / "metrics"
        self.metrics.mkdir()
        self.metrics.chmod(0o777)
        self.config = folder / "smartcache.toml"
        self.cache: xrootd.Xrootd | None = None

    def start(self, toml: str = "", raw: str | None = None) -> None:
        common = f"""
[decision_log]
port = {self.log.getsockname()[1]}
features = true
[plugin_metrics]
textfile = "{self.metrics}/smartcache.prom"
interval_s = 0.2
"""
        self.config.write_text(common + toml if raw is None else raw)
        port, fstream = free_ports(2)
        self.cache = xrootd.start_cache(
            self.folder / "cache",
            port,
            origin_port=self.origin.port,
            size=SIZE,
            plugin=paths.PLUGIN,
            plugin_config=self.config,
            monitoring=xrootd.Monitoring(self.gstream.getsockname()[1], fstream),
        )

    def stop(self) -> None:
        if self.cache is not None:
            self.cache.process.require_running()  # it must have survived everything that the test did
            self.cache.process.stop()
        self.log.close()
        self.gstream.close()

    def read(self, lfn: str) -> float:
        """Copy the file through the cache, compare its bytes, return the seconds."""
        copy = self.folder / "copy"
        start = time.monotonic()
        subprocess.run(["timeout", "60", "xrdcp", "-f", "-s", f"{self.cache.url}{lfn}", str(copy)], check=True, capture_output=True)
        elapsed = time.monotonic() - start
        assert copy.read_bytes() == (self.origin_data / lfn.lstrip("/")).read_bytes()
        return elapsed

    @property
    def origin_data(self) -> Path:
        return self.origin.folder.parent / "origin-data"

    def decision(self) -> dict:
        return json.loads(self.log.recv(65536))

    def opened(self, lfn: str) -> dict:
        self.read(lfn)
        decision = self.decision()
        assert decision["lfn"] == lfn
        return decision

    def on_disk(self, lfn: str) -> bool:
        return (self.cache.data / lfn.lstrip("/")).exists()

    def server_log(self) -> str:
        return (self.cache.folder / "cache" / "xrootd.log").read_text(errors="replace")

    def counter(self, sample: str) -> float:
        with contextlib.suppress(OSError):
            for line in (self.metrics / "smartcache.prom").read_text().splitlines():
                if line.startswith(sample + " "):
                    return float(line.rsplit(" ", 1)[1])
        return 0.0

    def promote(self, name: str = "reuse_v1") -> Path:
        bundles = self.folder / "models"
        (bundles / name).mkdir(parents=True)
        schema = _core.schema()
        bundle = {
            "format": 1,
            "name": name,
            "schema": schema,
            "bucket_edges_s": [3600, 86400],
            "horizon_s": 3600,
            "horizon_buckets": 1,
            "thresholds": {"admit": 0.5, "evict": 0.1},
            "metrics": {},
            "provenance": {},
        }
        (bundles / name / "bundle.json").write_text(json.dumps(bundle))
        (bundles / "current").symlink_to(name)
        return bundles

    def model(self, url: str, **more: object) -> str:
        settings = {"bundle_dir": str(self.promote()), "endpoint_url": url, "poll_s": 0.1, "deadline_ms": 900, **more}
        return "[policy]\nexplore = 0.0\n[model]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())


@pytest.fixture(scope="module")
def origin() -> Iterator[xrootd.Xrootd]:
    with xrootd.temporary_folder() as folder:
        store = folder / "origin-data" / "store" / "set"
        store.mkdir(parents=True)
        for i in range(8):
            (store / f"{i}.root").write_bytes(bytes([i]) * FILE_BYTES)
        server = xrootd.start_origin(folder / "origin", free_ports(1)[0], data=folder / "origin-data")
        yield server
        server.process.stop()


@contextlib.contextmanager
def another_site(origin: xrootd.Xrootd) -> Iterator[Site]:
    with xrootd.temporary_folder() as folder:
        one = Site(folder, origin)
        yield one
        one.stop()


@pytest.fixture
def site(origin: xrootd.Xrootd) -> Iterator[Site]:
    with another_site(origin) as one:
        yield one


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    one = Endpoint()
    yield one
    one.close()


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


def test_the_model_decides_and_evict_removes_the_file(site: Site, endpoint: Endpoint) -> None:
    lfn, other = "/store/set/3.root", "/store/set/4.root"
    site.start(site.model(endpoint.url))
    wait_until(lambda: site.counter('smartcache_model_info{model="reuse_v1"}') == 1, "the model in use")
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
    wait_until(lambda: not site.on_disk(lfn), "evicted")
    assert not (site.cache.data / (lfn.lstrip("/") + ".cinfo")).exists()
    wait_until(lambda: site.counter('smartcache_evictions_total{result="done"}') == 1, "counted")


def test_an_open_file_is_not_evicted_until_it_is_closed(site: Site, endpoint: Endpoint) -> None:
    lfn = "/store/set/3.root"
    site.start(site.model(endpoint.url))
    wait_until(lambda: site.counter('smartcache_model_info{model="reuse_v1"}') == 1, "the model in use")
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
        wait_until(lambda: not site.on_disk(lfn), "evicted after the close", 60)
        assert holder.wait(30) == 0


def test_evict_false_only_logs(site: Site, origin: xrootd.Xrootd, endpoint: Endpoint) -> None:
    lfn = "/store/set/3.root"
    toml = site.model(endpoint.url).replace("[policy]\n", "[policy]\nevict = false\n")
    site.start(toml)
    wait_until(lambda: site.counter('smartcache_model_info{model="reuse_v1"}') == 1, "the model in use")
    site.opened(lfn)
    endpoint.outputs = EVICT
    assert site.opened(lfn)["answer"] == "evict"
    # Another cache that is allowed to, asked later, has removed its copy: by then this one would have, too.
    with another_site(origin) as control:
        control.start(control.model(endpoint.url))
        wait_until(lambda: control.counter('smartcache_model_info{model="reuse_v1"}') == 1, "the model in use")
        endpoint.outputs = ADMIT
        control.opened(lfn)
        assert control.on_disk(lfn)
        endpoint.outputs = EVICT
        assert control.opened(lfn)["answer"] == "evict"
        wait_until(lambda: not control.on_disk(lfn), "evicted where that is allowed")
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
    wait_until(lambda: site.counter('smartcache_model_info{model="reuse_v1"}') == 1, "the model in use")
    reasons = [site.opened(f"/store/set/{i}.root")["reason"] for i in range(4)]
    assert reasons == ["unreachable", "unreachable", "breaker_open", "breaker_open"]
    assert all(site.on_disk(f"/store/set/{i}.root") for i in range(4))


def test_an_endpoint_that_does_not_answer_fails_no_open_and_holds_none_up(site: Site, endpoint: Endpoint) -> None:
    site.start(site.model(endpoint.url, deadline_ms=20, breaker_failures=6, breaker_open_s=600))
    wait_until(lambda: site.counter('smartcache_model_info{model="reuse_v1"}') == 1, "the model in use")
    endpoint.outputs = None
    decisions = [site.opened(f"/store/set/{i}.root") for i in range(8)]
    assert [d["reason"] for d in decisions] == ["deadline"] * 6 + ["breaker_open"] * 2
    assert all(d["answer"] == "admit" for d in decisions)
    # The fastest of them: a loaded machine may deschedule any one.
    assert min(d["latency_us"] for d in decisions[:6]) < 22_000


def test_replaying_the_log_gives_the_features_that_were_served(site: Site) -> None:
    site.start()
    for i in (0, 1, 0, 2, 1, 0):
        site.read(f"/store/set/{i}.root")
    log = [site.decision() for _ in range(6)]
    replayed = _core.Core().replay(
        np.array([d["t_us"] for d in log]),
        [d["lfn"] for d in log],
        np.array([d["on_disk"] for d in log]),
        np.array([d["size"] for d in log]),
        np.array([d["fill"] for d in log], np.float32),
    )
    assert replayed.tobytes() == np.array([d["features"] for d in log]).astype(np.float32).tobytes()

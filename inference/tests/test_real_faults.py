"""What goes wrong at a site, with the real registry and real endpoints: each ends with one whole version everywhere, and nobody's help."""

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from smartcache.inference import bundle as bundles
from smartcache.inference.registry import Registry
from smartcache.inference.tests.real_site import (
    Site,
    endpoint_ready,
    launch_endpoint,
    promote,
    register_untrained,
    served,
    start_endpoint,
    start_watch,
    status,
    wait_for,
    which,
)
from smartcache.local import ports
from smartcache.local.process import START_LIMIT_S, line_in

pytestmark = pytest.mark.slow

MODEL = "faults"
COUNT = 2


@pytest.fixture(scope="module")
def registry(tmp_path_factory, mlflow_uri, mlflow_folder, synthetic):
    """Three versions of other seeds; the artifacts of the third are gone."""
    for seed in (1, 2, 3):
        register_untrained(mlflow_uri, MODEL, synthetic, tmp_path_factory.mktemp(MODEL), seed)
    registry = Registry(mlflow_uri, MODEL)
    run_id = registry.get(3).run_id
    gone = [path for path in (mlflow_folder / "artifacts").rglob(bundles.INFO) if run_id in path.parts]
    assert gone
    for path in gone:
        shutil.rmtree(path.parent)
    return registry


class SlowProxy:
    """Passes TCP on to a server and holds back each piece of its answers for ``delay_s``, or gives them ``in_drops``."""

    def __init__(self, port):
        self._to = port
        self.delay_s = 0.0
        self.in_drops = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            self._open |= {client, server}
            for source, sink, slow in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pass_on, args=(source, sink, slow), daemon=True).start()

    def _pass_on(self, source, sink, slow):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if slow:
                    time.sleep(self.delay_s)  # the fault itself
                while slow and self.in_drops and data:
                    sink.sendall(data[:1])
                    data = data[1:]
                    time.sleep(0.3)  # the fault itself
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()
        for each in self._open:
            each.close()


@contextlib.contextmanager
def small_disk(folder: Path, size: str):
    """A file system of its own, in memory; skips the test where this machine lets nobody mount."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "smartcache-test", str(folder)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder):
    """Leave no byte free; the file that takes it."""
    path = folder / "filler"
    with path.open("ab", buffering=0) as out:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while out.write(b"f" * size) == size:
                    pass
    return path


@pytest.fixture
def fleet(tmp_path, registry, endpoint_binary):
    """A watcher's site and its endpoints, which run, as ``fleet.sites``; champion is version 1. ``fleet.proxy``: on the way to MLflow."""
    registry.move("champion", 1)
    with ExitStack() as stack:
        proxy = SlowProxy(int(registry.uri.rpartition(":")[2]))
        stack.callback(proxy.close)
        sites = [Site(tmp_path / f"endpoint{number}", registry.uri, MODEL, port) for number, port in enumerate(ports.free_ports(COUNT))]
        for site in sites:
            site.endpoint = launch_endpoint(site, endpoint_binary)
            stack.callback(lambda site=site: site.endpoint.stop())
        for site in sites:
            endpoint_ready(site, site.endpoint)
        urls = json.dumps([site.url for site in sites])
        watcher = Site(tmp_path / "watcher", f"http://127.0.0.1:{proxy.port}", MODEL, more=f"[promote]\nendpoints = {urls}\nwait_s = 1.0\n")
        watcher.sites, watcher.proxy = sites, proxy
        yield watcher


def one_version_everywhere(fleet, name):
    """One whole version: on disk, and at each endpoint."""
    if fleet.live != name or any(which(site) != name for site in fleet.sites):
        return False
    return bundles.read(fleet.bundle_dir / "current").info.name == name


def ready(watch, name=f"{MODEL}_v1"):
    return watch.wait_ready(line_in(watch.log, f"ready: {name} is live"), "ready", START_LIMIT_S)


def test_two_promotions_at_once(fleet, registry, synthetic):
    """Each by a process of its own, each tries its version at the endpoints; then the same version twice."""
    with start_watch(fleet, synthetic) as watch:
        ready(watch)
        for turn, pair in enumerate(((1, 2), (2, 1), (2, 2))):
            schema = ["--schema-hash", synthetic.SCHEMA["hash"]]
            with ExitStack() as stack:
                both = [
                    stack.enter_context(fleet.process(f"promote{turn}-{number}", "promote", str(version), *schema).start())
                    for number, version in enumerate(pair)
                ]
                assert [each.wait(120) for each in both] == [0, 0], [each.last_words() for each in both]
            champion = f"{MODEL}_v{registry.champion().number}"
            assert registry.champion().number in pair
            wait_for(lambda champion=champion: one_version_everywhere(fleet, champion), f"{champion} everywhere")
        assert watch.running


def test_the_artifacts_of_the_champion_are_gone(fleet, registry, synthetic):
    with start_watch(fleet, synthetic) as watch:
        ready(watch)
        code, output = promote(fleet, synthetic, "3")
        assert code == 3, output
        assert "not promoted" in output
        assert f"{MODEL} version 3 has no folder bundle/" in registry.get(3).tags["smartcache.gate.bundle"]
        registry.move("champion", 3)
        wait_for(line_in(watch.log, "faults_v1 stays live, trying again"), "said")
        wait_for(lambda: one_version_everywhere(fleet, "faults_v1"), "version 1 everywhere")
        registry.move("champion", 2)
        wait_for(lambda: one_version_everywhere(fleet, "faults_v2"), "version 2 everywhere")
    # Gone while it is the champion of a host that has never had it.
    registry.move("champion", 3)
    shutil.rmtree(fleet.bundle_dir)
    with start_watch(fleet, synthetic, "anew") as watch:
        wait_for(line_in(watch.log, "no model stays live, trying again"), "said")
        assert fleet.live is None
        assert {which(site) for site in fleet.sites} == {"faults_v2"}
        registry.move("champion", 2)
        wait_for(lambda: one_version_everywhere(fleet, "faults_v2"), "version 2 everywhere")


def test_the_disk_of_the_bundles_is_full(fleet, registry, synthetic):
    with small_disk(fleet.bundle_dir, "8m"), start_watch(fleet, synthetic) as watch:
        ready(watch)
        filler = fill(fleet.bundle_dir)
        registry.move("champion", 2)
        wait_for(line_in(watch.log, "faults_v1 stays live, trying again"), "said")
        wait_for(lambda: one_version_everywhere(fleet, "faults_v1"), "version 1 everywhere")
        filler.unlink()
        wait_for(lambda: one_version_everywhere(fleet, "faults_v2"), "version 2 everywhere")
        watch.kill()


def test_the_disk_of_an_endpoint_is_full(fleet, registry, synthetic, endpoint_binary):
    """It has no room, and nobody else goes ahead of it: a failed deployment, and MLflow says why. With room again it takes part."""
    victim = fleet.sites[0]
    victim.endpoint.stop()
    models = victim.folder / "models"
    with small_disk(models, "8m"):
        victim.endpoint = start_endpoint(victim, endpoint_binary)
        with start_watch(fleet, synthetic) as watch:
            ready(watch)
            wait_for(lambda: one_version_everywhere(fleet, "faults_v1"), "version 1 everywhere")
            filler = fill(models)
            registry.move("champion", 2)
            wait_for(line_in(watch.log, f"champion version 2 is not deployed: {victim.url}/upload: status 507"), "said")
            why = registry.get(2).tags["smartcache.gate.endpoint"]
            assert why.startswith(f"failed: {victim.url}/upload: status 507: ")
            assert "no space is left" in why
            assert {which(site) for site in fleet.sites} == {fleet.live} == {"faults_v1"}
            assert promote(fleet, synthetic, "2")[0] == 3
            assert status(fleet)[0] == 1
            filler.unlink()
            wait_for(lambda: one_version_everywhere(fleet, "faults_v2"), "version 2 everywhere")
            wait_for(lambda: registry.get(2).tags["smartcache.gates"] == "passed", "passed")
        victim.endpoint.stop()


@pytest.mark.parametrize("slow", [{"delay_s": 20.0}, {"in_drops": True}], ids=["late", "in drops"])
def test_a_slow_registry(slow, fleet, registry, synthetic, endpoint_binary):
    """Slow: it takes longer. Slower than anybody waits: what serves goes on, and the endpoints are still kept."""
    env = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "2", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    schema = ["--schema-hash", synthetic.SCHEMA["hash"]]
    with fleet.process("watch", "watch", *schema, env=env).start() as watch:
        ready(watch)
        fleet.proxy.delay_s = 0.2
        registry.move("champion", 2)
        wait_for(lambda: one_version_everywhere(fleet, "faults_v2"), "version 2 everywhere")
        vars(fleet.proxy).update(slow)
        registry.move("champion", 1)
        wait_for(line_in(watch.log, "cannot be reached"), "said")
        victim = fleet.sites[0]
        victim.endpoint.kill()
        shutil.rmtree(victim.folder / "models")
        (victim.folder / "models").mkdir()
        victim.endpoint = start_endpoint(victim, endpoint_binary)
        wait_for(lambda: one_version_everywhere(fleet, "faults_v2"), "version 2 everywhere again")
        vars(fleet.proxy).update(delay_s=0.0, in_drops=False)
        wait_for(lambda: one_version_everywhere(fleet, "faults_v1"), "version 1 everywhere")


def test_the_watcher_is_killed_while_a_challenger_comes(fleet, registry, synthetic):
    """Whatever it leaves, the champion serves, and the next watcher finishes the challenger, here and at the endpoints."""
    text = fleet.config.read_text()
    fleet.config.write_text(f"{text}[challenger]\ncanary_share = 0.5\nshadow = true\n")
    folder = fleet.bundle_dir / "challenger"
    registry.move("challenger", 2)
    for number, moment in enumerate((".incoming-*", ".incoming-*/bundle/weights.json", "faults_v2", "current")):
        with start_watch(fleet, synthetic, f"killed{number}") as watch:
            wait_for(lambda moment=moment: any(folder.glob(moment)) or (folder / "current").is_symlink(), moment)
            watch.kill()
        assert bundles.read(fleet.bundle_dir / "current").info.name == "faults_v1"
        assert not (folder / "current").is_symlink() or bundles.read(folder / "current").info.name == "faults_v2"
    with start_watch(fleet, synthetic, "last") as watch:
        ready(watch)
        wait_for(lambda: (folder / "current").is_symlink(), "the challenger is there")
        wait_for(lambda: all(served(site) == {"faults_v1", "faults_v2"} for site in fleet.sites), "each endpoint holds both")
    assert {path.name for path in folder.iterdir()} == {"current", ".lock", "faults_v2"}
    assert one_version_everywhere(fleet, "faults_v1")

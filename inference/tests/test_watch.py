"""The loop against a registry and an endpoint that fail on purpose; test_real.py has it against the real ones."""

import threading

import pytest

from smartcache import config as configs
from smartcache.inference.install import BundleDir, InstallError
from smartcache.inference.serving import Endpoint
from smartcache.inference.tests.fakes import METRICS
from smartcache.inference.watch import Watch

HASH = "0123456789abcdef"
SETTINGS = configs.load().gates
BAD = METRICS | {"skill": 0.0}


@pytest.fixture
def registry(fakes):
    return fakes.FakeRegistry()


@pytest.fixture
def server(fakes):
    with fakes.serve() as (fake, url), Endpoint(url, timeout_s=5) as endpoint:
        fake.endpoint = endpoint
        yield fake


@pytest.fixture
def said():
    return []


@pytest.fixture
def watch(registry, server, said, tmp_path):
    folder = BundleDir(tmp_path / "bundles", "reuse")
    watch = Watch(registry, folder, [server.endpoint], SETTINGS, HASH, said.append)
    with folder.writer():
        yield watch


@pytest.fixture
def publish(registry, make, tmp_path):
    """Registers a new version and makes it champion; returns its number."""

    def publish(tags=None, **changes):
        number = len(registry.versions) + 1
        bundle = make(tmp_path / "registry" / str(number), seed=number, provenance={"run_id": f"run-{number}"}, **changes)
        registry.add(bundle, tags)
        registry.aliases["champion"] = number
        return number

    return publish


def live(watch):
    return watch.bundles_.current()


def only_whole_bundles(watch):
    """Nothing half-applied: every folder there is a whole bundle of its name, and the link names one of them."""
    folder = watch.bundles_.folder
    names = {path.name for path in folder.iterdir()} - {"current", ".lock"}
    assert all(watch.bundles_.installed(name) for name in names), names
    assert live(watch) is None or live(watch) in names
    return names


def test_no_champion_yet(watch, said):
    assert watch.round()
    assert watch.round()
    assert said == ["ready: no champion yet is live"]


def test_champion_becomes_live(watch, publish, server, said):
    publish()
    assert watch.round()
    assert live(watch) == "reuse_v1"
    assert (watch.bundles_.folder / "current").readlink().as_posix() == "reuse_v1"
    assert server.names == {"reuse_v1"}
    assert said == ["reuse_v1 is live", "ready: reuse_v1 is live"]
    publish()
    assert watch.round()
    assert live(watch) == "reuse_v2"
    assert said[2:] == ["reuse_v2 is live, reuse_v1 was"]


def test_golden_rows_are_asked_before_the_link_moves(watch, publish, server):
    publish()
    seen = []
    server.before = lambda path: seen.append((path, live(watch)))
    watch.round()
    assert [path for path, _ in seen] == ["/models", "/upload"] + ["/json"] * 5
    assert {current for _, current in seen} == {None}


def test_a_quiet_round_asks_little(watch, publish, registry, server, said):
    publish()
    watch.round()
    server.requests.clear()
    said.clear()
    watch.round()
    assert server.requests == ["GET /models"]
    assert registry.downloads == 1
    assert said == []


def test_roll_back_downloads_nothing(watch, publish, registry, server):
    publish()
    watch.round()
    publish()
    watch.round()
    registry.aliases["champion"] = 1
    server.requests.clear()
    watch.round()
    assert live(watch) == "reuse_v1"
    assert registry.downloads == 2
    assert "POST /upload" not in server.requests


def test_old_ones_are_pruned_here_and_there(watch, publish, server):
    for _ in range(5):
        publish()
        watch.round()
    assert only_whole_bundles(watch) == server.names == {"reuse_v3", "reuse_v4", "reuse_v5"}


def test_an_endpoint_that_lost_its_models_gets_the_live_one_again(watch, publish, server, said):
    publish()
    watch.round()
    server.endpoint.delete("reuse_v1")
    watch.round()
    assert server.names == {"reuse_v1"}


@pytest.mark.parametrize("path", ["/models", "/upload", "/json"])
@pytest.mark.parametrize("status", [400, 401, 500, 503])
def test_refusing_endpoint(watch, publish, server, said, path, status):
    publish()
    watch.round()
    publish()
    said.clear()
    server.refuse[path] = status
    assert not watch.round()
    assert not watch.round()
    assert live(watch) == "reuse_v1"
    assert only_whole_bundles(watch) == {"reuse_v1"}
    assert len(said) == 1
    assert f"status {status}" in said[0]
    assert said[0].endswith("reuse_v1 stays live, trying again")
    server.refuse.clear()
    assert watch.round()
    assert live(watch) == "reuse_v2"
    assert said[1:] == ["well again", "reuse_v2 is live, reuse_v1 was"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda outputs: [value + 1e-4 for value in outputs],
        lambda outputs: outputs[:2],
        lambda outputs: [outputs],
        lambda outputs: [None] * len(outputs),
        lambda outputs: [float("nan")] * len(outputs),
        lambda outputs: {"error": "sorry"},
        lambda outputs: "text",
    ],
)
def test_lying_endpoint(watch, publish, server, said, answer):
    publish()
    server.answer = answer
    assert not watch.round()
    assert live(watch) is None
    assert only_whole_bundles(watch) == set()
    # What answers wrong does not stay there, or the next round would upload nothing.
    assert server.names == set()
    server.answer = lambda outputs: outputs
    assert watch.round()
    assert live(watch) == "reuse_v1"


def test_absent_endpoint_is_said_once(registry, publish, said, tmp_path):
    publish()
    folder = BundleDir(tmp_path / "bundles", "reuse")
    with Endpoint("http://127.0.0.1:1", timeout_s=1) as nobody, folder.writer():
        watch = Watch(registry, folder, [nobody], SETTINGS, HASH, said.append)
        assert not watch.round()
        assert not watch.round()
    assert len(said) == 1
    assert "endpoint http://127.0.0.1:1 cannot be reached" in said[0]
    assert "no model stays live" in said[0]
    assert folder.current() is None


def test_absent_registry_keeps_what_serves(watch, publish, registry, said):
    publish()
    watch.round()
    registry.absent = True
    said.clear()
    assert not watch.round()
    assert not watch.round()
    assert live(watch) == "reuse_v1"
    assert len(said) == 1
    assert "cannot be reached; reuse_v1 stays live" in said[0]
    registry.absent = False
    assert watch.round()
    assert said[1:] == ["well again"]


def test_torn_download(watch, publish, registry, said):
    publish()
    registry.torn = True
    assert not watch.round()
    assert "weights.json" in said[0]
    assert only_whole_bundles(watch) == set()
    registry.torn = False
    assert watch.round()


@pytest.mark.parametrize("at", ["/models", "/upload", "/json"])
def test_killed_in_mid_install(watch, publish, server, said, at):
    """The process ends between two steps; the next one finishes the work."""
    publish()
    watch.round()
    publish()

    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    real = server.endpoint._ask

    def ask(method, path, **options):
        if path == at:
            kill()
        return real(method, path, **options)

    server.endpoint._ask = ask
    with pytest.raises(Killed):
        watch.round()
    server.endpoint._ask = real
    assert live(watch) == "reuse_v1"
    # A real kill runs no clean-up: leave what it would leave.
    (watch.bundles_.folder / ".incoming-left").mkdir()
    assert watch.round()
    assert live(watch) == "reuse_v2"


def test_what_a_killed_one_left_is_removed(tmp_path):
    folder = BundleDir(tmp_path, "reuse")
    (tmp_path / ".incoming-abc").mkdir()
    (tmp_path / ".incoming-abc" / "x").touch()
    with folder.writer():
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_gates_hold_for_an_alias_that_was_moved_by_hand(watch, publish, said):
    publish()
    watch.round()
    publish(metrics=BAD)
    said.clear()
    assert not watch.round()
    assert live(watch) == "reuse_v1"
    assert "champion version 2 is refused by its gates: skill failed: 0.0000" in said[0]


def test_a_forced_one_goes_live(watch, publish):
    publish(metrics=BAD, tags={"smartcache.gates": "forced: first week"})
    assert watch.round()
    assert live(watch) == "reuse_v1"


def test_another_schema_is_refused(registry, publish, server, said, tmp_path):
    publish()
    folder = BundleDir(tmp_path / "bundles", "reuse")
    with folder.writer():
        assert not Watch(registry, folder, [server.endpoint], SETTINGS, "f" * 16, said.append).round()
    assert "schema failed: 0123456789abcdef" in said[0]


def test_registry_made_anew(watch, publish, make, registry, tmp_path, said):
    """Version numbers begin again: the same name would mean another model, and nobody would notice."""
    publish()
    watch.round()
    other = make(tmp_path / "anew", seed=9, provenance={"run_id": "run-other"})
    registry.folders, registry.versions = {}, {}
    registry.add(other)
    assert not watch.round()
    assert "reuse_v1 is the model of run run-1, but version 1 of the registry is of run run-other" in said[-1]
    assert live(watch) == "reuse_v1"


def test_damaged_bundle_on_disk_is_fetched_again(watch, publish, registry):
    publish()
    watch.round()
    (watch.bundles_.folder / "reuse_v1" / "weights.json").write_text("{")
    assert watch.round()
    assert registry.downloads == 2
    assert live(watch) == "reuse_v1"
    assert only_whole_bundles(watch) == {"reuse_v1"}


def test_one_writer(tmp_path):
    first, second = BundleDir(tmp_path, "reuse"), BundleDir(tmp_path, "reuse")
    with first.writer(), pytest.raises(InstallError, match="another `smartcache watch` writes here"), second.writer():
        pass
    with BundleDir(tmp_path, "reuse").writer():
        pass


def test_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InstallError, match="cannot be written"), BundleDir(tmp_path / "file" / "x", "reuse").writer():
        pass


def test_readers_see_a_whole_bundle_at_any_time(watch, publish):
    """A reader that follows the link all the time, as the plugin does, never finds nothing."""
    publish()
    watch.round()
    stop, trouble = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                (watch.bundles_.folder / "current" / "bundle.json").read_text()
            except OSError as error:
                trouble.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(5):
        publish()
        assert watch.round()
    stop.set()
    reader.join()
    assert trouble == []


def test_foreign_folders_are_left_alone(watch, publish):
    for name in ("other_v1", "reuse_v1_backup", "notes"):
        (watch.bundles_.folder / name).mkdir()
    for _ in range(4):
        publish()
        watch.round()
    assert {"other_v1", "reuse_v1_backup", "notes"} <= {path.name for path in watch.bundles_.folder.iterdir()}


def test_token_is_sent(watch, publish, server, said):
    publish()
    server.token = "secret"
    assert not watch.round()
    assert "status 401" in said[0]
    assert "admin_token_file" in said[0]
    assert "secret" not in said[0]
    with Endpoint(server.endpoint.url, "secret") as endpoint:
        watch.endpoints[0] = endpoint
        assert watch.round()


def test_run_ends_when_told(registry, server, said, tmp_path):
    stop = threading.Event()
    watch = Watch(
        registry, BundleDir(tmp_path / "b", "reuse"), [server.endpoint], SETTINGS, HASH, lambda line: (said.append(line), stop.set())
    )
    watch.run(stop, poll_s=3600)
    assert said == ["ready: no champion yet is live"]

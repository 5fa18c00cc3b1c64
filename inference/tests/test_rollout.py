"""Several endpoints that fail on purpose: what goes live, what waits, and what is brought back. test_real_fleet.py has real ones."""

from contextlib import ExitStack

import pytest

from smartcache.inference import bundle as bundles
from smartcache.inference.install import BundleDir
from smartcache.inference.registry import RegistryAbsent
from smartcache.inference.rollout import Fleet
from smartcache.inference.serving import Endpoint
from smartcache.inference.tests.fakes import METRICS, site_config
from smartcache.inference.watch import Watch

HASH = "0123456789abcdef"
CONFIG = site_config()
A_DAY = 86400.0


class Killed(BaseException):
    """In place of SIGKILL: nothing handles it."""


@pytest.fixture
def registry(fakes):
    return fakes.FakeRegistry()


@pytest.fixture
def servers(fakes):
    with ExitStack() as stack:
        servers = []
        for _ in range(3):
            fake, url = stack.enter_context(fakes.serve())
            fake.url = url
            servers.append(fake)
        yield servers


@pytest.fixture
def said():
    return []


@pytest.fixture
def start(registry, servers, said, tmp_path):
    """Starts a watcher, as a new process would; the one before is gone."""
    with ExitStack() as stack:

        def start(wait_s=0.0):
            stack.pop_all().close()
            endpoints = [stack.enter_context(Endpoint(fake.url, timeout_s=5)) for fake in servers]
            folder = BundleDir(tmp_path / "bundles", "reuse")
            watch = Watch(registry, folder, Fleet(endpoints, wait_s), CONFIG, HASH, said.append)
            stack.enter_context(folder.writer())
            return watch

        yield start


@pytest.fixture
def publish(registry, make, tmp_path):
    """Registers a new version and makes it champion."""

    def publish(**changes):
        number = len(registry.known) + 1
        registry.add(make(tmp_path / "registry" / str(number), seed=number, provenance={"run_id": f"run-{number}"}, **changes))
        registry.aliases["champion"] = number
        return number

    return publish


def away(fake, status=503):
    fake.refuse[""] = status


def back(fake):
    fake.refuse.clear()


def answering(servers):
    """The version that predictions without a name get, at each server; it is there, whole."""
    for fake in servers:
        assert not fake.default or bundles.read(fake.folder / fake.default).info.name == fake.default
    return [fake.default for fake in servers]


def serving(watch):
    return [member.serves for member in watch.fleet.members]


def test_all_have_it_before_any_uses_it(start, publish, servers):
    watch = start()
    publish()
    seen = []
    for fake in servers:
        fake.before = lambda path: path == "/upload" and seen.append((watch.bundles_.current(), answering(servers)))
    assert watch.round()
    assert seen == [(None, ["", "", ""])] * 3
    assert answering(servers) == serving(watch) == ["reuse_v1"] * 3


@pytest.mark.parametrize(("path", "status"), [("/upload", 422), ("/upload", 401), ("/json", 500), ("/models", 403)])
def test_one_that_says_no_holds_up_all(start, publish, servers, said, path, status):
    watch = start()
    publish()
    assert watch.round()
    publish()
    servers[1].refuse[path] = status
    assert not watch.round()
    assert watch.bundles_.current() == "reuse_v1"
    assert answering(servers) == ["reuse_v1"] * 3
    assert f"{servers[1].url}{path}: status {status}" in said[-1]
    back(servers[1])
    assert watch.round()
    assert answering(servers) == serving(watch) == ["reuse_v2"] * 3


def test_one_that_answers_wrong_holds_up_all(start, publish, servers, said):
    watch = start()
    publish()
    servers[2].answer = lambda outputs: outputs[::-1]
    assert not watch.round()
    assert watch.bundles_.current() is None
    assert "golden row 0 of reuse_v1 must be answered to 1e-05" in said[0]
    assert servers[2].names == set()


@pytest.mark.parametrize(("path", "status"), [("/upload", 500), ("/upload", 507), ("/upload", 503), ("/upload", 422), ("/json", 503)])
def test_one_that_answers_but_does_not_take_it_fails_the_deployment(start, publish, servers, registry, said, path, status):
    """Not at once, and for as long as it is so. What served stays everywhere, MLflow says why; with room again it goes live by itself."""
    watch = start(wait_s=A_DAY)
    publish()
    assert watch.round()
    publish()
    servers[1].refuse[path] = status
    for _ in range(2):
        assert not watch.round()
    assert "smartcache.gates" not in registry.known[2].tags
    watch.fleet.wait_s = 0  # a day later
    for _ in range(3):
        assert not watch.round()
        assert watch.bundles_.current() == "reuse_v1"
        assert answering(servers) == ["reuse_v1"] * 3
        # Who cannot be asked for a prediction is not seen to serve anything.
        assert serving(watch) == ["reuse_v1", "" if path == "/json" else "reuse_v1", "reuse_v1"]
    tags = registry.known[2].tags
    assert tags["smartcache.gates"] == "failed"
    assert tags["smartcache.gate.endpoint"].startswith(f"failed: {servers[1].url}{path}: status {status}")
    assert registry.report("run-2").startswith("# reuse_v2: failed")
    assert len([line for line in said if f"champion version 2 is not deployed: {servers[1].url}{path}: status {status}" in line]) == 1
    assert registry.downloads == 2
    back(servers[1])
    assert watch.round()
    assert answering(servers) == serving(watch) == ["reuse_v2"] * 3
    assert registry.known[2].tags["smartcache.gates"] == "passed"
    assert registry.known[2].tags["smartcache.gate.endpoint"].startswith("passed: 3 of 3 ")
    assert registry.downloads == 2


def test_the_time_of_one_that_was_away_is_not_that_of_another(start, publish, servers, registry):
    """Nor its own: when it is back it has all its time to take the version."""
    watch = start(wait_s=A_DAY)
    publish()
    assert watch.round()
    publish()
    away(servers[0])
    assert not watch.round()
    member = watch.fleet.members[0]
    member._untaken = (member._untaken[0], member._untaken[1] - 2 * A_DAY, member._untaken[2])  # two days later
    servers[1].refuse["/upload"] = 422
    assert not watch.round()
    assert "smartcache.gates" not in registry.known[2].tags
    back(servers[1])
    servers[0].refuse = {"/upload": 503}
    assert not watch.round()
    assert watch.bundles_.current() == "reuse_v1"
    assert "smartcache.gates" not in registry.known[2].tags
    back(servers[0])
    assert watch.round()
    assert watch.bundles_.current() == "reuse_v2"


def test_one_that_is_forced_while_it_is_not_deployed_stays_forced(start, publish, servers, registry):
    """The watcher has seen its tags as they were before."""
    watch = start()
    publish()
    assert watch.round()
    publish()
    servers[0].refuse["/upload"] = 507
    servers[0].before = lambda path: path == "/upload" and registry.tag(2, {"smartcache.gates": "forced: let me"})
    assert not watch.round()
    assert registry.known[2].tags["smartcache.gates"] == "forced: let me"
    assert "smartcache.gate.endpoint" not in registry.known[2].tags
    servers[0].before = lambda path: None
    assert not watch.round()
    assert registry.known[2].tags["smartcache.gates"] == "forced: let me"
    assert registry.known[2].tags["smartcache.gate.endpoint"].startswith("failed: ")


def test_a_forced_one_that_is_not_deployed_stays_forced(start, publish, servers, registry):
    watch = start()
    publish()
    assert watch.round()
    publish(metrics=METRICS | {"skill": 0.0})
    registry.tag(2, {"smartcache.gates": "forced: let me"})
    servers[0].refuse["/upload"] = 507
    for _ in range(2):
        assert not watch.round()
    assert registry.known[2].tags["smartcache.gates"] == "forced: let me"
    assert registry.known[2].tags["smartcache.gate.endpoint"].startswith("failed: ")
    assert registry.downloads == 2
    back(servers[0])
    assert watch.round()
    assert answering(servers) == ["reuse_v2"] * 3


def test_what_was_said_of_a_failed_deployment_waits_for_the_registry(start, publish, servers, registry):
    watch = start()
    publish()
    servers[0].refuse["/upload"] = 507
    fetched = registry.tag

    def absent(*_):
        raise RegistryAbsent("gone")

    registry.tag = absent
    assert not watch.round()
    assert registry.known[1].tags == {}
    registry.tag = fetched
    assert not watch.round()
    assert registry.known[1].tags["smartcache.gates"] == "failed"
    assert registry.downloads == 1


def test_rolling_back_goes_past_one_that_has_no_room(start, publish, servers, registry):
    """It has lost the version that is rolled back to. Its plugins have their copy of it; the others must not be left with the bad one."""
    watch = start(wait_s=A_DAY)
    for _ in range(2):
        publish()
        assert watch.round()
    watch.fleet.members[1].endpoint.delete("reuse_v1")
    servers[1].refuse["/upload"] = 507
    registry.aliases["champion"] = 1
    assert not watch.round()
    assert watch.bundles_.current() == "reuse_v1"
    assert answering(servers)[::2] == ["reuse_v1"] * 2
    assert serving(watch) == ["reuse_v1", "", "reuse_v1"]
    back(servers[1])
    assert watch.round()
    assert answering(servers) == serving(watch) == ["reuse_v1"] * 3


def test_what_was_not_deployed_does_not_stay_where_it_was_taken(start, publish, servers, registry):
    """Champions that one endpoint refuses, one after the other, and the watcher killed meanwhile."""
    watch = start()
    publish()
    assert watch.round()
    servers[0].refuse["/upload"] = 422
    for number in (2, 3):
        publish()
        assert not watch.round()
        assert servers[1].names == servers[2].names == {"reuse_v1", f"reuse_v{number}"}
    away(servers[2])
    again = start()
    registry.aliases["champion"] = 1
    again.round()
    assert servers[1].names == {"reuse_v1"}
    assert servers[2].names == {"reuse_v1", "reuse_v3"}
    back(servers[2])
    again.round()
    assert again.round()
    assert servers[2].names == {"reuse_v1"}


def test_one_that_is_away_is_waited_for_and_then_left_behind(start, publish, servers, said):
    watch = start(wait_s=A_DAY)
    publish()
    assert watch.round()
    publish()
    away(servers[0])
    assert not watch.round()
    assert watch.bundles_.current() == "reuse_v1"
    assert "the new version waits for it for [promote] wait_s 86400 s; reuse_v1 stays live, trying again" in said[-1]
    watch.fleet.wait_s = 0  # a day later
    assert not watch.round()
    assert watch.bundles_.current() == "reuse_v2"
    assert answering(servers) == ["reuse_v1", "reuse_v2", "reuse_v2"]
    assert serving(watch) == ["", "reuse_v2", "reuse_v2"]
    assert watch.fleet.members[0].away_since_us
    count = len(said)
    assert not watch.round()
    assert len(said) == count, "said once"
    back(servers[0])
    assert watch.round()
    assert said[-1] == "well again"
    assert answering(servers) == serving(watch) == ["reuse_v2"] * 3


def test_who_returns_is_verified_before_it_counts(start, publish, servers):
    watch = start()
    publish()
    assert watch.round()
    away(servers[0])
    publish()
    watch.round()
    back(servers[0])
    servers[0].answer = lambda outputs: outputs[::-1]
    assert not watch.round()
    assert serving(watch) == ["", "reuse_v2", "reuse_v2"]
    assert servers[0].default == "reuse_v1", "who has no right answer is not switched"
    servers[0].answer = lambda outputs: outputs
    assert watch.round()
    assert serving(watch) == ["reuse_v2"] * 3


def test_with_all_away_nothing_goes_live(start, publish, servers, said):
    watch = start()
    publish()
    assert watch.round()
    publish()
    for fake in servers:
        away(fake)
    assert not watch.round()
    assert watch.bundles_.current() == "reuse_v1"
    for fake in servers:
        back(fake)
    assert watch.round()
    assert answering(servers) == ["reuse_v2"] * 3


def test_away_in_the_switch(start, publish, servers):
    """It has the version, but its default could not be moved: the version is live, and the next round moves it."""
    watch = start()
    publish()
    assert watch.round()
    publish()
    servers[1].refuse["/params"] = 503
    assert not watch.round()
    assert watch.bundles_.current() == "reuse_v2"
    assert answering(servers) == ["reuse_v2", "reuse_v1", "reuse_v2"]
    assert serving(watch) == ["reuse_v2", "", "reuse_v2"]
    back(servers[1])
    assert watch.round()
    assert answering(servers) == ["reuse_v2"] * 3


def test_rolling_back_waits_for_nobody_and_asks_no_gate(start, publish, servers, registry):
    watch = start(wait_s=A_DAY)
    publish()
    watch.round()
    publish()
    watch.round()
    away(servers[0])
    watch.config = site_config(min_skill=0.99)
    registry.aliases["champion"] = 1
    watch.round()
    assert watch.bundles_.current() == "reuse_v1"
    assert answering(servers)[1:] == ["reuse_v1"] * 2
    assert registry.downloads == 2
    back(servers[0])
    assert watch.round()
    assert answering(servers) == ["reuse_v1"] * 3


@pytest.mark.parametrize("moved_back", [False, True])
@pytest.mark.parametrize("which", [0, 2])
@pytest.mark.parametrize("path", ["/models", "/upload", "/json", "/status", "/params"])
def test_watcher_killed_at_each_step(start, publish, servers, registry, path, which, moved_back):
    watch = start()
    publish()
    assert watch.round()
    publish()
    real = watch.fleet.members[which].endpoint._ask

    def ask(method, asked, **options):
        if asked == path:
            raise Killed
        return real(method, asked, **options)

    watch.fleet.members[which].endpoint._ask = ask
    with pytest.raises(Killed):
        watch.round()
    current = watch.bundles_.current()
    assert bundles.read(watch.bundles_.folder / "current").info.name == current
    assert set(answering(servers)) <= {"reuse_v1", current}, "nobody is ahead of the link"
    if moved_back:
        registry.aliases["champion"] = 1
    again = start()
    assert again.round()
    expected = "reuse_v1" if moved_back else "reuse_v2"
    assert again.bundles_.current() == expected
    assert answering(servers) == serving(again) == [expected] * 3


def test_a_folder_that_the_endpoint_cannot_load_is_replaced(start, publish, servers):
    watch = start()
    publish()
    servers[0].refuse["/upload"] = 409
    servers[0].before = lambda path: path.startswith("/delete/") and servers[0].refuse.clear()
    assert watch.round()
    assert "DELETE /delete/reuse_v1" in servers[0].requests
    assert answering(servers) == ["reuse_v1"] * 3


def test_who_returns_loses_its_old_versions_too(start, publish, servers):
    watch = start()
    publish()
    watch.round()
    away(servers[0])
    for _ in range(4):
        publish()
        watch.round()
    assert servers[0].names == {"reuse_v1"}
    back(servers[0])
    assert watch.round()
    assert servers[0].names == {"reuse_v5"}
    assert servers[1].names == watch.bundles_.names() == {"reuse_v3", "reuse_v4", "reuse_v5"}


def test_what_another_host_needs_is_not_deleted(start, publish, servers):
    watch = start()
    publish()
    assert watch.round()
    for name in ("reuse_v9", "other_v0", "reuse_v0x"):
        (servers[0].folder / name).mkdir()
    publish()
    assert watch.round()
    assert servers[0].names == {"reuse_v1", "reuse_v2", "reuse_v9", "other_v0", "reuse_v0x"}


def test_endpoints_are_kept_while_the_registry_is_away(start, publish, servers, registry):
    watch = start()
    publish()
    assert watch.round()
    registry.absent = True
    servers[2].default = ""
    watch.fleet.members[2].endpoint.delete("reuse_v1")
    assert not watch.round()
    assert answering(servers) == serving(watch) == ["reuse_v1"] * 3


def test_a_refused_champion_is_fetched_and_judged_once(start, publish, registry, said):
    watch = start()
    publish(metrics=METRICS | {"skill": 0.0})
    assert not watch.round()
    assert not watch.round()
    assert registry.downloads == 1
    assert registry.known[1].tags["smartcache.gates"] == "failed"
    assert registry.known[1].tags["smartcache.gate.skill"].startswith("failed: 0.0000")
    assert len(said) == 1
    registry.tag(1, {"smartcache.gates": "forced: first week"})
    assert watch.round()
    assert watch.bundles_.current() == "reuse_v1"


def test_since_when_outlives_the_watcher(start, publish, servers):
    first = start()
    publish()
    first.round()
    since = [member.since_us for member in first.fleet.members]
    assert all(since)
    servers[1].default = ""
    second = start()
    second._known.remember(second.bundles_, second.fleet.members)
    second.round()
    again = [member.since_us for member in second.fleet.members]
    assert again[::2] == since[::2]
    assert again[1] > since[1], "what was moved meanwhile serves since then"


def test_a_server_that_knows_no_default(start, publish, servers):
    """Stock TFaaS has no aliases in its status; callers name the model."""
    watch = start()
    publish()
    servers[0].refuse.update({"/status": 404, "/params": 404})
    assert watch.round()
    assert serving(watch) == ["reuse_v1"] * 3

"""Rolling back, which asks no gate and waits for nobody; endpoints that answer and do not serve; what is said of it in MLflow."""

import shutil

import pytest

from smartcache import config as configs
from smartcache.inference.gates import expected_schema_hash
from smartcache.inference.install import BundleDir
from smartcache.inference.pause import Pause, Pauses
from smartcache.inference.rollout import Fleet
from smartcache.inference.serving import EndpointAway
from smartcache.inference.tests import tables
from smartcache.inference.tests.fakes import METRICS, site_config
from smartcache.inference.watch import Watch

BAD = METRICS | {"skill": 0.0}


def live(watch):
    return watch.bundles_.current()


def served(watch, publish, count):
    for _ in range(count):
        publish()
        assert watch.round()


def test_one_that_has_served_is_gone_back_to_without_gates(watch, publish, registry, server):
    """Its bundle is not on this disk any more, the gates have become stricter, and nothing can be replayed."""
    served(watch, publish, 5)
    assert "reuse_v1" not in watch.bundles_.names()
    watch.config = site_config(min_skill=0.99, replay_days=14.0, latency_requests=10, latency_p50_ms=1e-4)
    report = dict(registry.artifacts)
    registry.aliases["champion"] = 1
    assert watch.round()
    assert live(watch) == server.default == "reuse_v1"
    assert registry.artifacts == report, "gates that were not asked have said nothing"


def test_an_old_one_that_has_never_served_meets_the_gates(watch, publish, registry, said):
    publish(metrics=BAD)
    publish()
    assert watch.round()
    registry.aliases["champion"] = 1
    assert not watch.round()
    assert live(watch) == "reuse_v2"
    assert "skill failed" in said[-1]


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize(("path", "status"), [("", 503), ("/upload", 507), ("/upload", 500), ("/upload", 401)])
def test_the_only_endpoint_holds_up_no_roll_back(watch, publish, registry, server, said, path, status, pruned):
    served(watch, publish, 5 if pruned else 2)
    if not pruned:
        server.endpoint.delete("reuse_v1")
    said.clear()
    server.refuse[path] = status
    registry.aliases["champion"] = 1
    assert not watch.round()
    assert live(watch) == "reuse_v1"
    url = server.endpoint.url
    was = "reuse_v5" if pruned else "reuse_v2"
    assert said[0] == f"reuse_v1 is live, {was} was; {url} gets it when it is back"
    assert f"status {status}" in said[1]
    server.refuse.clear()
    assert watch.round()
    assert server.default == "reuse_v1"


def test_nobody_who_answers_wrong_is_rolled_back_to(watch, publish, registry, server, said):
    served(watch, publish, 2)
    server.answer = lambda outputs: outputs[::-1]
    watch.fleet.members[0].fails(EndpointAway("it was restarted"))
    registry.aliases["champion"] = 1
    assert not watch.round()
    assert live(watch) == "reuse_v2"
    assert any("golden row 0 of reuse_v1" in line for line in said)


def test_a_replay_does_not_hold_up_a_roll_back(registry, server, tmp_path, said):
    """While the opens are replayed for version 2 somebody moves the alias back."""
    opens = [tables.Open(tables.T0_US + i * 600_000_000, f"/store/mc/C/P/T/f{i % 7}") for i in range(40)]
    table = str(tables.write(tmp_path / "access", opens))
    config = configs.parse({"streaming": {"table": table}, "gates": {"latency_requests": 0}, "watch": {"poll_s": 1e-3}}, "test")
    for number in (1, 2):
        registry.add(tables.bundle(tmp_path / str(number), config, (0.8, 0.1, 0.1)))
    registry.tag(1, {"smartcache.gates": "forced: few opens"})
    registry.aliases["champion"] = 1
    folder = BundleDir(tmp_path / "bundles", "reuse")
    watch = Watch(registry, folder, Fleet([server.endpoint], wait_s=0), config, expected_schema_hash(config), said.append)
    with folder.writer():
        assert watch.round()
        registry.aliases["champion"] = 2
        look = registry.champion

        def moved():
            """The alias is moved once the bundle of version 2 is here: what looks then is the replay."""
            registry.aliases["champion"] = 1 if registry.downloads == 2 else registry.aliases["champion"]
            return look()

        registry.champion = moved
        assert watch.round()
    assert registry.aliases["champion"] == 1
    assert live(watch) == "reuse_v1"
    assert said == ["reuse_v1 is live", "ready: reuse_v1 is live"]
    assert not list(folder.folder.glob(".incoming-*"))
    assert "smartcache.gates" not in registry.known[2].tags


# --- endpoints that answer, and do not serve what is live ---


def test_what_an_endpoint_refuses_is_not_sent_each_round(watch, publish, server, said):
    """It has lost what is live, and does not take it again: an upload every few seconds would fill its disk and the network."""
    now = [1000.0]
    watch._pauses_kept = Pauses(5.0, 60.0, clock=lambda: now[0])
    publish()
    assert watch.round()
    server.endpoint.delete("reuse_v1")
    server.refuse["/upload"] = 507
    tried = []
    for second in range(0, 150):
        now[0] = 1000.0 + second
        server.requests.clear()
        assert not watch.round()
        if "POST /upload" in server.requests:
            tried.append(second)
    assert tried == [0, 5, 15, 35, 75, 135]
    assert len([line for line in said if "/upload: status 507" in line]) == 1
    # One that goes away is asked each round from when that is seen, and gets it at once when it is back.
    now[0] += 60
    server.refuse = {"": 503}
    assert not watch.round()
    server.refuse.clear()
    assert watch.round()
    assert server.names == {"reuse_v1"}


@pytest.mark.parametrize("status", [500, 507])
def test_an_endpoint_that_cannot_write_its_default_is_not_away(watch, publish, server, status):
    """Its disk is full: what is old is deleted there all the same, which makes room."""
    served(watch, publish, 3)
    publish()
    server.refuse["/params"] = status
    assert not watch.round()
    assert live(watch) == "reuse_v4"
    assert watch.fleet.members[0].away_since_us is None
    assert server.default == "reuse_v3"
    assert server.names == {"reuse_v2", "reuse_v3", "reuse_v4"}
    server.refuse.clear()
    assert watch.round()
    assert server.default == "reuse_v4"


def test_an_endpoint_that_cannot_delete_is_not_away(watch, publish, server, said):
    served(watch, publish, 3)
    server.refuse["/delete/"] = 500
    publish()
    assert not watch.round()
    assert watch.fleet.members[0].serves == server.default == "reuse_v4"
    assert watch.fleet.members[0].away_since_us is None
    assert "/delete/reuse_v1: status 500" in said[-1]
    server.refuse.clear()
    assert watch.round()
    assert server.names == {"reuse_v2", "reuse_v3", "reuse_v4"}


def test_what_is_the_default_of_one_without_room_stays(watch, publish, server):
    served(watch, publish, 1)
    server.refuse["/params"] = 507
    for _ in range(4):
        publish()
        assert not watch.round()
    assert server.names == {"reuse_v1", "reuse_v3", "reuse_v4", "reuse_v5"}


# --- what is said in MLflow ---


def test_a_damaged_bundle_is_said_in_mlflow_once_and_fetched_again(watch, publish, registry):
    publish()
    registry.torn = True
    written = []
    tag = registry.tag
    registry.tag = lambda number, tags: (written.append(tags), tag(number, tags))
    assert not watch.round()
    assert not watch.round()
    assert registry.known[1].tags["smartcache.gates"] == "failed"
    assert "weights.json" in registry.known[1].tags["smartcache.gate.bundle"]
    assert registry.report("run-1").startswith("# reuse_v1: failed")
    assert len(written) == 1
    registry.torn = False
    assert watch.round()
    assert registry.known[1].tags["smartcache.gates"] == "passed"
    assert registry.known[1].tags["smartcache.gate.bundle"].startswith("passed")


def test_that_the_artifacts_are_gone_is_said_in_mlflow_once(watch, publish, registry, said):
    """A registry may be put right: it is asked again all the same."""
    publish()
    assert watch.round()
    publish()
    there = registry.folders[2]
    registry.folders[2] = there / "gone"
    for _ in range(2):
        assert not watch.round()
    assert live(watch) == "reuse_v1"
    assert registry.known[2].tags["smartcache.gates"] == "failed"
    assert registry.known[2].tags["smartcache.gate.bundle"].startswith("failed: run run-2 has no folder bundle/")
    assert registry.report("run-2").startswith("# reuse_v2: failed")
    assert len([line for line in said if "refused by its gates: bundle failed: run run-2 has no folder" in line]) == 1
    registry.folders[2] = there
    assert watch.round()
    assert live(watch) == "reuse_v2"
    assert registry.known[2].tags["smartcache.gate.bundle"].startswith("passed")


def test_a_damaged_bundle_that_is_forced_meanwhile_stays_forced(watch, publish, registry, monkeypatch):
    publish()
    registry.torn = True
    download = registry.download_bundle

    def forced_meanwhile(*arguments):
        registry.tag(1, {"smartcache.gates": "forced: let me"})
        return download(*arguments)

    monkeypatch.setattr(registry, "download_bundle", forced_meanwhile)
    assert not watch.round()
    assert registry.known[1].tags == {"smartcache.gates": "forced: let me"}


@pytest.mark.parametrize("forced", [False, True])
def test_a_roll_back_after_a_torn_download_is_no_failure_any_more(watch, publish, registry, forced):
    """What is gone back to is not on this disk, and its first download is torn. That it has passed, or was forced, is told again."""
    publish(metrics=BAD if forced else METRICS, tags={"smartcache.gates": "forced: let me"} if forced else None)
    assert watch.round()
    served(watch, publish, 4)
    before = dict(registry.known[1].tags)
    registry.torn = True
    registry.aliases["champion"] = 1
    for _ in range(2):
        assert not watch.round()
    assert registry.known[1].tags["smartcache.gate.bundle"].startswith("failed")
    assert registry.known[1].tags["smartcache.gates"] == ("forced: let me" if forced else "failed")
    registry.torn = False
    assert watch.round()
    assert live(watch) == "reuse_v1"
    assert registry.known[1].tags == before


def test_another_damage_after_that_has_its_own_pauses(watch, publish, registry):
    """What was noted of the first damage is over with it."""
    now = [1000.0]
    watch._pause = Pause(5.0, 60.0, clock=lambda: now[0])
    publish()
    registry.torn = True
    assert not watch.round()
    registry.torn = False
    now[0] += 5
    assert watch.round()
    shutil.rmtree(watch.bundles_.folder / "reuse_v1")
    registry.folders[1] = registry.folders[1] / "gone"
    downloads = registry.downloads
    for _ in range(3):
        assert not watch.round()
    assert registry.downloads == downloads + 1


def test_what_the_saved_model_answers_is_measured_at_the_endpoint(watch, publish, registry, server, said):
    """The bundle says of itself that all three forms are equal. The endpoint, which alone evaluates the SavedModel, answers otherwise."""
    watch.config = site_config(max_output_difference=2e-6)
    server.answer = lambda outputs: [value + 5e-6 for value in outputs]
    publish()
    assert not watch.round()
    assert live(watch) is None
    assert "endpoint failed: 1 of 1 answer its golden rows to 5" in said[0]
    assert registry.known[1].tags["smartcache.gate.endpoint"].startswith("failed: 1 of 1 answer its golden rows to 5")
    assert server.names == set()
    server.answer = lambda outputs: outputs
    registry.tag(1, {"smartcache.gates": ""})
    assert watch.round()
    assert registry.known[1].tags["smartcache.gate.endpoint"].startswith("passed: 1 of 1 answer its golden rows to ")

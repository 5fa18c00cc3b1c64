import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from smartcache import config as configs
from smartcache.inference import bundle as bundles
from smartcache.inference import cli, export
from smartcache.inference import promote as promotion
from smartcache.inference.gates import expected_schema_hash
from smartcache.inference.registry import RegistryAbsent, RegistryError
from smartcache.inference.rollout import Fleet
from smartcache.inference.serving import Endpoint
from smartcache.inference.tests import tables
from smartcache.inference.tests.fakes import METRICS, FakeRegistry, site_config
from smartcache.inference.tests.tables import T0_US, Open
from smartcache.training import model as network

HASH = "0123456789abcdef"
CONFIG = site_config()
BAD = METRICS | {"skill": 0.0}


@pytest.fixture
def registry(fakes, make, tmp_path):
    """Versions 1, 2 and 4 are good, 3 has no skill."""
    registry = fakes.FakeRegistry()
    for number in range(1, 5):
        registry.add(make(tmp_path / str(number), **({"metrics": BAD} if number == 3 else {})))
    return registry


def test_newest_is_promoted(registry):
    done = promotion.promote(registry, CONFIG, HASH)
    assert (done.version.number, done.moved, done.passed, done.previous) == (4, True, True, None)
    assert registry.aliases["champion"] == 4
    assert registry.known[4].tags["smartcache.gates"] == "passed"


def test_a_failed_gate_moves_nothing(registry):
    promotion.promote(registry, CONFIG, HASH, 1)
    done = promotion.promote(registry, CONFIG, HASH, 3)
    assert (done.moved, done.passed) == (False, False)
    assert registry.aliases["champion"] == 1
    assert registry.known[3].tags["smartcache.gates"] == "failed"
    assert "smartcache.previous_champion" not in registry.known[3].tags


def test_force_needs_a_bundle(registry):
    (registry.folders[3] / "weights.json").unlink()
    assert not promotion.promote(registry, CONFIG, HASH, 3, force="anyway").moved
    assert "champion" not in registry.aliases


def test_one_whose_artifacts_are_gone_is_refused(registry):
    shutil.rmtree(registry.folders[3])
    done = promotion.promote(registry, CONFIG, HASH, 3, force="anyway")
    assert ([gate.name for gate in done.gates], done.passed, done.moved) == (["bundle"], False, False)
    assert registry.known[3].tags["smartcache.gates"] == "failed"
    assert "has no folder bundle/" in registry.known[3].tags["smartcache.gate.bundle"]
    assert "champion" not in registry.aliases


def test_what_cannot_be_noted_of_one_that_is_refused_is_told(registry, monkeypatch):
    """Its run is gone, and with it the place for reports."""

    def gone(*_):
        raise RegistryError("MLflow: no such run")

    monkeypatch.setattr(registry, "log_text", gone)
    done = promotion.promote(registry, CONFIG, HASH, 3)
    assert (done.passed, done.notes) == (False, ["what the gates said is not noted with it: MLflow: no such run"])
    with pytest.raises(RegistryError, match="no such run"):
        promotion.promote(registry, CONFIG, HASH, 4)
    assert "champion" not in registry.aliases


def test_force_keeps_the_reason(registry):
    assert promotion.promote(registry, CONFIG, HASH, 3, force="first week").moved
    assert registry.known[3].tags["smartcache.gates"] == "forced: first week"


def test_dry_run_writes_nothing(registry):
    done = promotion.promote(registry, CONFIG, HASH, 4, dry_run=True)
    assert (done.moved, done.passed) == (False, True)
    assert registry.aliases == {}
    assert registry.known[4].tags == {}


def test_there_and_back(registry):
    for number in (1, 2, 4):
        promotion.promote(registry, CONFIG, HASH, number)
    assert [version.number for version in promotion.rollback(registry)] == [4, 2]
    assert registry.aliases["champion"] == 2
    assert [version.number for version in promotion.rollback(registry)] == [2, 1]
    with pytest.raises(RegistryError, match="version 1 is the first champion"):
        promotion.rollback(registry)


def test_a_champion_that_nothing_is_compared_with_is_not_downloaded(registry):
    """Nobody replays here."""
    promotion.promote(registry, CONFIG, HASH, 1)
    assert promotion.promote(registry, CONFIG, HASH, 2).moved
    assert registry.downloads == 2


def test_promoting_the_champion_again_keeps_the_way_back(registry):
    promotion.promote(registry, CONFIG, HASH, 1)
    promotion.promote(registry, CONFIG, HASH, 2)
    assert not promotion.promote(registry, CONFIG, HASH, 2).moved
    assert promotion.rollback(registry)[1].number == 1


def test_nothing_to_roll_back(registry):
    with pytest.raises(RegistryError, match="has no champion to roll back from"):
        promotion.rollback(registry)


def test_what_the_gates_said_is_kept_with_the_run(registry):
    promotion.promote(registry, CONFIG, HASH, 3)
    report = registry.artifacts["run-1/gates/promote.md"]
    assert report.startswith("# reuse_v3: failed: not promoted\n")
    assert "| skill | 0.0000 | loss at least 0.02 of itself below that of the base rates | **failed** |" in report
    told = json.loads(registry.artifacts["run-1/gates/promote.json"])
    assert {"name": "skill", "value": "0.0000"}.items() <= next(each for each in told if each["name"] == "skill").items()


# --- with endpoints ---


@pytest.fixture
def server(fakes):
    with fakes.serve() as (fake, url), Endpoint(url, timeout_s=5) as endpoint:
        fake.fleet = Fleet([endpoint], wait_s=0)
        yield fake


FAST = site_config(latency_requests=10, latency_p50_ms=500.0, latency_p99_ms=5000.0)
TOO_SLOW = site_config(latency_requests=10, latency_p50_ms=1e-4)


def test_it_is_tried_at_the_endpoint_and_serves_nobody(registry, server):
    done = promotion.promote(registry, FAST, HASH, 1, fleet=server.fleet)
    assert done.moved
    assert [gate.name for gate in done.gates][-2:] == ["endpoint", "latency"]
    assert server.names == {"reuse_v1"}
    assert server.default == ""
    assert registry.known[1].tags["smartcache.gate.latency"].startswith("passed: p50 ")


def test_one_that_is_too_slow_is_not_promoted(registry, server):
    promotion.promote(registry, FAST, HASH, 1, fleet=server.fleet)
    done = promotion.promote(registry, TOO_SLOW, HASH, 2, fleet=server.fleet)
    assert (done.passed, done.moved) == (False, False)
    assert registry.aliases["champion"] == 1
    assert server.names == {"reuse_v1"}
    assert registry.known[2].tags["smartcache.gate.latency"].startswith("failed: p50 ")
    assert promotion.promote(registry, TOO_SLOW, HASH, 2, fleet=server.fleet, force="far away").moved


def test_one_that_the_endpoint_answers_wrong_is_not_promoted(registry, server):
    server.answer = lambda outputs: [value + 1e-4 for value in outputs]
    done = promotion.promote(registry, FAST, HASH, 1, fleet=server.fleet)
    assert not done.moved
    assert done.gates[-1].name == "endpoint"
    assert "golden row 0 of reuse_v1" in done.gates[-1].value
    assert server.names == set()


@pytest.mark.parametrize("status", [500, 507])
def test_one_that_an_endpoint_has_no_room_for_is_not_promoted(registry, server, status):
    promotion.promote(registry, FAST, HASH, 1, fleet=server.fleet)
    server.refuse["/upload"] = status
    done = promotion.promote(registry, FAST, HASH, 2, fleet=server.fleet)
    assert (done.passed, done.moved) == (False, False)
    assert registry.aliases["champion"] == 1
    assert f"/upload: status {status}" in registry.known[2].tags["smartcache.gate.endpoint"]
    assert registry.known[2].tags["smartcache.gates"] == "failed"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A bundle with a SavedModel, as training exports it."""
    network.deterministic(3)
    rows = np.random.default_rng(3).standard_normal((20, 3)).astype(np.float32)
    model = network.build(*network.normalization(rows), [4], 3, learning_rate=0.01, dropout=0.2)
    info = bundles.Info.model_validate(
        {
            "schema": {"version": 1, "names": ["a", "b", "c"], "hash": HASH},
            "bucket_edges_s": [60.0, 3600.0],
            "horizon_s": 3600.0,
            "horizon_buckets": 2,
            "thresholds": {"admit": 0.2, "evict": 0.05},
            "metrics": METRICS,
            "provenance": {"run_id": "run-1"},
        }
    )
    return export.export(model, tmp_path_factory.mktemp("exported") / "bundle", info, rows, 1e-5)


@pytest.mark.parametrize("status", [401, 503])
def test_an_endpoint_that_cannot_be_asked_from_here_is_the_watchers(registry, exported, server, status):
    number = registry.add(exported)
    server.refuse["/upload"] = status
    done = promotion.promote(registry, FAST, HASH, number, fleet=server.fleet)
    assert done.moved
    assert "latency" not in [gate.name for gate in done.gates]
    assert f"status {status}" in done.notes[0]
    assert "`smartcache watch` measures it there before it serves" in done.notes[0]


def test_where_no_endpoint_can_be_asked_the_saved_model_is_evaluated_here(registry, exported, server, tmp_path):
    """The figure in the bundle says that it equals the others. It is another model's."""
    server.refuse[""] = 503
    done = promotion.promote(registry, FAST, HASH, registry.add(exported), fleet=server.fleet)
    assert done.moved
    assert done.gates[-1].name == "saved_model"
    shutil.copytree(exported.folder, tmp_path / "other")
    other = network.build(exported.embedded.mean, exported.embedded.scale, [4], 3, learning_rate=0.01, dropout=0.2)
    export.write_saved_model(other, tmp_path / "other")
    number = registry.add(bundles.read(tmp_path / "other"))
    done = promotion.promote(registry, FAST, HASH, number, fleet=server.fleet)
    assert not done.moved
    assert [gate.name for gate in done.gates if not gate.passed] == ["saved_model"]
    (tmp_path / "other" / "saved_model.pb").write_bytes(b"no SavedModel")
    assert "cannot be evaluated: " in promotion.promote(registry, FAST, HASH, number, fleet=server.fleet).gates[-1].value


def test_where_tensorflow_is_not_installed_either_it_is_said(registry, server, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    server.refuse[""] = 503
    done = promotion.promote(registry, FAST, HASH, 1, fleet=server.fleet)
    assert done.moved
    assert done.notes[-1].startswith("saved_model: not evaluated, as no endpoint can be asked from here and TensorFlow is not installed")


def test_where_there_is_no_endpoint_the_saved_model_is_evaluated_too(registry, exported, monkeypatch):
    done = promotion.promote(registry, FAST, HASH, registry.add(exported), fleet=Fleet([], wait_s=0))
    assert done.moved
    assert done.gates[-1].name == "saved_model"
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    done = promotion.promote(registry, FAST, HASH, 1, fleet=Fleet([], wait_s=0))
    assert done.notes[-1].startswith("saved_model: not evaluated, as there is no endpoint and TensorFlow is not installed")


@pytest.mark.parametrize("status", [401, 403, 503])
def test_one_that_cannot_be_asked_from_here_does_not_hide_another(registry, server, fakes, status):
    with fakes.serve() as (second, url), Endpoint(url, timeout_s=5) as endpoint:
        fleet = Fleet([server.fleet.members[0].endpoint, endpoint], wait_s=0)
        server.refuse["/upload"] = status
        second.answer = lambda outputs: [value + 1e-4 for value in outputs]
        done = promotion.promote(registry, FAST, HASH, 1, fleet=fleet)
        assert not done.moved
        assert f"{url}: golden row 0 of reuse_v1" in done.gates[-1].value
        assert second.names == set()
        second.answer = lambda outputs: outputs
        done = promotion.promote(registry, FAST, HASH, 1, fleet=fleet)
        assert done.moved
        assert [gate.name for gate in done.gates][-2:] == ["endpoint", "latency"]
        assert done.gates[-2].value.startswith("1 of 2 answer its golden rows to ")
        assert f"status {status}" in done.notes[0]


def test_what_the_system_refuses_is_one_line(tmp_path, capsys):
    with pytest.raises(typer.Exit) as ended, cli._errors():
        (tmp_path / "none" / "file").write_text("")
    assert ended.value.exit_code == cli.FAILED
    assert capsys.readouterr().err == f"[Errno 2] No such file or directory: '{tmp_path}/none/file'; mend the path or its rights\n"


def test_a_full_disk_is_one_line(capsys):
    with pytest.raises(typer.Exit) as ended, cli._errors():
        Path("/dev/full").write_text("x")
    assert ended.value.exit_code == cli.FAILED
    assert capsys.readouterr().err == "[Errno 28] No space left on device; make room there\n"


def test_a_dry_run_tries_it_at_no_endpoint(registry, server):
    promotion.promote(registry, FAST, HASH, 1, fleet=server.fleet, dry_run=True)
    assert server.requests == []
    assert registry.artifacts == {}


def test_a_bundle_that_fails_is_tried_at_no_endpoint(registry, server):
    assert not promotion.promote(registry, FAST, HASH, 3, fleet=server.fleet).moved
    assert server.requests == []


# --- with an access table ---


@pytest.fixture
def table(tmp_path):
    """A configuration with a table of opens, and a registry of two models: one keeps everything, one nothing."""
    opens = [Open(T0_US + i * 600_000_000, f"/store/mc/C/P/T/f{i % 7 if i % 3 else i}") for i in range(400)]
    config = configs.parse(
        {
            "streaming": {"table": str(tables.write(tmp_path / "access", opens))},
            "gates": {"replay_capacity_bytes": 2000, "latency_requests": 0},
            "evictor": {"enabled": False},
        },
        "test",
    )
    registry = FakeRegistry()
    for name, outputs in (("all", (0.8, 0.1, 0.1)), ("nothing", (0.1, 0.1, 0.8))):
        registry.add(tables.bundle(tmp_path / name, config, outputs))
    return config, registry, expected_schema_hash(config)


def test_the_replay_decides(table):
    config, registry, schema = table
    shown = []
    done = promotion.promote(registry, config, schema, 1, progress=lambda *told: shown.append(told))
    assert done.moved, [str(gate) for gate in done.gates]
    assert registry.known[1].tags["smartcache.replayed"] > "2026"
    assert registry.known[1].tags["smartcache.replayed_against"] == "none"
    assert shown[0] == (0, 0, f"reading the last days of {config.streaming.table}")
    assert {what for *_, what in shown[1:]} == {"host:1094"}  # cache by cache, all models at once
    done = promotion.promote(registry, config, schema, 2)
    assert not done.moved
    failed = {gate.name for gate in done.gates if not gate.passed}
    assert failed == {"replay_miss_lru", "replay_miss_champion"}
    assert registry.aliases["champion"] == 1
    assert registry.known[2].tags["smartcache.replayed_against"] == f"version 1 of run {registry.known[1].run_id}"
    assert registry.known[2].tags["smartcache.gate.replay_miss_champion"].startswith("failed: byte miss 1.0000, the champion's 0.")
    assert promotion.promote(registry, config, schema, 2, force="to see").moved


def test_a_champion_that_cannot_be_fetched_now_is_waited_for(table, monkeypatch):
    """Else a moment's trouble at MLflow would let a worse version pass."""
    config, registry, schema = table
    promotion.promote(registry, config, schema, 2, force="to see")
    download = registry.download_bundle

    def away_for_the_champion(version, folder):
        registry.absent = version.number == 2
        try:
            return download(version, folder)
        finally:
            registry.absent = False

    monkeypatch.setattr(registry, "download_bundle", away_for_the_champion)
    with pytest.raises(RegistryAbsent, match=r"version 2 is the champion, .*--force"):
        promotion.promote(registry, config, schema, 1)
    assert registry.aliases["champion"] == 2
    assert registry.known[1].tags == {}
    done = promotion.promote(registry, config, schema, 1, force="its files cannot be had any more")
    assert done.moved
    assert "not compared: version 2 is the champion, and " in next(gate.value for gate in done.gates if gate.name == "replay_champion")


def test_it_is_compared_with_what_has_become_champion_meanwhile(table, monkeypatch):
    """Two promotions at once: the later one must not pass by what the earlier one has left behind."""
    config, registry, schema = table
    download, moved = registry.download_bundle, []

    def another_is_faster(version, folder):
        if version.number == 2 and not moved:
            moved.append(promotion.promote(registry, config, schema, 1).moved)
        return download(version, folder)

    monkeypatch.setattr(registry, "download_bundle", another_is_faster)
    done = promotion.promote(registry, config, schema, 2)
    assert moved == [True]
    assert not done.moved
    assert "replay_miss_champion" in {gate.name for gate in done.gates if not gate.passed}
    assert registry.aliases["champion"] == 1


def test_a_champion_that_never_stays_is_an_error(registry, monkeypatch):
    download = registry.download_bundle

    def moves_it(version, folder):
        if version.number == 4:
            registry.move("champion", 3 - registry.aliases.get("champion", 1))
        return download(version, folder)

    monkeypatch.setattr(registry, "download_bundle", moves_it)
    with pytest.raises(RegistryError, match="was moved 5 times while version 4 was judged; find out who else promotes"):
        promotion.promote(registry, CONFIG, HASH, 4)


def test_a_champion_whose_files_are_gone_does_not_hold_up_its_successor(table):
    config, registry, schema = table
    promotion.promote(registry, config, schema, 2, force="to see")
    shutil.rmtree(registry.folders[2])
    done = promotion.promote(registry, config, schema, 1)
    assert done.moved
    assert "not compared: version 2 is the champion, but " in next(gate.value for gate in done.gates if gate.name == "replay_champion")

"""The whole way with the real servers: train, register, gates, promote, watch, endpoint, roll back; and each of them away or killed."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from smartcache.inference import bundle as bundles
from smartcache.inference import lineage, serving
from smartcache.inference.registry import Registry, RegistryAbsent, RegistryError
from smartcache.inference.tests.real_site import ROOT, Site, promote, run, served, start_endpoint, start_watch, train, wait_for
from smartcache.local import ports
from smartcache.local.process import START_LIMIT_S, line_in

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def registered(tmp_path_factory, mlflow_uri, dataset):
    """Two trained versions, registered under a name of their own."""
    site = Site(tmp_path_factory.mktemp("site"), mlflow_uri, "reuse")
    for number in (1, 2):
        code, output = train(site, dataset)
        assert code == 0, output
        assert f"reuse version {number}" in output
    return site


def test_a_version_carries_what_it_takes_to_judge_and_repeat_it(registered, dataset, synthetic):
    import mlflow

    registry = Registry(registered.uri, "reuse")
    version = registry.newest()
    assert version.number == 2
    assert registry.alias("challenger").number == 2
    manifest = json.loads((dataset / "manifest.json").read_text())
    assert version.tags["smartcache.dataset_sha256"] == manifest["sha256"]
    assert json.loads(version.tags["smartcache.window"]) == manifest["window"]
    assert version.tags["smartcache.schema_hash"] == synthetic.SCHEMA["hash"]
    assert version.tags["smartcache.seed"] == "1"
    assert {"smartcache.git_revision", "smartcache.command", "smartcache.test_skill"} <= version.tags.keys()

    client = mlflow.MlflowClient(tracking_uri=registered.uri)
    run_ = client.get_run(version.run_id)
    assert run_.info.status == "FINISHED"
    assert run_.data.params["seed"] == "1"
    assert run_.data.metrics["test_skill"] > 0.02
    assert len(client.get_metric_history(version.run_id, "val_loss")) == int(run_.data.params["epochs_run"])
    assert {"bundle", "manifest.json"} <= {each.path for each in client.list_artifacts(version.run_id)}
    description = client.get_model_version("reuse", "2").description
    assert f"hash `{synthetic.SCHEMA['hash']}`" in description
    assert f"| skill | {float(run_.data.metrics['test_skill']):.6g} |" in description
    opens = json.loads(version.tags["smartcache.opens"])
    assert sum(opens.values()) == manifest["rows"]
    assert f"judged on {opens['judged']} opens" in description


def test_the_logged_keras_model_is_the_bundle(registered, tmp_path):
    import mlflow
    import mlflow.pyfunc

    registry = Registry(registered.uri, "reuse")
    bundle = bundles.read(registry.download_bundle(registry.get(1), tmp_path))
    mlflow.set_tracking_uri(registered.uri)
    model = mlflow.pyfunc.load_model("models:/reuse/1")
    assert model.metadata.signature.inputs.to_dict()[0]["tensor-spec"]["shape"] == (-1, 4)
    assert model.input_example.shape == (5, 4)
    answers = np.asarray(model.predict(bundle.golden_inputs), dtype=np.float32)
    assert bundles.max_difference(answers, bundle.golden_outputs) < 1e-5


def test_promote_and_roll_back(registered, synthetic):
    registry = Registry(registered.uri, "reuse")
    assert registry.champion() is None
    code, output = promote(registered, synthetic, "1", "--dry-run")
    assert code == 0, output
    assert registry.champion() is None
    code, output = promote(registered, synthetic, "1")
    assert code == 0, output
    assert "champion: version 1" in output
    code, output = promote(registered, synthetic)
    assert code == 0, output
    assert "champion: version 2 (was 1)" in output
    assert registry.champion().tags["smartcache.gates"] == "passed"
    code, output = promote(registered, synthetic, command="rollback")
    assert (code, output) == (0, "champion: version 1 (was 2)\n")
    code, output = promote(registered, synthetic, command="rollback")
    assert code == 1
    assert "is the first champion" in output
    assert registry.champion().number == 1


def test_a_failed_gate_leaves_the_champion(registered):
    from smartcache.inference.cli import REFUSED, register

    registry = Registry(registered.uri, "reuse")
    registry.move("champion", 1)
    code, output = run(register, "promote", "2", "--schema-hash", "f" * 16, "--config", str(registered.config))
    assert code == REFUSED
    assert "not promoted" in output
    assert registry.champion().number == 1
    assert registry.get(2).tags["smartcache.gates"] == "failed"


def test_what_is_not_there_is_named(registered, synthetic):
    assert promote(registered, synthetic, "99")[0] == 1
    nothing = Registry(registered.uri, "nothing")
    assert nothing.champion() is None
    with pytest.raises(RegistryError, match="has no version of nothing; register one with `smartcache train`"):
        nothing.newest()


def test_absent_registry(tmp_path, dataset, synthetic):
    site = Site(tmp_path, f"http://127.0.0.1:{ports.free_ports(1)[0]}", "reuse")
    started = time.monotonic()
    for code, output in (train(site, dataset), promote(site, synthetic)):
        assert code == 1
        assert f"MLflow at {site.uri} cannot be reached; start it, or set [mlflow] tracking_uri" in output
    assert time.monotonic() - started < 60
    with pytest.raises(RegistryAbsent):
        Registry(site.uri, "reuse").require_server()


def test_train_without_a_registry(tmp_path, dataset):
    site = Site(tmp_path, "http://127.0.0.1:1", "reuse")
    code, output = train(site, dataset, "--no-register", "--output", str(tmp_path / "bundle"))
    assert code == 0, output
    assert bundles.read(tmp_path / "bundle").info.name == ""
    code, output = train(site, dataset, "--no-register", "--output", str(tmp_path / "bundle"))
    assert code == 1
    assert "never written over" in output


# --- with the real endpoint ---


@pytest.fixture
def site(tmp_path, registered, endpoint_binary):
    """A site with an endpoint that runs and a champion, version 1."""
    (port,) = ports.free_ports(1)
    Registry(registered.uri, "reuse").move("champion", 1)
    site = Site(tmp_path, registered.uri, "reuse", port)
    site.endpoint = start_endpoint(site, endpoint_binary)
    yield site
    site.endpoint.stop()


def test_promotion_times_the_endpoint_and_keeps_a_report(site, synthetic):
    import mlflow

    registry = Registry(site.uri, "reuse")
    code, output = promote(site, synthetic, "2")
    assert code == 0, output
    assert "reuse_v2" in served(site)
    version = registry.get(2)
    assert version.tags["smartcache.gate.latency"].startswith("passed: p50 0.") or "ms at" in version.tags["smartcache.gate.latency"]
    report = mlflow.artifacts.load_text(f"runs:/{version.run_id}/gates/promote.md")
    assert report.startswith("# reuse_v2: passed\n")
    assert f"ms at {site.url} (50 requests)" in report
    told = json.loads(mlflow.artifacts.load_text(f"runs:/{version.run_id}/gates/promote.json"))
    assert [gate["name"] for gate in told][-2:] == ["endpoint", "latency"]


def test_one_that_the_endpoint_is_too_slow_with_is_not_promoted(site, synthetic):
    from smartcache.inference.cli import REFUSED

    text = site.config.read_text()
    site.config.write_text(text.replace("latency_p50_ms = 4000.0", "latency_p50_ms = 0.0001"))
    code, output = promote(site, synthetic, "2")
    assert code == REFUSED
    assert "not promoted" in output
    registry = Registry(site.uri, "reuse")
    assert registry.champion().number == 1
    assert registry.get(2).tags["smartcache.gates"] == "failed"
    assert "reuse_v2" not in served(site)
    # Moved in MLflow all the same: the watcher asks too.
    with start_watch(site, synthetic) as watch:
        registry.move("champion", 2)
        wait_for(line_in(watch.log, "champion version 2 is refused by its gates: latency failed: p50 "), "refused")
        assert site.live is None
        site.config.write_text(text)
        code, output = promote(site, synthetic, "2")
        assert code == 0, output
    with start_watch(site, synthetic, "again") as watch:
        watch.wait_ready(line_in(watch.log, "ready: reuse_v2 is live"), "ready", START_LIMIT_S)


def test_promotion_goes_live_and_back(site, synthetic):
    registry = Registry(site.uri, "reuse")
    with start_watch(site, synthetic, cold=True) as watch:
        watch.wait_ready(line_in(watch.log, "ready: reuse_v1 is live"), "ready", START_LIMIT_S)
        assert site.live == "reuse_v1"
        assert "reuse_v1" in served(site)
        for number in (1, 2):
            registry.tag(number, {lineage.PREVIOUS: ""})  # of promotions in other tests
        registry.move("champion", 2)
        wait_for(lambda: site.live == "reuse_v2", "version 2 is live")
        with serving.Endpoint(site.url) as endpoint:
            endpoint.check_golden(bundles.read(site.bundle_dir / "current"))
        wait_for(lambda: lineage.SERVED in registry.get(2).tags, "that it has served is noted")
        code, output = promote(site, synthetic, command="rollback")
        assert (code, output) == (0, "champion: version 1 (was 2)\n"), output
        wait_for(lambda: site.live == "reuse_v1", "rolled back")
        os.kill(watch.pid, signal.SIGTERM)
        assert watch.wait(120) == 0
    said = [line for line in site.log("watch").splitlines() if line != "well again" and not line.endswith("trying again")]
    # On a busy machine an endpoint may answer too late to be waited for, and get the version afterwards.
    assert [line.partition(";")[0] for line in said] == [
        "reuse_v1 is live",
        "ready: reuse_v1 is live",
        "reuse_v2 is live, reuse_v1 was",
        "reuse_v1 is live, reuse_v2 was",
    ]


def test_endpoint_away_then_back(site, synthetic, endpoint_binary):
    with start_watch(site, synthetic) as watch:
        watch.wait_ready(line_in(watch.log, "ready:"), "ready", START_LIMIT_S)
        site.endpoint.kill()
        Registry(site.uri, "reuse").move("champion", 2)
        wait_for(line_in(watch.log, "reuse_v1 stays live, trying again"), "the trouble is said")
        assert site.live == "reuse_v1"
        site.endpoint = start_endpoint(site, endpoint_binary)
        wait_for(lambda: site.live == "reuse_v2", "version 2 is live")
    # What is wrong is said when it changes: away, starting, cut off, late. Each round it would be many more.
    assert site.log("watch").count("trying again") <= 5


def test_watch_killed_at_any_moment(site, synthetic):
    """Killed again and again on the way from version 1 to 2: what is on disk is whole at each moment, and the last one gets there."""
    registry = Registry(site.uri, "reuse")
    with start_watch(site, synthetic) as watch:
        watch.wait_ready(line_in(watch.log, "ready:"), "ready", START_LIMIT_S)
    registry.move("champion", 2)
    for marker in (".incoming-*", ".incoming-*/bundle/weights.json", ".incoming-*/reuse_v2", "reuse_v2"):
        with start_watch(site, synthetic, "killed") as watch:
            wait_for(lambda marker=marker: site.live == "reuse_v2" or any(site.bundle_dir.glob(marker)), marker)
            watch.kill()
        assert bundles.read(site.bundle_dir / "current").info.name in ("reuse_v1", "reuse_v2")
    with start_watch(site, synthetic, "last") as watch:
        watch.wait_ready(line_in(watch.log, "ready: reuse_v2 is live"), "ready", START_LIMIT_S)
    assert {path.name for path in site.bundle_dir.iterdir()} == {"current", ".lock", ".state.json", ".uploads.json", "reuse_v1", "reuse_v2"}


def test_registry_away_at_start(tmp_path, synthetic):
    site = Site(tmp_path, f"http://127.0.0.1:{ports.free_ports(1)[0]}", "reuse")
    with start_watch(site, synthetic) as watch:
        watch.wait_ready(line_in(watch.log, "no model stays live, trying again"), "saying so", START_LIMIT_S)
        os.kill(watch.pid, signal.SIGTERM)
        assert watch.wait(120) == 0
    assert site.log("watch").count("cannot be reached") == 1


def test_endpoint_missing_binary(tmp_path, registered):
    site = Site(tmp_path, registered.uri, "reuse")
    done = subprocess.run(
        [sys.executable, "-m", "smartcache.inference.cli", "endpoint", "--config", str(site.config)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SMARTCACHE_ENDPOINT": str(tmp_path / "none")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "the endpoint's binary is missing" in done.stderr

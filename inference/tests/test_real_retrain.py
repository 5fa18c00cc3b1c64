"""Retraining with Spark, MLflow and the core: a round that is stopped, one that goes on with it, and one that follows a champion."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from smartcache import config as configs
from smartcache.inference import bundle as bundles
from smartcache.inference.registry import Registry
from smartcache.inference.tests import tables
from smartcache.inference.tests.real_site import ROOT, Site, run
from smartcache.local.process import Process
from smartcache.training.cli import register

pytestmark = pytest.mark.slow
LIMIT_S = 300


@pytest.fixture(scope="module")
def site(tmp_path_factory, mlflow_uri, synthetic):
    folder = tmp_path_factory.mktemp("retrain")
    made = synthetic.opens(1500)
    opens = [tables.Open(int(t), lfn, int(size)) for t, lfn, size in zip(made["t_us"], made["lfn"], made["size"], strict=True)]
    table = tables.write(folder / "access", opens)
    more = (
        f'[streaming]\ntable = "{table}"\n[spark]\nmaster = "local[1]"\nshuffle_partitions = 1\n'
        f'[retraining]\ndir = "{folder / "work"}"\nwindow_days = 40.0\n[drift]\ncalibration = 1.0\n'
    )
    return Site(folder / "site", mlflow_uri, "slid", more=more)


def start(site, name, *options):
    argv = [sys.executable, "-m", "smartcache", "retrain", *options, "--config", str(site.config)]
    return Process(name, argv, site.folder / f"{name}.log", env={"PYTHONPATH": str(ROOT)}, cwd=site.folder).start()


def end(process, status):
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(LIMIT_S) == status


def test_rounds(site, tmp_path):
    registry = Registry(site.uri, "slid")
    work = site.folder.parent / "work"
    with start(site, "stopped") as process:
        process.wait_ready(lambda: bool(list(work.glob(".set-*.training/state.npz"))), "at its second epoch", LIMIT_S)
        end(process, 130)
    assert "stopped within a round" in site.log("stopped")
    assert registry.versions(1) == []
    (dataset,) = work.glob("set-*")

    with start(site, "every", "--every") as process:
        process.wait_ready(lambda: "the next round is in" in site.log("every"), "through a round", LIMIT_S)
        code, output = run(register, "retrain", "--config", str(site.config))
        assert code == 1
        assert f"another `smartcache retrain` (process {process.pid}) is at work here" in output
        end(process, 0)
    log = site.log("every")
    assert f"going on with the training on {dataset}" in log
    assert "no drift report: slid has no champion yet" in log
    assert registry.alias("challenger").number == 1
    assert not list(work.glob(".set-*"))

    registry.move("champion", 1)
    code, output = run(register, "retrain", "--config", str(site.config))
    assert code == 0, output
    second = registry.alias("challenger")
    assert second.number == 2
    assert second.tags["smartcache.drift_since"] == "slid_v1"
    # The same opens.
    assert second.tags["smartcache.drift"] == "within the thresholds"
    last = json.loads((work / "last.json").read_text())
    assert last["dataset"] == str(sorted(work.glob("set-*"))[-1])
    assert len(list(work.glob("set-*"))) == 2
    manifest = json.loads((work / last["dataset"] / "manifest.json").read_text())
    days = configs.load(site.config).retraining.window_days
    assert manifest["window"]["last_us"] - manifest["window"]["from_us"] <= days * 86400e6
    assert 900 < manifest["rows"] < 1050

    origin = bundles.read(registry.download_bundle(second, tmp_path)).info.provenance
    assert origin["warm_start"]["run_id"] == registry.get(1).run_id
    assert origin["judge"]["by"] == "replay"
    drift = Path(registry._client.download_artifacts(second.run_id, "drift", str(tmp_path)))
    assert "Drift since slid_v1" in (drift / "index.html").read_text()
    found = json.loads((drift / "drift.json").read_text())
    assert found["labels"]["psi"] == pytest.approx(0, abs=1e-9)
    assert max(each["psi"] for each in found["features"]) == 0
    assert len(found["features"]) == len(manifest["schema"]["names"])
    assert not found["notes"]

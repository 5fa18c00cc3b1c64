"""A model made again from what its MLflow run says; what is not as it was then is named."""

import json

import numpy as np
import pytest

from smartcache import config as configs
from smartcache.inference.registry import Registry
from smartcache.inference.tests.real_site import Site, run, train
from smartcache.training.cli import register

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory, mlflow_uri):
    return Site(tmp_path_factory.mktemp("site"), mlflow_uri, "again")


@pytest.fixture(scope="module")
def kept(synthetic, tmp_path_factory, site):
    """A training set with its opens as a trace, and the run of a model whose epochs they judged, after one that it began with."""
    folder = tmp_path_factory.mktemp("opens")
    made = synthetic.opens(1500)
    dataset = synthetic.write_opens(folder / "set", made, configs.load(site.config))
    trace = synthetic.write_trace(folder / "opens.parquet", made)
    registry = Registry(site.uri, "again")
    code, output = train(site, dataset)
    assert code == 0, output
    registry.move("champion", 1)
    code, output = train(site, dataset, "--replay", str(trace), "--cache-bytes", "50000000", "--warm-start", "champion")
    assert code == 0, output
    assert "warm start from the champion again_v1" in output
    assert "opens of" in output
    return dataset, trace, registry.newest()


def again(site, version, *more):
    return run(register, "reproduce", version.run_id, "--config", str(site.config), *more)


def test_the_same_weights(site, kept, tmp_path):
    dataset, _, version = kept
    code, output = again(site, version, "--output", str(tmp_path / "bundle"))
    assert code == 0, output
    assert f"reproduced: run {version.run_id}, weights {version.tags['smartcache.weights_sha256']}" in output
    # Somebody may be at work on the files of this checkout.
    assert [line for line in output.splitlines() if line.startswith("not as it was") and "git_revision" not in line] == []
    made = json.loads((tmp_path / "bundle" / "bundle.json").read_text())["provenance"]
    assert made["weights_sha256"] == version.tags["smartcache.weights_sha256"]
    assert made["warm_start"]["run_id"] == Registry(site.uri, "again").get(1).run_id
    assert made["dataset_sha256"] == json.loads((dataset / "manifest.json").read_text())["sha256"]


def test_the_runs_configuration_counts(site, kept, tmp_path):
    """Also where this one says otherwise."""
    _, _, version = kept
    other = tmp_path / "other.toml"
    other.write_text(site.config.read_text().replace("seed = 1", "seed = 9"))
    code, output = run(register, "reproduce", version.run_id, "--config", str(other))
    assert code == 0, output
    assert "[training] seed: 1 in the run, 9 here; the run's is used" in output


def test_other_rows_are_named(site, kept, synthetic, tmp_path):
    _, _, version = kept
    other = synthetic.write_opens(tmp_path / "set", synthetic.opens(1500, seed=8), configs.load(site.config))
    code, output = again(site, version, "--dataset", str(other))
    assert code == 1
    assert "not as it was: dataset_sha256: " in output
    assert "holds other rows; name its own training set with --dataset" in output


def test_other_opens_to_judge_by_are_named(site, kept, synthetic, tmp_path):
    _, _, version = kept
    made = synthetic.opens(1500)
    trace = synthetic.write_trace(tmp_path / "other.parquet", made | {"size": np.full(1500, 2_000_000)})
    _, output = again(site, version, "--replay", str(trace))
    assert "not as it was: judge.sha256: " in output
    assert "not as it was: dataset_sha256" not in output


def test_a_run_that_is_none(site):
    code, output = run(register, "reproduce", "0" * 32, "--config", str(site.config))
    assert code == 1
    assert "0" * 32 in output

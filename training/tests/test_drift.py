"""What the drift report says of a training set beside the champion that was trained on another."""

import dataclasses
import html

import numpy as np
import pytest

from smartcache import config as configs
from smartcache.inference import bundle as bundles
from smartcache.training import dataset, drift, drift_page, profile, record
from smartcache.training import train as training


@pytest.fixture(scope="module")
def config():
    return configs.parse({"training": {"hidden": [16], "epochs": 8, "batch": 64, "learning_rate": 0.01}}, "test")


@pytest.fixture(scope="module")
def champion(synthetic, config, tmp_path_factory):
    """A bundle, and its profile as JSON."""
    folder = tmp_path_factory.mktemp("champion")
    data = dataset.read(synthetic.write(folder / "set", rows=3000))
    record.record(data, config, training.train(data, config), register=False, output=folder / "bundle")
    return bundles.read(folder / "bundle"), profile.of(data, config.training).model_dump_json()


@pytest.fixture
def of(synthetic, config, champion, tmp_path):
    """The drift of a training set, with columns replaced."""

    def of(profile_text=None, change_manifest=None, **replaced):
        synthetic.write(tmp_path / "new", rows=3000, seed=7, **replaced)
        if change_manifest:
            synthetic.change_manifest(tmp_path / "new", **change_manifest)
        data = dataset.read(tmp_path / "new")
        return drift.compare("reuse_v1", champion[0], profile_text or champion[1], data, config)

    return of


def test_the_same_kind_of_opens_is_no_drift(of):
    found = of()
    assert [each.psi < 0.1 for each in found.features] == [True] * 4
    assert found.labels.psi < 0.1
    # The rows are as late as the champion's own: all after its train and validate part count.
    assert found.calibration.only_new is False
    assert found.calibration.rows == 3000
    assert sum(found.calibration.expected) == pytest.approx(1, abs=1e-3)
    assert sum(found.calibration.came) == pytest.approx(1, abs=1e-3)
    assert (found.warnings, found.verdict) == ([], "within the thresholds")
    assert found.metrics["drift_feature_psi_most"] == found.features[0].psi


def test_a_feature_that_moved_is_named(of, synthetic):
    features = np.stack(synthetic.columns(3000, 7)["features"])
    features[:, 1] += 1.5
    features[:, 2] = 4.0
    found = of(features=list(features))
    assert {each.name for each in found.features[:2]} == {"noise", "constant"}
    assert [each.psi > 0.25 for each in found.features] == [True, True, False, False]
    constant = next(each for each in found.features if each.name == "constant")
    # Above all that was seen.
    assert constant.now[-1] == 1.0
    assert len(found.warnings) == 2
    assert found.verdict.startswith("warning: feature ")


def test_labels_and_calibration_that_moved_are_named(of, synthetic):
    """Nobody comes again: the champion expects half of the files."""
    watched = synthetic.columns(3000, 7)["observed_s"]
    found = of(censored=np.full(3000, True), next_open_s=[None] * 3000, observed_s=np.maximum(watched, 100 * 86400.0))
    assert found.labels.psi > 0.25
    assert found.labels.now[-1] > 0.9
    assert found.calibration.worst > 0.1
    assert [text.split(":")[0] for text in found.warnings] == ["time to the next open", "calibration"]


def test_only_what_the_champion_has_not_seen_calibrates_where_that_is_enough(of, synthetic):
    later = synthetic.columns(3000, 7)["t_us"] + int(30 * 86400e6)
    found = of(t_us=later)
    assert found.calibration.only_new
    assert 500 <= found.calibration.rows < 3000


def test_what_cannot_be_compared_is_said(of, champion, config, synthetic, tmp_path):
    found = of(profile_text="{}")
    assert (found.features, found.labels) == ([], None)
    assert found.notes[0].startswith("distributions are not compared: the champion's profile.json: ")
    data = dataset.read(synthetic.write(tmp_path / "other", rows=500))
    none = drift.compare("reuse_v1", champion[0], None, data, config)
    assert none.notes == ["distributions are not compared: the champion's run has no profile.json, an earlier release made it"]
    other = of(change_manifest={"schema": synthetic.SCHEMA | {"hash": "0" * 16}})
    assert (other.features, other.calibration) == ([], None)
    assert other.labels is not None
    assert len(other.notes) == 2


def test_psi_by_hand():
    assert drift.psi([0.5, 0.5], [0.5, 0.5]) == 0
    assert drift.psi([0.5, 0.5], [0.25, 0.75]) == pytest.approx(-0.25 * np.log(0.5) + 0.25 * np.log(1.5))
    assert drift.psi([1, 0], [0, 1]) == pytest.approx(2 * (1 - 1e-4) * np.log(1e4))


@pytest.mark.parametrize("column", [np.zeros(50), np.arange(50.0) % 2, np.linspace(-1, 1, 50), np.array([1e9] * 49 + [-3.0])])
def test_bins_of_any_column(column):
    column = column.astype(np.float32)
    edges = profile.edges_of(column)
    shares = profile.shares(column, edges)
    assert (np.diff(edges) > 0).all()
    assert (shares[0], shares[-1]) == (0, 0)
    assert shares.sum() == pytest.approx(1)
    assert (shares[1:-1] > 0).all()
    assert profile.shares(column.max() + np.ones(3, np.float32) * 1000, edges)[-1] == 1
    assert profile.shares(column.min() - np.ones(3, np.float32) * 1000, edges)[0] == 1


def test_the_page_says_all_of_it(of, config):
    found = of()
    found = dataclasses.replace(found, warnings=["feature <noise>: PSI 1"], notes=["a & b"])
    text = drift_page.render(found, config, {"training set": "0123"})
    for said in (
        "Drift since reuse_v1",
        "feature <noise>: PSI 1",
        "a & b",
        "within 3600 s",
        "later or never",
        "signal",
        "training set: 0123",
    ):
        assert html.escape(said) in text
    assert "http" not in text.replace("http://www.w3.org", "")

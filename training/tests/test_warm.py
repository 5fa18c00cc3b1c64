"""A warm start begins as the same function, whatever the new training set's mean and scale are."""

import re

import numpy as np
import pytest

from smartcache import config as configs
from smartcache.inference import bundle as bundles
from smartcache.training import dataset, record, warm
from smartcache.training import model as network
from smartcache.training import train as training


@pytest.fixture(scope="module")
def config():
    return configs.parse({"training": {"hidden": [16, 8], "epochs": 4, "batch": 64, "learning_rate": 0.01}}, "test")


@pytest.fixture(scope="module")
def bundle(synthetic, config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("champion")
    data = dataset.read(synthetic.write(folder / "set", rows=1000))
    record.record(data, config, training.train(data, config), register=False, output=folder / "bundle")
    return bundles.read(folder / "bundle")


@pytest.fixture(scope="module")
def data(synthetic, tmp_path_factory):
    return dataset.read(synthetic.write(tmp_path_factory.mktemp("later"), rows=1000, seed=5))


def test_it_is_the_same_function(bundle, config, data):
    begin = warm.of_bundle(bundle, data, config)
    rows = data.test.features
    mean, scale = rows.mean(axis=0) + 3, rows.std(axis=0) * 0.3 + 0.7
    model = network.build(mean, scale, [16, 8], len(config.training.bucket_edges_s) + 1, learning_rate=0.01, dropout=0.2)
    begin.apply(model, mean, scale)
    np.testing.assert_allclose(network.predict(model, rows), bundle.embedded.predict(rows), atol=1e-4)


def test_what_it_began_with_is_a_candidate(bundle, config, data):
    """At a rate at which it can only get worse, that is what is kept."""
    hasty = config.model_copy(update={"training": config.training.model_copy(update={"learning_rate": 1.0, "epochs": 2})})
    trained = training.train(data, hasty, training.How(warm=warm.of_bundle(bundle, data, hasty)))
    assert trained.chosen["validation_epoch"] == 0
    np.testing.assert_allclose(network.predict(trained.model, data.test.features), bundle.embedded.predict(data.test.features), atol=1e-4)
    assert trained.origin["warm_start"]["run_id"] is None
    assert trained.origin["warm_start"]["weights_sha256"] == bundle.info.provenance["weights_sha256"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hidden": [16]}, r"its layers are \[16, 8, 7\], here they are \[16, 7\]"),
        ({"bucket_edges_s": [3600.0, 259200.0]}, "its bucket_edges_s are"),
    ],
)
def test_what_does_not_fit_begins_anew_and_says_why(bundle, config, data, settings, said, tmp_path):
    other = config.model_copy(update={"training": config.training.model_copy(update=settings)})
    told = []
    assert warm.find(str(bundle.folder), data, other, told.append) is None
    assert len(told) == 1
    assert re.search(said, told[0])


def test_other_features_begin_anew(bundle, config, synthetic, tmp_path):
    synthetic.write(tmp_path, rows=1000)
    synthetic.change_manifest(tmp_path, schema=synthetic.SCHEMA | {"hash": "0" * 16})
    told = []
    assert warm.find(str(bundle.folder), dataset.read(tmp_path), config, told.append) is None
    assert "its features, by the hash of their schema, are" in told[0]

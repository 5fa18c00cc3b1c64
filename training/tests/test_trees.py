"""Boosted trees on the same rows and with the same loss."""

import numpy as np
import pytest

from smartcache import config as configs
from smartcache.training import dataset, survival, trees


@pytest.fixture(scope="module")
def data(synthetic, tmp_path_factory):
    return dataset.read(synthetic.write(tmp_path_factory.mktemp("set"), rows=1500))


@pytest.fixture(scope="module")
def settings():
    return configs.load().training


def compared(data, settings):
    seen, validate = data.known_for_training()
    base = survival.base_rates(seen, survival.temper(seen.weight, seen.weight), settings.bucket_edges_s)
    return trees.compare(seen, validate, data.test, base, settings.bucket_edges_s, settings.horizon_s, seed=1)


def test_they_learn_a_known_signal_the_same_each_time(data, settings):
    first, second = compared(data, settings), compared(data, settings)
    assert first["trees_skill"] > 0.2
    assert first["trees_auc"] > 0.9
    assert first["trees_rounds"] >= 1
    seconds = "trees_seconds"
    assert first | {seconds: 0.0} == second | {seconds: 0.0}


def test_the_gradient_is_that_of_the_loss(data, settings):
    """By central differences of the loss itself, on censored rows and others."""
    seen, _ = data.known_for_training()
    chosen = np.concatenate([np.flatnonzero(seen.censored)[:10], np.flatnonzero(~seen.censored)[:10]])
    part = dataset.Split(**{name: getattr(seen, name)[chosen] for name in dataset.Split.__dataclass_fields__})
    rows = trees._Rows.of(part, seen, settings.bucket_edges_s)
    scores = np.random.default_rng(3).standard_normal(rows.target.shape)
    gradient, curvature = rows.derivatives(scores)
    assert (curvature > 0).all()

    def losses(moved):
        return survival.row_losses(rows.target, trees.softmax(moved)) * rows.weight

    for bucket in range(scores.shape[1]):
        step = np.zeros_like(scores)
        step[:, bucket] = 1e-5
        numeric = (losses(scores + step) - losses(scores - step)) / 2e-5
        np.testing.assert_allclose(gradient[:, bucket], numeric, atol=1e-6)


def test_scores_are_told_bucket_by_bucket(data, settings):
    """As LightGBM flattens them."""
    seen, _ = data.known_for_training()
    rows = trees._Rows.of(seen, seen, settings.bucket_edges_s)
    scores = np.random.default_rng(0).standard_normal(rows.target.shape)
    assert rows.loss(scores) == rows.loss(scores.reshape(-1, order="F"))
    assert rows.initial(np.arange(7.0)).reshape(rows.target.shape, order="F")[0].tolist() == list(range(7))

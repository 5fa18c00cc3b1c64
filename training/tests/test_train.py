import numpy as np
import pytest

from smartcache import config as configs
from smartcache.training import dataset
from smartcache.training import model as network
from smartcache.training import train as training


@pytest.fixture(scope="module")
def config():
    return configs.parse({"training": {"hidden": [16], "epochs": 12, "batch": 64, "learning_rate": 0.01}}, "test")


@pytest.fixture(scope="module")
def data(synthetic, tmp_path_factory):
    return dataset.read(synthetic.write(tmp_path_factory.mktemp("set"), rows=1500))


@pytest.fixture(scope="module")
def trained(data, config):
    return training.train(data, config)


def test_learns_a_known_signal(trained):
    assert trained.metrics["skill"] > 0.2
    assert trained.metrics["loss"] < trained.metrics["base_loss"]
    assert trained.metrics["auc"] > 0.9
    assert trained.metrics["brier"] < trained.metrics["base_brier"]


def test_knows_which_way_the_signal_points(trained):
    rows = np.array([[2.0, 0, 3, 2e4], [-2.0, 0, 3, 2e4]], dtype=np.float32)
    soon = network.predict(trained.model, rows)[:, :2].sum(axis=1)
    assert soon[0] > 0.8
    assert soon[1] < 0.2


def test_a_constant_feature_that_changes_later_does_not_blow_up(trained):
    rows = np.array([[0.0, 0, 3, 2e4], [0.0, 0, 4, 2e4]], dtype=np.float32)
    one, other = network.predict(trained.model, rows)
    assert np.isfinite(other).all()
    assert np.abs(one - other).max() < 0.5


def test_same_seed_same_weights(data, config, trained):
    again = training.train(data, config)
    for first, second in zip(trained.model.get_weights(), again.model.get_weights(), strict=True):
        np.testing.assert_array_equal(first, second)
    assert trained.metrics == again.metrics


def test_other_seed_other_weights(data, config, trained):
    other = config.model_copy(update={"training": config.training.model_copy(update={"seed": 2, "epochs": 1})})
    weights = training.train(data, other).model.get_weights()
    assert any((a != b).any() for a, b in zip(trained.model.get_weights(), weights, strict=True))


def test_progress_is_told_each_epoch(data, config):
    told = []
    short = config.model_copy(update={"training": config.training.model_copy(update={"epochs": 2})})
    training.train(data, short, training.How(progress=lambda *values: told.append(values)))
    assert [(epoch, of) for epoch, of, *_ in told] == [(1, 2), (2, 2)]
    assert all(np.isfinite([loss, validation]).all() for _, _, loss, validation, _ in told)


def test_the_epoch_with_the_lowest_loss_is_kept(data, config, trained):
    losses = trained.history["val_loss"]
    assert trained.chosen == {"validation_epoch": 1.0 + losses.index(min(losses)), "validation_loss": min(losses)}
    assert trained.origin["judge"] == {"by": "loss"}


def test_training_ends_when_it_has_not_been_better_for_long(data, config):
    """As fast as this it overshoots at once."""
    hasty = configs.parse({"training": {"hidden": [16], "epochs": 12, "batch": 64, "learning_rate": 0.5, "patience": 2}}, "test")
    trained = training.train(data, hasty)
    assert trained.epochs == trained.chosen["validation_epoch"] + 2 < 12


def test_too_few_rows(synthetic, tmp_path, config):
    data = dataset.read(synthetic.write(tmp_path, rows=60))
    with pytest.raises(training.TrainingError, match=r"the train part must have at least 100 rows, it has \d+ \(of 60 in all\)"):
        training.train(data, config)


def test_nothing_opened_again(synthetic, tmp_path, config):
    rows = 1000
    never = {"censored": np.full(rows, True), "next_open_s": np.full(rows, None), "observed_s": np.full(rows, 1e5)}
    data = dataset.read(synthetic.write(tmp_path, rows=rows, **never))
    with pytest.raises(training.TrainingError, match="at least 10 opens that were followed by another"):
        training.train(data, config)


def test_admit_threshold_is_where_the_costs_meet():
    for price in (0.01, 0.25, 1.0, 4.0):
        p = training.admit_threshold(price)
        assert p * 1.0 == pytest.approx((1 - p) * price)


def test_thresholds_that_contradict_each_other(data):
    config = configs.parse({"training": {"price_of_useless_byte": 0.01, "evict_below": 0.05}}, "test")
    with pytest.raises(configs.ConfigError, match="evict_below must be at most"):
        training.train(data, config)


def test_normalization_of_columns_that_hardly_move():
    mean, scale = network.normalization(np.array([[1, 5, 0.5, 0.1], [5, 5, 0.502, 0.2]], dtype=np.float32))
    assert mean == pytest.approx([3, 5, 0.501, 0.15])
    assert scale == pytest.approx([2, network.NEVER_MOVED, 1, network.LEAST_SCALE])


def test_a_clock_that_goes_on_does_not_move_the_scores():
    """Trained on three minutes, asked ten minutes later: what hardly moved while it learned must not throw it off."""
    rng = np.random.default_rng(0)
    wanted = rng.random(2000) < 0.5
    clock = 2 * np.pi * rng.uniform(0, 180, 2000) / 86400
    never = np.full(2000, -1.0)  # of a side table that comes later
    features = np.stack([wanted + rng.normal(0, 0.1, 2000), np.sin(clock), np.cos(clock), never], axis=1).astype(np.float32)
    target = np.eye(2, dtype=np.float32)[np.where(wanted, 0, 1)]
    network.deterministic(1)
    model = network.build(*network.normalization(features), [16], 2, learning_rate=0.01, dropout=0.0)
    model.fit(features, target, epochs=10, verbose=0)
    later = features.copy()
    later[:, 3] = rng.uniform(0, 20, 2000)
    later[:, 1], later[:, 2] = np.sin(clock + 2 * np.pi * 600 / 86400), np.cos(clock + 2 * np.pi * 600 / 86400)
    now, then = network.predict(model, features)[:, 0], network.predict(model, later)[:, 0]
    assert now[wanted].mean() - now[~wanted].mean() > 0.9
    assert np.abs(now - then).mean() < 0.05

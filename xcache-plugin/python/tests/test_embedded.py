"""The embedded model against Keras, and against files that are no network."""

import json
import threading

import numpy as np
import pytest

from smartcache import _core
from smartcache.inference import bundle as bundles
from smartcache.inference.export import network_of
from smartcache.training import model as training

FEATURES, OUTPUTS = 39, 7

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")


@pytest.fixture(scope="module", params=[[64, 32], [], [100], [17, 3, 200]], ids=str)
def keras_model(request):
    training.quiet_tensorflow()
    training.deterministic(5)
    rng = np.random.default_rng(5)
    mean, scale = training.normalization((rng.standard_normal((500, FEATURES)) * rng.uniform(0.01, 8, FEATURES) + 3).astype(np.float32))
    model = training.build(mean, scale, request.param, OUTPUTS, learning_rate=0.003, dropout=0.2)
    # Some steps of training, so that no bias is zero.
    rows = rng.standard_normal((256, FEATURES)).astype(np.float32)
    targets = np.eye(OUTPUTS, dtype=np.float32)[rng.integers(0, OUTPUTS, 256)]
    model.fit(rows, targets, epochs=3, verbose=0)
    return model


@pytest.fixture
def folder(keras_model, tmp_path):
    (tmp_path / "weights.json").write_text(json.dumps(network_of(keras_model).to_json()))
    return tmp_path


def kinds_of_rows(rng):
    """Rows as the core computes them: logarithms, shares, flags, -1 for unknown; and none, and far more than any feature reaches."""
    usual = rng.uniform(-1, 20, (20_000, FEATURES))
    yield usual
    yield np.where(rng.random((2000, FEATURES)) < 0.5, -1.0, usual[:2000])
    yield rng.standard_normal((2000, FEATURES))
    yield np.zeros((1, FEATURES))
    yield np.full((1, FEATURES), -1.0)
    yield np.eye(FEATURES) * 50
    yield rng.uniform(0, 44, (2000, FEATURES))  # the logarithm of 2^63 is 43.7


def test_equal_to_keras(keras_model, folder):
    embedded = _core.EmbeddedModel(str(folder))
    assert (embedded.inputs, embedded.outputs) == (FEATURES, OUTPUTS)
    compared = 0
    for kind in kinds_of_rows(np.random.default_rng(6)):
        rows = kind.astype(np.float32)
        expected, ours = training.predict(keras_model, rows), embedded.predict(rows)
        assert ours.shape == expected.shape
        assert bundles.max_difference(ours, expected) <= 1e-5
        compared += len(rows)
    assert compared > 25_000


def test_where_float32_ends_so_does_the_answer(keras_model, folder):
    """Absurd rows: a number like Keras' own to what float32 still holds there, or NaN, and never an answer where Keras has none."""
    embedded = _core.EmbeddedModel(str(folder))
    rng = np.random.default_rng(7)
    for size in (1e3, 1e6, 1e20, 1e38):
        rows = (rng.standard_normal((200, FEATURES)) * size).clip(-3e38, 3e38).astype(np.float32)
        with np.errstate(all="ignore"):
            expected, ours = training.predict(keras_model, rows), embedded.predict(rows)
        answered = np.isfinite(ours).all(axis=1)
        assert np.isfinite(expected[answered]).all()
        assert (np.abs(ours[answered].sum(axis=1) - 1) < 1e-5).all()
    for value in (np.nan, np.inf, -np.inf):
        assert np.isnan(embedded.predict(np.full((1, FEATURES), value, np.float32))).all()


def test_rows_do_not_depend_on_each_other(folder):
    embedded = _core.EmbeddedModel(str(folder))
    rows = np.random.default_rng(8).standard_normal((50, FEATURES)).astype(np.float32)
    together = embedded.predict(rows)
    for number, row in enumerate(rows):
        assert embedded.predict(row[None, :]).tobytes() == together[number].tobytes()
    assert embedded.predict(rows[:0]).shape == (0, OUTPUTS)


def test_threads_share_one(folder):
    embedded = _core.EmbeddedModel(str(folder))
    rows = np.random.default_rng(8).standard_normal((5000, FEATURES)).astype(np.float32)
    expected = embedded.predict(rows).tobytes()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(embedded.predict(rows).tobytes())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 4


def test_normalization_is_shown(keras_model, folder):
    embedded, network = _core.EmbeddedModel(str(folder)), network_of(keras_model)
    np.testing.assert_array_equal(embedded.mean, network.mean)
    np.testing.assert_array_equal(embedded.scale, network.scale)


def test_rows_of_another_width(folder):
    with pytest.raises(ValueError, match="rows must have 39 features, but have 38"):
        _core.EmbeddedModel(str(folder)).predict(np.zeros((2, FEATURES - 1), np.float32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a JSON object"),
        ("[" * 100_000, "at most 32 levels deep"),
        ('{"layers": [], "normalization": {"mean": [0], "scale": [1]}}', "layers must be an array of 1 to 16 layers"),
        ('{"layers": [], "normalization": {"mean": [NaN], "scale": [1]}}', "must be a JSON object"),
        ('{"layers": [], "normalization": {"mean": [1e39], "scale": [1]}}', r"normalization.mean must be an array of finite numbers"),
        ('{"normalization": {"mean": [0], "scale": [1]}}', "layers must be there"),
    ],
)
def test_what_is_no_network_is_refused(tmp_path, text, message):
    (tmp_path / "weights.json").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        _core.EmbeddedModel(str(tmp_path))
    assert str(tmp_path / "weights.json") in str(caught.value)


def test_no_file_and_a_huge_one(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        _core.EmbeddedModel(str(tmp_path))
    with (tmp_path / "weights.json").open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(ValueError, match="more than 16777216 bytes"):
        _core.EmbeddedModel(str(tmp_path))

import itertools

import numpy as np
import pytest

from smartcache.training import evaluate
from smartcache.training.dataset import Split

DAY_US = 86_400_000_000


def test_auc_counts_pairs():
    rng = np.random.default_rng(0)
    score = rng.integers(0, 5, 60).astype(float)
    positive = rng.random(60) < 0.4
    pairs = list(itertools.product(score[positive], score[~positive]))
    expected = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)
    assert evaluate.auc(score, positive) == pytest.approx(expected)


def test_horizon_rows_do_not_depend_on_the_outcome():
    """An open near the window's end counts neither if it was opened again soon nor if it was not."""
    part = Split(
        features=np.zeros((4, 1), dtype=np.float32),
        t_us=np.array([0, 0, 9 * DAY_US, 9 * DAY_US]),
        next_open_s=np.array([60.0, np.nan, 60.0, np.nan]),
        censored=np.array([False, True, False, True]),
        observed_s=np.array([60.0, 10 * 86400.0, 60.0, 86400.0]),
        weight=np.ones(4),
    )
    assert evaluate.horizon_watched(part, 3 * 86400.0).tolist() == [True, True, False, False]


def test_a_constant_model_has_no_skill():
    rng = np.random.default_rng(1)
    gaps = rng.exponential(3600, 500)
    part = Split(
        features=np.zeros((500, 1), dtype=np.float32),
        t_us=np.zeros(500, dtype=np.int64),
        next_open_s=gaps,
        censored=np.zeros(500, dtype=np.bool_),
        observed_s=gaps,
        weight=np.ones(500),
    )
    base = np.array([0.5, 0.3, 0.2], dtype=np.float32)
    metrics = evaluate.evaluate(part, part.weight, np.tile(base, (500, 1)), base, [3600.0, 7200.0], 3600.0)
    assert metrics["skill"] == pytest.approx(0, abs=1e-9)
    assert metrics["rows_uncensored"] == 500
    assert metrics["brier"] == pytest.approx(metrics["base_brier"])
    assert metrics["auc"] == pytest.approx(0.5)

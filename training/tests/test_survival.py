import numpy as np
import pytest

from smartcache.local import paths
from smartcache.training import survival
from smartcache.training.dataset import Split

EDGES = [10.0, 100.0, 1000.0]


def split(rows):
    """A Split of (next_open_s or None, observed_s) pairs, weight 1."""
    censored = np.array([gap is None for gap, _ in rows])
    return Split(
        features=np.zeros((len(rows), 1), dtype=np.float32),
        t_us=np.arange(len(rows), dtype=np.int64),
        next_open_s=np.array([np.nan if gap is None else gap for gap, _ in rows], dtype=np.float64),
        censored=censored,
        observed_s=np.array([np.nan if seen is None else seen for _, seen in rows], dtype=np.float64),
        weight=np.ones(len(rows)),
    )


def brute_force_loss(gap, observed, probabilities):
    """The loss of one row from the definition: the probability of all possible times, evenly spread within buckets (lower, upper]."""
    lowers, uppers = [0.0, *EDGES], [*EDGES, float("inf")]
    total = 0.0
    for lower, upper, probability in zip(lowers, uppers, probabilities, strict=True):
        if gap is not None:
            possible = float(lower < gap <= upper or gap == lower == 0)
        elif upper == float("inf"):
            possible = 1.0
        else:
            # Of ten thousand times in the bucket, those after we looked away.
            possible = np.mean(np.linspace(lower, upper, 100_001)[1:] > observed)
        total += probability * possible
    return -np.log(total)


@pytest.mark.parametrize(
    ("gap", "observed"),
    [(gap, gap) for gap in (0.0, 5.0, 10.0, 10.5, 100.0, 1000.0, 1000.1, 1e9)]
    + [(None, seen) for seen in (0.0, 9.9, 10.0, 50.0, 100.0, 999.9, 1000.0, 1e9)],
)
def test_loss_is_the_definition(gap, observed):
    rng = np.random.default_rng(1)
    part = split([(gap, observed)])
    for probabilities in rng.dirichlet(np.ones(4), 20).astype(np.float32):
        ours = survival.row_losses(survival.targets(part, EDGES), probabilities[None, :])[0]
        assert ours == pytest.approx(brute_force_loss(gap, observed, probabilities), abs=1e-3)


def test_censored_in_mid_bucket_leaves_the_rest_of_it():
    target = survival.targets(split([(None, 55.0), (None, 100.0), (None, 1e9), (None, 0.0)]), EDGES)
    assert target == pytest.approx(np.array([[0, 0.5, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]]))


def test_every_row_leaves_something_possible():
    rng = np.random.default_rng(2)
    part = split([(None if rng.random() < 0.5 else seen, seen) for seen in rng.exponential(500, 1000)])
    assert (survival.targets(part, EDGES).sum(axis=1) >= 1).all()


def test_mass_is_not_hidden_where_nobody_looked():
    """Half of the files come back within 10 s, the others never; all are watched for half of the next bucket at most, a few for long."""
    rng = np.random.default_rng(5)
    rows = [(5.0, 5.0)] * 500 + [(None, float(seen)) for seen in rng.uniform(11, 55, 450)] + [(None, 2000.0)] * 50
    base = survival.base_rates(split(rows), np.ones(len(rows)), EDGES)
    assert base[0] == pytest.approx(0.5, abs=0.01)
    assert base[1:3].sum() < 0.01


def test_base_rates_minimise_the_loss():
    rng = np.random.default_rng(3)
    gaps, seen = rng.exponential(300, 4000), rng.exponential(600, 4000)
    part = split([(gap if gap <= watch else None, min(gap, watch)) for gap, watch in zip(gaps, seen, strict=True)])
    weight = rng.uniform(0.5, 2, len(part))
    base = survival.base_rates(part, weight, EDGES)
    assert base.sum() == pytest.approx(1, abs=1e-6)
    target = survival.targets(part, EDGES)

    def loss(probabilities):
        return survival.mean_loss(target, np.broadcast_to(probabilities.astype(np.float32), target.shape), weight)

    best = loss(base)
    for _ in range(200):
        other = np.clip(base + rng.normal(0, 0.02, 4), 1e-4, None)
        assert loss(other / other.sum()) >= best - 1e-5
    # Near the truth of the exponential, in spite of the censoring: it is not constant within a bucket, so not exactly.
    truth = np.diff([0, *(1 - np.exp(-np.array(EDGES) / 300)), 1])
    assert np.abs(base - truth).max() < 0.05


def test_base_rates_leave_no_bucket_impossible():
    base = survival.base_rates(split([(5.0, 5.0)] * 50), np.ones(50), EDGES)
    assert (base > 0).all()
    assert base[0] > 0.97


def test_tempered_weights_are_bounded_and_monotone():
    weight = np.array([0.0, 1.0, 1e3, 1e6, 1e12])
    tempered = survival.temper(weight, weight)
    assert (np.diff(tempered) >= 0).all()
    assert tempered.min() == 0.1
    assert tempered.max() == 10
    assert survival.temper(np.zeros(3), np.zeros(3)).tolist() == [0.1] * 3


def test_as_seen_at_forgets_the_future():
    part = split([(2.0, 2.0), (50.0, 50.0), (None, 60.0)])
    seen = part.as_seen_at(10_000_000)
    assert seen.censored.tolist() == [False, True, True]
    assert seen.observed_s[1:] == pytest.approx([10, 10], abs=1e-3)
    assert np.isnan(seen.next_open_s[1])


def test_keras_loss_is_the_same():
    keras = paths.require_module("keras")
    from smartcache.training import model

    rng = np.random.default_rng(4)
    part = split([(None if rng.random() < 0.5 else seen, seen) for seen in rng.exponential(500, 200)])
    target = survival.targets(part, EDGES)
    probabilities = rng.dirichlet(np.ones(4), 200).astype(np.float32)
    theirs = keras.ops.convert_to_numpy(model._loss(target, probabilities))
    assert theirs == pytest.approx(survival.row_losses(target, probabilities), abs=1e-5)

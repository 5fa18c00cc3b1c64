"""The cache that learns online: the loop around the core, and the trees as LightGBM has them."""

import numpy as np
import pytest

from smartcache import _core
from smartcache.training.simulate import learned, policies
from smartcache.training.simulate.policies import COUNTERS, Requests


def requests(count, seed=1):
    """A loop over some files that LRU cannot keep, popular files, and files that come once; those of a kind have a group."""
    random = np.random.default_rng(seed)
    kind = random.integers(0, 3, count)
    objects = np.where(kind == 0, np.arange(count) // 3 % 400, np.where(kind == 1, 400 + np.minimum(random.zipf(1.3, count), 500), 0))
    once = np.flatnonzero(kind == 2)
    objects[once] = 1_000 + np.arange(len(once))
    _, first, dense = np.unique(objects, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    names = objects[np.sort(first)]
    sizes = random.integers(1, 1_000, len(first))
    numbers = order[dense].astype(np.uint32)
    groups = np.digitize(names, [400, 1_000]).astype(np.uint32)
    return Requests(numbers, sizes[numbers].astype(np.int64), np.arange(count, dtype=np.float64), groups)


def missed(outcome):
    return sum(outcome.windows["bytes"]) - sum(outcome.windows["hit_bytes"])


@pytest.fixture(scope="module")
def trace():
    return requests(20_000)


@pytest.fixture(scope="module")
def outcome(trace):
    return policies.resolve(policies.LEARNED).simulate(trace, 100_000, 7)


def test_counts_each_request_once_by_window(trace, outcome):
    assert outcome.windows["requests"] == [20_000 * (window + 1) // 7 - 20_000 * window // 7 for window in range(7)]
    assert sum(outcome.windows["bytes"]) == trace.sizes.sum()
    assert set(outcome.windows) == set(COUNTERS)
    assert 0 < outcome.training_s < outcome.seconds


def test_learns_what_lru_does_not_see(trace, outcome):
    lru, bound = (missed(policies.resolve(name).simulate(trace, 100_000, 1)) for name in (policies.FLOOR, policies.BOUND))
    assert bound < missed(outcome) < 0.97 * lru
    assert sum(outcome.windows["written_bytes"]) < 0.96 * missed(outcome)


def test_the_same_seed_gives_the_same(trace, outcome):
    again = learned.LearnedPolicy().simulate(trace, 100_000, 7)
    assert again.windows == outcome.windows
    assert learned.LearnedPolicy(seed=2).simulate(trace, 100_000, 7).windows != outcome.windows


def test_nothing_of_the_future_is_known(trace, outcome):
    """The first windows are the same, whatever comes after them."""
    cut = 20_000 * 4 // 7
    part = Requests(trace.objects[:cut], trace.sizes[:cut], trace.times[:cut], trace.groups)
    early = learned.LearnedPolicy().simulate(part, 100_000, 1)
    assert sum(early.windows["hit_bytes"]) == sum(outcome.windows["hit_bytes"][:4])


def test_trees_score_as_lightgbm(trace):
    import lightgbm

    cache = _core.LearnedCache(100_000, trace.groups)
    cache.replay(trace.objects, trace.sizes)
    rows, again = cache.labelled(20_000, 1)
    assert rows.shape == (len(again), len(_core.reuse_features()))
    assert 0.05 < again.mean() < 0.95
    booster = learned.boosted(rows, again)
    feature, threshold, left, right, leaf, roots = learned.flatten(booster)

    def score(row):
        total = 0.0
        for node in roots:
            while node >= 0:
                node = left[node] if row[feature[node]] <= threshold[node] else right[node]
            total += leaf[~node]
        return total

    # Also where a feature is the threshold itself, rounded to a float.
    edges = rows[:300].copy()
    edges[np.arange(300), feature[:300]] = threshold[:300]
    for some in (rows[:300], edges):
        expected = lightgbm.Booster(model_str=booster.model_to_string()).predict(some, raw_score=True)
        np.testing.assert_allclose([score(row) for row in some], expected, atol=1e-5)
    cache.use_trees(feature, threshold, left, right, leaf, roots)
    assert 0 < cache.weight < 1


def test_trainings_come_more_rarely(trace):
    points = list(learned.training_points(100_000))
    gaps = np.diff(points)
    assert points[0] == learned.FIRST_TRAINING
    assert (np.diff(gaps) >= -1).all()
    assert gaps[-1] == learned.MOST_BETWEEN
    assert list(learned.training_points(2_000)) == []


@pytest.mark.parametrize(
    ("capacity", "groups", "objects", "sizes", "says"),
    [
        (0, [0], [], [], "capacity: must be above 0"),
        (1, [0, 2], [], [], r"groups\[1\]: must be dense"),
        (1, [0], [1], [1], r"objects\[0\]: must be below the number of groups, 1, is 1"),
        (1, [0], [0], [-1], r"sizes\[0\]: must not be negative"),
        (1, [0], [0], [1, 2], "sizes: must be as many as objects, 1, are 2"),
    ],
)
def test_refused_by_name(capacity, groups, objects, sizes, says):
    with pytest.raises(ValueError, match=says):
        _core.LearnedCache(capacity, np.array(groups, np.uint32)).replay(np.array(objects, np.uint32), np.array(sizes, np.int64))

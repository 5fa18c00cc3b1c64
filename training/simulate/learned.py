"""The cache that learns online, with the trainer in the loop: what ``learned-trees`` stands for.

The compiled core keeps the cache, its shadows, the features and the labels (``xcache-plugin/policies/portfolio.hh``, ``learned.hh``). Here
it is handed the requests in parts, and after each part a model is trained on what has been seen so far and used from then on, by one shadow
among others: the cache follows it as far as it earns it. Nothing of the future is known: a label is a fact once its horizon has passed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .policies import COUNTERS, Outcome, Requests

if TYPE_CHECKING:
    from smartcache._core import LearnedCache

#: The first training is after so many requests; each next one after this much more of them, and at most so many.
FIRST_TRAINING, GROWTH, MOST_BETWEEN = 2_500, 1.3, 10_000
#: Rows of a training, and fewer are not learned from.
MOST_ROWS, LEAST_ROWS = 60_000, 1_500
#: LightGBM's settings: small trees, since each open's candidates go through all of them.
TREES = 60
SETTINGS = {
    "objective": "binary",
    "num_leaves": 12,
    "learning_rate": 0.12,
    "min_data_in_leaf": 50,
    "max_bin": 127,
    "num_threads": 1,
    "deterministic": True,
    "verbose": -1,
}


@dataclass(frozen=True)
class LearnedPolicy:
    """Learns with boosted trees while it serves; ``seed`` draws the rows that are learned from and the candidates of an eviction.

    ``left_out``: kinds of features that it does not know. ``alone``: counted is what the model's own cache does, one of the experts.
    """

    seed: int = 1
    left_out: tuple[str, ...] = ()
    alone: bool = False

    def simulate(self, requests: Requests, capacity: int, windows: int) -> Outcome:
        """See :class:`~.policies.Policy`. The seconds of training are in those of the simulation."""
        from smartcache import _core

        began = time.perf_counter()
        cache = _core.LearnedCache(capacity, requests.groups, self.seed, list(self.left_out))
        total = len(requests.objects)
        # No window is empty: there are at most as many as requests.
        borders = {total * (window + 1) // windows for window in range(windows)}
        trainings = set(training_points(total))
        counted: dict[str, list[int]] = {name: [] for name in COUNTERS}
        before, at, training_s = dict.fromkeys(COUNTERS, 0), 0, 0.0
        for end in sorted(trainings | borders):
            cache.replay(requests.objects[at:end], requests.sizes[at:end])
            at = end
            if end in borders:
                now = cache.counters(self.alone)
                for name in COUNTERS:
                    counted[name].append(now[name] - before[name])
                before = now
            if end in trainings:
                training_s += _train(cache, self.seed + end)
        return Outcome(counted, time.perf_counter() - began, training_s)


def training_points(requests: int) -> Iterator[int]:
    """After how many requests a model is trained, of a trace of so many."""
    at = float(FIRST_TRAINING)
    while at < requests:
        yield int(at)
        at += min(MOST_BETWEEN, at * (GROWTH - 1))


def _train(cache: LearnedCache, seed: int) -> float:
    """Train on what is known and use it; the seconds it took."""
    began = time.perf_counter()
    rows, again = cache.labelled(MOST_ROWS, seed)
    # With one answer only there is nothing to tell apart.
    if len(again) >= LEAST_ROWS and again.min() != again.max():
        cache.use_trees(*flatten(boosted(rows, again)))
    return time.perf_counter() - began


def boosted(rows: NDArray[np.float32], again: NDArray[np.uint8]) -> Any:
    """LightGBM's booster for these rows, the same for the same rows."""
    import lightgbm

    return lightgbm.train(SETTINGS, lightgbm.Dataset(rows, again, free_raw_data=True), TREES)


def flatten(booster: Any) -> tuple[NDArray[Any], ...]:
    """The trees as the core takes them: feature, threshold, left, right, leaf, roots. Their sum is the booster's raw score."""
    nodes: list[tuple[int, float]] = []
    children: list[list[int]] = []
    leaves: list[float] = []

    def add(node: dict[str, Any]) -> int:
        if "split_index" not in node:
            leaves.append(node["leaf_value"])
            return ~(len(leaves) - 1)
        number = len(nodes)
        nodes.append((node["split_feature"], node["threshold"]))
        children.append([0, 0])
        children[number] = [add(node["left_child"]), add(node["right_child"])]
        return number

    roots = [add(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]]
    thresholds = np.array([threshold for _, threshold in nodes], np.float64)
    # The largest float that is not above: a float is at most the one where it is at most the other.
    floats = thresholds.astype(np.float32)
    floats = np.where(floats.astype(np.float64) > thresholds, np.nextafter(floats, np.float32(-np.inf)), floats)
    return (
        np.array([feature for feature, _ in nodes], np.int32),
        floats.astype(np.float32),
        np.array([left for left, _ in children], np.int32),
        np.array([right for _, right in children], np.int32),
        np.array(leaves, np.float32),
        np.array(roots, np.int32),
    )

"""Gradient-boosted trees (LightGBM) on the same rows, to know what the network leaves on the table: ``smartcache train --compare-trees``.

The same rows, features, labels and weights; the same loss, which knows what is censored (:mod:`.survival`); stopped by the loss of the same
validate part, judged by the same test part. The trees give a score for each bucket, whose softmax is the distribution p. With T the target
of a row, the loss -log sum_k T_k p_k has the gradient

    d loss / d score_k = p_k - T_k p_k / sum_j T_j p_j

and as its curvature B / (B - 1) · p_k (1 - p_k) is taken, as LightGBM does for its own softmax. They begin at the base rates. The settings
are one plain choice, not searched for; nor were the network's for this data.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from . import evaluate, survival
from .dataset import Doubles, Floats, Split
from .survival import FLOOR

#: LightGBM's settings, but for the seed.
SETTINGS: Final = {
    "num_leaves": 31,
    "learning_rate": 0.1,
    "min_data_in_leaf": 50,
    "deterministic": True,
    "num_threads": 1,
    "verbose": -1,
}
#: At most so many rounds of a tree for each bucket; it ends after so many without a lower loss of the validate part.
ROUNDS: Final = 300
PATIENCE: Final = 20
_LEAST_CURVATURE: Final = 1e-6


def compare(
    train: Split, validate: Split, test: Split, base: Floats, edges_s: Sequence[float], horizon_s: float, seed: int
) -> dict[str, float]:
    """Figures of the trees on the test part, as :func:`.evaluate.evaluate` names them, after ``trees_``; rounds and seconds of training.

    ``train`` and ``validate`` as they were known for training, ``base`` the train part's base rates. Raises :class:`ImportError`.
    """
    import lightgbm

    began = time.monotonic()
    start = np.log(np.clip(base.astype(np.float64), FLOOR, 1.0))
    sets = [_Rows.of(split, train, edges_s) for split in (train, validate)]
    data = [lightgbm.Dataset(rows.features, init_score=rows.initial(start), free_raw_data=True) for rows in sets]

    def objective(scores: Doubles, _: Any) -> tuple[Doubles, Doubles]:
        return sets[0].derivatives(scores)

    def loss(scores: Doubles, given: Any) -> tuple[str, float, bool]:
        return "loss", (sets[0] if given is data[0] else sets[1]).loss(scores), False

    booster = lightgbm.train(
        SETTINGS | {"objective": objective, "num_class": len(start), "seed": seed},
        data[0],
        ROUNDS,
        valid_sets=[data[1]],
        feval=loss,
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )
    seconds = time.monotonic() - began
    raw = np.asarray(booster.predict(test.features, num_iteration=booster.best_iteration, raw_score=True)).reshape(len(test), len(start))
    found = evaluate.evaluate(
        test, survival.temper(test.weight, train.weight), softmax(raw + start).astype(np.float32), base, edges_s, horizon_s
    )
    figures = {f"trees_{name}": found[name] for name in ("loss", "skill", "brier", "auc") if name in found}
    return figures | {"trees_rounds": float(booster.best_iteration), "trees_seconds": seconds}


def softmax(scores: Doubles) -> Doubles:
    """Row by row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


class _Rows:
    """The rows of a part as LightGBM's objective sees them."""

    def __init__(self, features: Floats, target: Doubles, weight: Doubles) -> None:
        self.features, self.target, self.weight = features, target, weight

    @classmethod
    def of(cls, split: Split, train: Split, edges_s: Sequence[float]) -> _Rows:
        weight = survival.temper(split.weight, train.weight)
        return cls(split.features, survival.targets(split, edges_s).astype(np.float64), weight / weight.mean())

    def initial(self, start: Doubles) -> Doubles:
        """The score of each row and bucket before the first tree, bucket by bucket."""
        return np.repeat(start, len(self.features))

    def derivatives(self, scores: Doubles) -> tuple[Doubles, Doubles]:
        """Gradient and curvature of each row's loss, [N, B]."""
        p = softmax(self._matrix(scores))
        possible = self.target * p
        share = possible / np.maximum(possible.sum(axis=1, keepdims=True), FLOOR)
        buckets = p.shape[1]
        weight = self.weight[:, None]
        curvature = buckets / (buckets - 1) * p * (1 - p)
        return (p - share) * weight, np.maximum(curvature, _LEAST_CURVATURE) * weight

    def loss(self, scores: Doubles) -> float:
        """The mean loss."""
        return survival.mean_loss(self.target.astype(np.float32), softmax(self._matrix(scores)).astype(np.float32), self.weight)

    def _matrix(self, scores: npt.NDArray[np.float64]) -> Doubles:
        return scores.reshape(self.target.shape) if scores.ndim == 2 else scores.reshape(self.target.shape, order="F")

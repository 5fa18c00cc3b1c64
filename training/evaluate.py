"""What the test part says about a model: loss, skill over the base rates, the score's Brier and AUC, calibration bucket by bucket."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from . import survival
from .dataset import Bools, Doubles, Floats, Split


def evaluate(
    split: Split, weight: Doubles, probabilities: Floats, base: Floats, edges_s: Sequence[float], horizon_s: float
) -> dict[str, float]:
    """Metrics of predictions [N, B] for the rows of ``split``, weighed by ``weight`` [N]; ``base`` [B] are the train part's base rates.

    ``loss``, ``base_loss`` (nats), ``skill`` = 1 - loss/base_loss (0: nothing learned, 1: always certain and right), ``rows``,
    ``rows_uncensored``; ``horizon_rows``, and where there are any: ``brier``, ``base_brier`` and, where both outcomes occur, ``auc`` of the
    score P(opened again within the horizon), on the rows whose horizon was watched to its end. ``calibration_K_predicted`` and
    ``calibration_K_observed`` of bucket K.
    """
    target = survival.targets(split, edges_s)
    constant = np.broadcast_to(base, probabilities.shape)
    loss = survival.mean_loss(target, probabilities, weight)
    base_loss = survival.mean_loss(target, constant, weight)
    horizon_buckets = list(edges_s).index(horizon_s) + 1
    known = horizon_watched(split, horizon_s)
    metrics = {
        "loss": loss,
        "base_loss": base_loss,
        "skill": 1.0 - loss / base_loss if base_loss > 0 else 0.0,
        "rows": float(len(split)),
        "rows_uncensored": float(split.uncensored),
        "horizon_rows": float(known.sum()),
    }
    if known.any():
        again = (split.next_open_s <= horizon_s)[known]
        score = survival.within(probabilities, horizon_buckets)[known]
        metrics["brier"] = float(np.average(np.square(score - again), weights=weight[known]))
        metrics["base_brier"] = float(np.average(np.square(base[:horizon_buckets].sum() - again), weights=weight[known]))
        if 0 < again.sum() < len(again):
            metrics["auc"] = auc(score, again)
    return metrics | _calibration(split, weight, probabilities, edges_s)


def horizon_watched(split: Split, horizon_s: float) -> Bools:
    """Which rows were watched for the whole horizon, opened again or not, [N].

    Judged by the row's own time against the end of the window, not by its outcome: near the end only the early re-opens would be left, and
    the score would look too low.
    """
    if not len(split):
        return np.zeros(0, dtype=np.bool_)
    watched = np.nan_to_num(np.fmax(split.observed_s, split.next_open_s), nan=0.0)
    end_us = np.max(split.t_us + watched * 1e6)
    early_enough = split.t_us + horizon_s * 1e6 <= end_us
    return np.asarray(early_enough & (~split.censored | (split.observed_s >= horizon_s)))


def auc(score: Doubles, positive: Bools) -> float:
    """The area under the ROC curve: P(score of a positive > score of a negative), ties count half (Mann-Whitney U)."""
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positives, negatives = int(positive.sum()), int((~positive).sum())
    return float((rank[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _calibration(split: Split, weight: Doubles, probabilities: Floats, edges_s: Sequence[float]) -> dict[str, float]:
    """By bucket: the mean prediction, and the base rates of these rows themselves (which take censoring into account)."""
    observed = survival.base_rates(split, weight, edges_s)
    predicted = np.average(probabilities, axis=0, weights=weight)
    metrics: dict[str, float] = {}
    for bucket in range(len(edges_s) + 1):
        metrics[f"calibration_{bucket}_predicted"] = float(predicted[bucket])
        metrics[f"calibration_{bucket}_observed"] = float(observed[bucket])
    return metrics

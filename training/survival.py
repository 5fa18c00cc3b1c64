"""The time to the next open as a distribution over buckets: targets, loss, base rates.

Upper edges e_0 < … < e_{B-2} make B buckets: bucket k holds the times in (e_{k-1}, e_k] (bucket 0 from 0 on), the last one "later or
never".

A row is either *uncensored*, the file was opened again after t, in bucket k(t); or *censored*, it was watched for c seconds and was not. A
censored row says one thing only: the time is longer than c. So the buckets with e_k <= c are ruled out, and every other one is still
possible; the bucket that c falls into, too. With p the predicted distribution and S the set of possible buckets, the loss of a row is

    loss = -log sum_{k in S} p_k        S = {k(t)} where uncensored, {k: e_k > c} (the last bucket always) where censored

which is the negative log-likelihood of right-censored discrete times (Kalbfleisch & Prentice, "The Statistical Analysis of Failure Time
Data", ch. 3; with a softmax over buckets: Lee et al., "DeepHit", AAAI 2018, its L1 term for a single event). The set S of a row is one row
of a 0/1 matrix, the target: one formula serves both kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from .dataset import Doubles, Floats, Longs, Split

#: A probability under this counts as this in a loss, so that a loss stays finite: -log of it is 16.1.
FLOOR: Final = 1e-7


def buckets(times_s: Doubles, edges_s: Sequence[float]) -> Longs:
    """The bucket of each time, [N]; NaN goes to the last one."""
    return np.searchsorted(np.asarray(edges_s, dtype=np.float64), times_s, side="left").astype(np.int64)


def ruled_out(observed_s: Doubles, edges_s: Sequence[float]) -> Longs:
    """How many of the first buckets end at or before each ``observed_s``, [N]; 0 to B-1."""
    return np.searchsorted(np.asarray(edges_s, dtype=np.float64), observed_s, side="right").astype(np.int64)


def targets(split: Split, edges_s: Sequence[float]) -> Floats:
    """[N, B]: 1 for each bucket that the next open may be in, else 0. Every row has at least one 1."""
    count = len(edges_s) + 1
    index = np.arange(count)[None, :]
    hit = index == buckets(split.next_open_s, edges_s)[:, None]
    open_ = index >= ruled_out(split.observed_s, edges_s)[:, None]
    return np.where(split.censored[:, None], open_, hit).astype(np.float32)


def row_losses(target: Floats, probabilities: Floats) -> Doubles:
    """-log of the probability of the possible buckets, [N], nats."""
    possible = np.sum(target.astype(np.float64) * probabilities, axis=1)
    return np.asarray(-np.log(np.clip(possible, FLOOR, 1.0)))


def mean_loss(target: Floats, probabilities: Floats, weight: Doubles) -> float:
    """The weighted mean of :func:`row_losses`, nats."""
    return float(np.average(row_losses(target, probabilities), weights=weight))


def temper(weight: Doubles, reference: Doubles) -> Doubles:
    """Weights to train with, from weights in bytes.

        w' = clip(sqrt(w / median(reference > 0)), 0.1, 10)

    A wrong answer costs in proportion to the bytes, but a few huge files would then be all that is learned (sizes span six orders of
    magnitude): the square root halves the span, the clip bounds what one row can weigh to 100 times another. ``reference`` is the train
    part's weights, so that all parts are weighed alike. Rows of weight 0 (nothing known about the size) count 0.1.
    """
    positive = reference[reference > 0]
    median = float(np.median(positive)) if positive.size else 1.0
    return np.asarray(np.clip(np.sqrt(weight / median), 0.1, 10.0))


def base_rates(split: Split, weight: Doubles, edges_s: Sequence[float]) -> Floats:
    """The best constant distribution, [B]: what is known without features. Minimises :func:`mean_loss` up to its prior.

    Kaplan-Meier on the buckets: with d_k the weight of the rows that were opened again in bucket k, and n_k that of the rows known not to
    have been opened before it (uncensored in k or later; censored with all buckets before and k itself ruled out), the hazard of k is

        h_k = (d_k + a/B) / (n_k + a (B-k)/B)        p_k = h_k prod_{j<k} (1 - h_j)        h_{B-1} = 1

    with a = one row of average weight, spread evenly: no bucket is impossible only because the train part has not seen it.
    """
    count = len(edges_s) + 1
    in_bucket = np.bincount(buckets(split.next_open_s, edges_s)[~split.censored], weight[~split.censored], minlength=count)
    survived = np.bincount(ruled_out(split.observed_s, edges_s)[split.censored], weight[split.censored], minlength=count)
    prior = float(np.mean(weight)) if len(weight) else 1.0
    alive, probabilities = 1.0, np.zeros(count)
    for k in range(count - 1):
        opened = in_bucket[k] + prior / count
        at_risk = in_bucket[k:].sum() + survived[k + 1 :].sum() + prior * (count - k) / count
        probabilities[k] = alive * opened / at_risk
        alive -= probabilities[k]
    probabilities[-1] = alive
    return probabilities.astype(np.float32)


def within(probabilities: Floats, horizon_buckets: int) -> Doubles:
    """The score, [N]: P(opened again within the horizon), the sum of the first ``horizon_buckets`` outputs."""
    return np.asarray(probabilities[:, :horizon_buckets].sum(axis=1, dtype=np.float64))

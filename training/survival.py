"""The time to the next open as a distribution over buckets: targets, loss, base rates.

Upper edges e_0 < … < e_{B-2} make B buckets: bucket k holds the times in (e_{k-1}, e_k] (bucket 0 from 0 on), the last one "later or
never".

A row is either *uncensored*, the file was opened again after t, in bucket k(t); or *censored*, it was watched for c seconds and was not. A
censored row says one thing only: the time is longer than c. So the buckets with e_k <= c are ruled out, later ones are possible, and of the
bucket that c falls into, the part after c is. With p the predicted distribution, evenly spread within a bucket, the loss of a row is

    loss = -log sum_k T_k p_k
    T_k  = 1 for k(t), else 0                               where uncensored
    T_k  = min(1, max(0, (e_k - c) / (e_k - e_{k-1})))      where censored; the last bucket, which has no end, always 1

which is the negative log-likelihood of right-censored times under a density that is constant within buckets (Kvamme & Borgan, "Continuous
and discrete-time survival prediction with neural networks", Lifetime Data Analysis 27, 2021; with a softmax over buckets: Lee et al.,
"DeepHit", AAAI 2018, its L1 term for a single event). Counting the bucket of c as wholly possible would leave the mass in it free: where
most rows are watched for less than a bucket, "soon after we looked away" would cost nothing, and the model would promise it to every
file. T is a matrix, the target: one formula serves both kinds of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from .dataset import Doubles, Floats, Longs, Split

#: A probability under this counts as this in a loss, so that a loss stays finite: -log of it is 16.1.
FLOOR: Final = 1e-7
_SETTLED: Final = 1e-7
_MAX_ROUNDS: Final = 2000


def buckets(times_s: Doubles, edges_s: Sequence[float]) -> Longs:
    """The bucket of each time, [N]; NaN goes to the last one."""
    return np.searchsorted(np.asarray(edges_s, dtype=np.float64), times_s, side="left").astype(np.int64)


def targets(split: Split, edges_s: Sequence[float]) -> Floats:
    """T, [N, B]: how much of each bucket the next open may be in, 0 to 1. The last bucket of a censored row is always 1."""
    edges = np.asarray(edges_s, dtype=np.float64)
    hit = np.arange(len(edges) + 1)[None, :] == buckets(split.next_open_s, edges_s)[:, None]
    left = (edges - split.observed_s[:, None]) / np.diff(edges, prepend=0.0)
    open_ = np.concatenate([np.clip(left, 0.0, 1.0), np.ones((len(split), 1))], axis=1)
    return np.where(split.censored[:, None], open_, hit).astype(np.float32)


def row_losses(target: Floats, probabilities: Floats) -> Doubles:
    """-log of the probability of what is possible, [N], nats."""
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

    Found by self-consistency (Turnbull, JRSS B 38, 1976), the EM algorithm of this likelihood: each row is shared out over the buckets that
    it may be in, in proportion to what is thought of them so far,

        p_k <- (a/B + sum_i w_i T_ik p_k / sum_j T_ij p_j) / (a + sum_i w_i)

    until nothing changes by more than 1e-7. a is the weight of one average row: no bucket is impossible only because the train part has not
    seen it.
    """
    target = targets(split, edges_s).astype(np.float64)
    count = len(edges_s) + 1
    prior = float(np.mean(weight)) if len(weight) else 1.0
    probabilities = np.full(count, 1.0 / count)
    for _ in range(_MAX_ROUNDS):
        shares = target * probabilities
        shares *= (weight / shares.sum(axis=1))[:, None]
        following = (prior / count + shares.sum(axis=0)) / (prior + weight.sum())
        done = np.abs(following - probabilities).max() < _SETTLED
        probabilities = following
        if done:
            break
    return probabilities.astype(np.float32)


def within(probabilities: Floats, horizon_buckets: int) -> Doubles:
    """The score, [N]: P(opened again within the horizon), the sum of the first ``horizon_buckets`` outputs."""
    return np.asarray(probabilities[:, :horizon_buckets].sum(axis=1, dtype=np.float64))

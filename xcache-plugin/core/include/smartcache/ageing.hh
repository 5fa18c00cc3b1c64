// What a prediction made at an open is still worth `a` seconds later, when the file has not been opened again.
//
// The model gave the distribution of the time G to the next open over buckets with the upper edges e1 < ... < eB-1, and "later or never".
// Within a bucket G is taken as uniform, so its distribution function F is linear between the edges; past the last edge F stays as it is:
// "later or never" counts as never. Having survived to age a, the open within the next h seconds has the probability (Bayes)
//   P(G <= a + h | G > a) = (F(a + h) - F(a)) / (1 - F(a))        0 where the prediction has nothing left at a
//
// A file that no model has scored is ranked by its age as LRU ranks, on the same scale: G is given a heavy tail, S(t) = P(G > t) =
// s / (s + t), and s is chosen so that a file just opened has the base rate b of being opened within h, b = 1 - S(h), so s = h (1/b - 1):
//   P(G <= a + h | G > a) = 1 - S(a + h) / S(a) = h / (s + a + h) = b / (1 + b a / h)
// It starts at the base rate, falls with every second of age (so that of two such files the one opened longer ago goes first, as LRU
// would have it), and gets near 0 only for ages of many h: what is not known is not taken for useless. b is of the file's dataset, else
// of all files.
// Thread-safe: pure. Failure: none; any numbers give a probability in [0, 1].
#pragma once

#include <cstddef>

namespace smartcache {

// `edges` edges in seconds, rising, and `edges` + 1 `outputs`.
double OpenWithin(const double* edges_s, const float* outputs, size_t edges, double age_s, double horizon_s);

double UnscoredOpenWithin(double base_rate, double age_s, double horizon_s);

}  // namespace smartcache

// What a file on disk is worth keeping for: the probability of an open within the horizon from now, per open or per byte of the file.
//
// As the model predicted it at the last open and as that has aged since (OpenWithin); where there is no prediction of this model, by the
// base rate of the file's dataset and its age (UnscoredOpenWithin). One rule for the evictor and for replays of what it would have done.
// Thread-safe: pure. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "smartcache/history.hh"

namespace smartcache {

// The buckets that predictions are about.
struct Buckets {
  const double* edges_s;
  size_t edges;
  uint32_t id;  // History::Forecast::model_id of predictions over these edges
  double horizon_s;
};

// `forecast` null: the file is not known.
double Worth(const Buckets& buckets, const History::Forecast* forecast, double base_rate, double age_s, int64_t bytes, bool per_open);

}  // namespace smartcache

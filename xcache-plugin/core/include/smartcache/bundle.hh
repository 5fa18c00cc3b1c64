// A model bundle as the plugin needs it: bundle.json (and golden.json, where it is there) of one version of the model.
//
// Without golden.json the model's answers are not checked; one that is there must be readable and fit.
// Read strictly: format 1, a name, this core's own schema hash, rising bucket edges, a horizon that is one of them, thresholds with
// 0 <= evict <= admit <= 1. A bundle that was trained on other features than this core computes is refused here, before it can answer.
// Thread-safe: immutable once read. Failure: BundleError, whose text names file, field, rule and value.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "smartcache/features.hh"

namespace smartcache {

struct BundleError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Bundle {
  std::string name;        // the version's name, `reuse_v3`, under which the endpoint serves it
  size_t buckets;          // length of the model's output
  size_t horizon_buckets;  // score = sum of the first so many outputs
  double admit, evict;     // thresholds of the score
  std::vector<std::vector<float>> golden_inputs;
  std::vector<std::vector<double>> golden_outputs;
  std::string request_head, request_tail;  // the JSON of a request, before and after the values
};

constexpr size_t kMaxBuckets = 64;

// The bundle in `folder`. Throws BundleError.
Bundle ReadBundle(const std::string& folder, const Schema& schema);

}  // namespace smartcache

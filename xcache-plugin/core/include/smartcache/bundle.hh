// A model bundle as the plugin needs it: bundle.json, and golden.json and weights.json where they are there, of one version of the model.
//
// Without golden.json the model's answers are not checked, without weights.json there is no embedded copy of it; one that is there must be
// readable and fit, or the whole bundle is refused: all of it is one immutable object, in use as a whole or not at all.
// Read strictly: files of bounded size, format 1, a name, this core's own schema hash, rising bucket edges, a horizon that is one of them,
// thresholds with 0 <= evict <= admit <= 1. A bundle that was trained on other features than this core computes is refused here, before it
// can answer. Thread-safe: immutable once read. Failure: BundleError, whose text names file, field, rule and value.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "smartcache/bundle_error.hh"
#include "smartcache/features.hh"
#include "smartcache/network.hh"

namespace smartcache {

struct Bundle {
  uint64_t id;       // of this reading of it, unique in the process
  std::string name;  // the version's name, `reuse_v3`, under which the endpoint serves it
  size_t buckets;    // length of the model's output
  std::vector<double> bucket_edges_s;
  uint32_t edges_id;       // a hash of the edges: predictions of versions with equal edges mean the same
  size_t horizon_buckets;  // score = sum of the first so many outputs
  double admit, evict;     // thresholds of the score
  std::vector<std::vector<float>> golden_inputs;
  std::vector<std::vector<float>> golden_outputs;
  std::shared_ptr<const Network> network;  // null: no embedded copy
  std::string request_head;                // the JSON of a request, up to the values
};

constexpr size_t kMaxBuckets = 64;

// What is made of weights.json: nothing, what is there, or a refusal where it is not there.
enum class Weights { kIgnored, kIfThere, kNeeded };

// The bundle in `folder`. Throws BundleError.
Bundle ReadBundle(const std::string& folder, const Schema& schema, Weights weights = Weights::kIfThere);

// The texts of its files; nothing for one that is not there.
struct BundleTexts {
  std::string info;
  std::optional<std::string> golden, weights;
};
// The same from memory; `folder` is for messages.
Bundle ParseBundle(const BundleTexts& texts, const std::string& folder, const Schema& schema);

}  // namespace smartcache

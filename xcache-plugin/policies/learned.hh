// A cache that keeps what a model expects to be requested soonest, and learns that from its own requests.
//
// The model says whether an object will be requested again within a horizon: the mean age at which LRU, one of the rules, lets objects go.
// What is not requested within that time is not worth its place. Whoever trains takes `Labelled` rows of the past, from time to time, and
// hands over the model (`Use`): training is not done here. Each request gives two rows, of the object requested and of one that is stored,
// drawn at random: what is judged at an eviction are aged states, which the first alone would not show.
//
// A miss evicts the lowest score of some candidates (candidates.hh), or passes the new object by. Until there is a model, the score is the
// vote of simple rules that run beside it (shadows.hh). What they hold is also among the features: the model learns when to believe whom.
// Nothing bounds here what a bad model loses: it is one expert of a portfolio (portfolio.hh), which follows it as far as it earns it.
//
// After Z. Song et al., LRB (NSDI 2020): labels from the past within a window, candidates drawn at random. The horizon, the rows of stored
// objects, and the rules as features are ours.
// Cost: two rows a request, about a dozen scores a miss. Memory: `ring` rows, 100 bytes an object. Thread-safety: none. Failure:
// std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "candidates.hh"
#include "object_policy.hh"
#include "reuse_features.hh"
#include "reuse_model.hh"
#include "reuse_samples.hh"
#include "shadows.hh"

namespace smartcache {

struct LearnedOptions {
  size_t ring = 240000;    // rows that are remembered
  size_t candidates = 48;  // of an eviction, and of them those that are kept for the next
  size_t kept = 12;
  uint64_t seed = 1;
  std::vector<std::string> left_out;  // kinds of features, see ReuseFeatures
};

class LearnedCache final : public ObjectPolicy {
 public:
  // `groups[i]` is the group of object i; objects must be below its length. The rules must outlive it and have had each request before it.
  LearnedCache(int64_t capacity, std::vector<uint32_t> groups, const Shadows* rules, const LearnedOptions& options = {});

  bool Request(uint32_t object, int64_t size) override;
  void Replay(const uint32_t* objects, const int64_t* sizes, size_t n) override;
  bool Holds(uint32_t object) const override { return stored_.Holds(object); }
  void TellRemoved(std::vector<uint32_t>* removed) override { removed_ = removed; }
  PolicyCounters counters() const override { return counters_; }

  // Rows of the past at most, drawn by `seed`, with their labels: see ReuseSamples.
  LabelledRows Labelled(size_t most, uint64_t seed) const { return samples_.Labelled(now_, horizon(), most, seed); }
  // What decides from now on; null: the vote of the rules.
  void Use(std::unique_ptr<ReuseModel> model) { model_ = std::move(model); }

  // In turnovers, as is the clock: requested bytes over the capacity.
  double horizon() const { return age_sum_ / age_count_; }
  double now() const { return now_; }
  size_t objects() const { return features_.objects(); }

 private:
  void Sample(uint32_t object);
  bool Serve(uint32_t object, int64_t size);
  // See Candidates.
  bool MakeRoom(uint32_t object, int64_t size);
  Candidates::Judged Judge(uint32_t object);
  ReuseFeatures::Beside Beside(uint32_t object) const;
  int64_t Removed(uint32_t object);

  const int64_t capacity_;
  const Shadows& rules_;
  ReuseFeatures features_;
  ReuseSamples samples_;
  std::unique_ptr<ReuseModel> model_;

  Candidates stored_;
  std::vector<uint32_t>* removed_ = nullptr;
  std::vector<float> row_;

  double now_ = 0;
  double age_sum_ = 1, age_count_ = 1;  // of what LRU lets go of, decayed
  PolicyCounters counters_;
};

}  // namespace smartcache

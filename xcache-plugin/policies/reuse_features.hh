// What is known of an object at a moment, in numbers that a model can learn from: when and how often it was requested, and its group.
//
// Times are in turnovers: requested bytes over the capacity, so that one setting fits caches and sites of any size. Counts are decayed
// exponentially, with several half-lives. A group is what objects have in common from their first request on: the dataset (the parent
// directory of the LFN), and the cohort, the objects that were new at about the same time. Where a group is being read now, file by file,
// says how soon an object's turn comes (read_fronts.hh). Unknown is -1. The time itself is no feature: what was true at a time is not
// learned. Features after N. Beckmann, X. Chen, A. Cidon, LHD (NSDI 2018), Z. Song et al., LRB (NSDI 2020): gaps and decayed counters on a
// clock of the cache's own; groups, cohorts and fronts are ours. Each feature is of a kind, and kinds can be left out: their features are
// unknown then in each row, so that nothing can be learned from them. That shows what a kind is worth.
//
// Cost: a row is two fused loops and three powers of two, about 0.1 us; 96 bytes an object, 240 a group. Thread-safety: none. Failure:
// std::bad_alloc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "read_fronts.hh"
#include "shadows.hh"

namespace smartcache {

class ReuseFeatures {
 public:
  // `groups[i]` is the group of object i, dense numbers from 0. Features of the kinds `left_out` are unknown; std::invalid_argument where
  // there is no such kind.
  explicit ReuseFeatures(std::vector<uint32_t> groups, const std::vector<std::string>& left_out = {});

  // What the rest of the cache knows of an object.
  struct Beside {
    Shadows::Mask held_by;
    double vote;
    double fill;  // of the cache, 0 to 1
  };

  static const std::vector<std::string>& Names();
  static size_t count() { return Names().size(); }
  // The kind of each: size, recency, counts, dataset, cohort, fronts, shadows, fill.
  static const std::vector<std::string>& Kinds();

  // A request at the time `now`, which never goes back.
  void Request(uint32_t object, int64_t size, double now);
  // One row, of an object that has been requested; `row` has `count()` places.
  void Row(uint32_t object, double now, const Beside& beside, float* row) const;

  double last(uint32_t object) const { return objects_[object].last; }
  int64_t size(uint32_t object) const { return objects_[object].size; }
  size_t objects() const { return objects_.size(); }

 private:
  static constexpr size_t kGaps = 6, kDecays = 6, kGroupDecays = 4;

  struct Object {
    double first = 0, last = 0;
    int64_t size = 0;
    uint32_t requests = 0;
    uint32_t cohort = 0;
    uint32_t position = 0;            // in its group: how many were there before it
    std::array<float, kGaps> gaps{};  // the last first
    std::array<float, kDecays> counts{};
  };
  struct Group {
    double first = 0, last = 0;
    float gap = 0;  // between its last two requests
    uint32_t requests = 0, again = 0, objects = 0;
    std::array<float, kGroupDecays> counts{}, again_counts{};
  };

  static void Touch(Group* group, bool again, double now);
  static float* Append(const Group& group, double now, float* row);

  std::vector<Object> objects_;
  std::vector<uint32_t> group_of_;
  std::vector<Group> groups_, cohorts_;
  std::vector<ReadFronts> fronts_;  // of each group
  std::vector<size_t> left_out_;    // places in a row
  uint32_t first_seen_ = 0;
};

}  // namespace smartcache

// How likely an object is to be requested again soon, as a model that was trained elsewhere says: a score that ranks, higher is sooner.
//
// Thread-safety: immutable. Failure: std::invalid_argument where the parts do not make a model, whose text names the part, the rule and
// the value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smartcache {

class ReuseModel {
 public:
  ReuseModel() = default;
  ReuseModel(const ReuseModel&) = delete;
  ReuseModel& operator=(const ReuseModel&) = delete;
  virtual ~ReuseModel() = default;

  virtual double Score(const float* row) const = 0;
};

// Boosted regression trees, the score their sum. Where a row's feature is at most the threshold a node goes left, else right; a child
// below 0 is the leaf ~child.
class ReuseTrees final : public ReuseModel {
 public:
  struct Parts {
    std::vector<int32_t> feature;
    std::vector<float> threshold;
    std::vector<int32_t> left, right;  // one of each for each node; children after their parents
    std::vector<float> leaf;
    std::vector<int32_t> roots;
  };
  // For rows of `width` features.
  ReuseTrees(const Parts& parts, size_t width);

  double Score(const float* row) const override;

 private:
  struct Node {
    float threshold;
    int32_t feature;
    int32_t child[2];  // at most the threshold, and above
  };

  std::vector<Node> nodes_;
  std::vector<float> leaves_;
  std::vector<int32_t> roots_;
};

}  // namespace smartcache

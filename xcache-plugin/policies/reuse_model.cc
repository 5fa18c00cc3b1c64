#include "reuse_model.hh"

#include <cmath>
#include <stdexcept>
#include <string>

namespace smartcache {
namespace {

// The leaf that a child or root below 0 stands for.
size_t LeafOf(int32_t child) {
  const int32_t leaf = ~child;
  return static_cast<size_t>(leaf);
}

// A node, or where below 0 a leaf, that may stand behind node `parent`.
bool IsChild(int32_t child, int64_t parent, size_t nodes, size_t leaves) {
  return child < 0 ? LeafOf(child) < leaves : child > parent && static_cast<size_t>(child) < nodes;
}

[[noreturn]] void Refuse(const char* part, size_t at, const std::string& rule, double value) {
  throw std::invalid_argument("trees: " + std::string(part) + "[" + std::to_string(at) + "] must be " + rule + ", is " +
                              std::to_string(value));
}

}  // namespace

ReuseTrees::ReuseTrees(const Parts& parts, size_t width) : leaves_(parts.leaf), roots_(parts.roots) {
  const size_t nodes = parts.feature.size();
  if (parts.threshold.size() != nodes || parts.left.size() != nodes || parts.right.size() != nodes)
    throw std::invalid_argument("trees: feature, threshold, left and right must be of one length");
  for (size_t i = 0; i < nodes; ++i) {
    if (parts.feature[i] < 0 || static_cast<size_t>(parts.feature[i]) >= width)
      Refuse("feature", i, "0 to " + std::to_string(width - 1), parts.feature[i]);
    if (std::isnan(parts.threshold[i])) Refuse("threshold", i, "a number", static_cast<double>(parts.threshold[i]));
    for (const int32_t child : {parts.left[i], parts.right[i]})
      if (!IsChild(child, static_cast<int64_t>(i), nodes, leaves_.size())) Refuse("child", i, "a later node or ~leaf", child);
    nodes_.push_back({parts.threshold[i], parts.feature[i], {parts.left[i], parts.right[i]}});
  }
  for (size_t i = 0; i < roots_.size(); ++i)
    if (!IsChild(roots_[i], -1, nodes, leaves_.size())) Refuse("roots", i, "a node or ~leaf", roots_[i]);
  for (size_t i = 0; i < leaves_.size(); ++i)
    if (!std::isfinite(leaves_[i])) Refuse("leaf", i, "finite", static_cast<double>(leaves_[i]));
}

double ReuseTrees::Score(const float* row) const {
  double score = 0;
  for (int32_t at : roots_) {
    while (at >= 0) {
      const Node& node = nodes_[static_cast<size_t>(at)];
      at = node.child[row[node.feature] > node.threshold ? 1 : 0];
    }
    score += static_cast<double>(leaves_[LeafOf(at)]);
  }
  return score;
}

}  // namespace smartcache

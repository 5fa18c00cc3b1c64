#include "reuse_model.hh"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

namespace smartcache {
namespace {

// x0 <= 1 ? (x1 <= 2 ? 10 : 20) : 30, and a tree that is one leaf.
ReuseTrees::Parts Good() { return {{0, 1}, {1.0f, 2.0f}, {1, ~0}, {~2, ~1}, {10, 20, 30, 0.5}, {0, ~3}}; }

TEST(ReuseTrees, AScoreIsTheSumOfTheTrees) {
  const ReuseTrees trees(Good(), 2);
  const auto score = [&](float x0, float x1) {
    const float row[] = {x0, x1};
    return trees.Score(row);
  };
  EXPECT_EQ(score(1, 2), 10.5);
  EXPECT_EQ(score(1, 2.5), 20.5);
  EXPECT_EQ(score(1.5, 0), 30.5);
}

TEST(ReuseTrees, WhatIsNoTreeIsRefusedByName) {
  const std::pair<std::function<void(ReuseTrees::Parts*)>, const char*> wrong[] = {
      {[](auto* parts) { parts->feature[1] = 2; }, "feature[1] must be 0 to 1"},
      {[](auto* parts) { parts->feature[0] = -1; }, "feature[0]"},
      {[](auto* parts) { parts->threshold[0] = std::numeric_limits<float>::quiet_NaN(); }, "threshold[0]"},
      {[](auto* parts) { parts->left[1] = 0; }, "child[1] must be a later node"},  // for ever round
      {[](auto* parts) { parts->left[1] = 1; }, "child[1]"},
      {[](auto* parts) { parts->right[0] = ~4; }, "child[0]"},
      {[](auto* parts) { parts->right[0] = 2; }, "child[0]"},
      {[](auto* parts) { parts->roots[1] = 2; }, "roots[1]"},
      {[](auto* parts) { parts->leaf[3] = std::numeric_limits<float>::infinity(); }, "leaf[3] must be finite"},
      {[](auto* parts) { parts->left.pop_back(); }, "of one length"},
  };
  for (const auto& [spoil, says] : wrong) {
    ReuseTrees::Parts parts = Good();
    spoil(&parts);
    try {
      const ReuseTrees trees(parts, 2);
      ADD_FAILURE() << says;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace smartcache

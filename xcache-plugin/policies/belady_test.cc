#include "policies/belady.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

std::string OutcomeOfBelady(std::string_view letters, int64_t capacity) {
  std::vector<uint32_t> objects;
  for (const char letter : letters) objects.push_back(static_cast<uint32_t>(letter - 'a'));
  const auto policy = MakeBelady(capacity, objects.data(), objects.size());
  return testing::Outcome(*policy, letters);
}

TEST(Belady, WhatIsRequestedLastGoes) { EXPECT_EQ(OutcomeOfBelady("abcab", 2), "mmmhm"); }

TEST(Belady, WhatIsNeverRequestedAgainGoesFirst) { EXPECT_EQ(OutcomeOfBelady("abcdabd", 3), "mmmmhhh"); }

// The textbook's sequence: 9 faults with 3 frames.
TEST(Belady, TheTextbook) { EXPECT_EQ(OutcomeOfBelady("habcadaecdadcbcabhab", 3), "mmmmhmhmhhmhhmhhhmhh"); }

}  // namespace
}  // namespace smartcache

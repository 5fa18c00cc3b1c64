#include "policies/lfu.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Held;
using testing::Outcome;

TEST(Lfu, TheOneRequestedLeastOftenGoes) {
  const auto policy = MakeLfu(2);
  EXPECT_EQ(Outcome(*policy, "aabcb"), "mhmmm");
  EXPECT_EQ(Held(*policy), "ab");
}

TEST(Lfu, OfEqualsTheOneRequestedLongestAgoGoes) {
  const auto policy = MakeLfu(3);
  EXPECT_EQ(Outcome(*policy, "abccbad"), "mmmhhhm");
  EXPECT_EQ(Held(*policy), "abd");
}

TEST(Lfu, CountsStartAnewWhenAnObjectIsStoredAgain) {
  const auto policy = MakeLfu(1);
  EXPECT_EQ(Outcome(*policy, "aaabab"), "mhhmmm");  // b displaces a, for all its uses, and a has none left of them
  EXPECT_EQ(Held(*policy), "b");
}

}  // namespace
}  // namespace smartcache

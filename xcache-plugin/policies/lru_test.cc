#include "policies/lru.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Held;
using testing::Outcome;

TEST(Lru, TheOneRequestedLongestAgoGoes) {
  const auto policy = MakeLru(3);
  EXPECT_EQ(Outcome(*policy, "abcadb"), "mmmhmm");
  EXPECT_EQ(Held(*policy), "abd");
}

TEST(Lru, ALargeObjectTakesTheRoomOfSeveral) {
  const auto policy = MakeLru(4);
  Outcome(*policy, "abcd");
  EXPECT_FALSE(policy->Request(4, 3));
  EXPECT_EQ(Held(*policy), "de");
  EXPECT_EQ(policy->counters().objects_deleted, 3);
  EXPECT_EQ(policy->counters().deleted_bytes, 3);
  EXPECT_EQ(policy->counters().written_bytes, 7);
}

TEST(Lru, LargerThanTheCapacityIsNeverStoredAndDisplacesNothing) {
  const auto policy = MakeLru(4);
  Outcome(*policy, "abcd");
  EXPECT_FALSE(policy->Request(4, 5));
  EXPECT_FALSE(policy->Request(4, 5));
  EXPECT_EQ(Held(*policy), "abcd");
}

TEST(Lru, ACopyThatGrewCountsWithItsNewSize) {
  const auto policy = MakeLru(4);
  Outcome(*policy, "abc");
  EXPECT_TRUE(policy->Request(2, 3));  // 5 bytes now: a goes
  EXPECT_EQ(Held(*policy), "bc");
  EXPECT_EQ(policy->counters().hit_bytes, 3);
  EXPECT_TRUE(policy->Request(2, 9));  // alone too large: all go, itself at last
  EXPECT_EQ(Held(*policy), "");
  EXPECT_EQ(policy->counters().deleted_bytes, 1 + 1 + 9);
  EXPECT_FALSE(policy->Request(0, 4));
  EXPECT_EQ(Held(*policy), "a");
}

}  // namespace
}  // namespace smartcache

#include "policies/slru.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Held;
using testing::Outcome;

// Four lists of one object each: a new one enters the lowest that has room.
TEST(Slru, AHitMovesUpAndPushesDown) {
  const auto policy = MakeSlru(4);
  Outcome(*policy, "abcd");               // from the lowest list: a b c d
  EXPECT_EQ(Outcome(*policy, "e"), "m");  // e b c d
  EXPECT_EQ(Held(*policy), "bcde");
  EXPECT_EQ(Outcome(*policy, "bef"), "hhm");  // e c b d, then c e b d, and c leaves
  EXPECT_EQ(Held(*policy), "bdef");
}

TEST(Slru, AScanTakesTheLowestListOnly) {
  const auto policy = MakeSlru(4);
  Outcome(*policy, "abcdefghijk");
  EXPECT_EQ(Held(*policy), "bcdk");
}

TEST(Slru, LargerThanAListIsNeverStored) {
  const auto policy = MakeSlru(8);
  policy->Request(0, 3);
  EXPECT_EQ(Held(*policy), "");
  policy->Request(0, 2);
  EXPECT_EQ(Held(*policy), "a");
}

}  // namespace
}  // namespace smartcache

#include "policies/lirs.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Range;

// A capacity of 100: 99 for LIR objects, 1 for the rest.
TEST(Lirs, NewObjectsPassThroughTheQueueOnceTheLirShareIsFull) {
  const auto policy = MakeLirs(100);
  Range(*policy, 0, 99);
  Range(*policy, 99, 130);
  for (uint32_t object = 0; object < 99; ++object) EXPECT_TRUE(policy->Holds(object)) << object;
  EXPECT_FALSE(policy->Holds(128));
  EXPECT_TRUE(policy->Holds(129));
}

TEST(Lirs, AShortDistanceMakesLirAndTheBottomOfTheStackGivesWay) {
  const auto policy = MakeLirs(100);
  Range(*policy, 0, 101);  // 99 went for 100
  EXPECT_FALSE(policy->Holds(99));
  policy->Request(99, 1);  // it is in the stack still: LIR; 0 is next to go
  EXPECT_TRUE(policy->Holds(0));
  policy->Request(200, 1);
  EXPECT_FALSE(policy->Holds(0));
  EXPECT_TRUE(policy->Holds(99));
  Range(*policy, 300, 350);
  EXPECT_TRUE(policy->Holds(99));
}

TEST(Lirs, AHitInTheQueueMakesLirWhereTheDistanceIsShort) {
  const auto policy = MakeLirs(100);
  Range(*policy, 0, 100);
  EXPECT_TRUE(policy->Request(99, 1));
  policy->Request(200, 1);
  EXPECT_FALSE(policy->Holds(0));
  EXPECT_TRUE(policy->Holds(99));
}

TEST(Lirs, ALoopThatIsLargerThanTheCacheHitsInMostOfIt) {
  const auto policy = MakeLirs(100);
  Range(*policy, 0, 150);
  for (int round = 0; round < 5; ++round) EXPECT_GE(Range(*policy, 0, 150), 90) << round;
}

TEST(Lirs, ALargeObjectIsStoredWhateverTheShares) {
  const auto policy = MakeLirs(100);
  Range(*policy, 0, 100);
  policy->Request(200, 60);
  EXPECT_TRUE(policy->Holds(200));
  policy->Request(201, 100);
  EXPECT_TRUE(policy->Holds(201));
  EXPECT_FALSE(policy->Holds(200));
  EXPECT_FALSE(policy->Holds(98));
}

}  // namespace
}  // namespace smartcache

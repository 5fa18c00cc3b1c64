#include "policies/arc.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Held;
using testing::Outcome;

TEST(Arc, AScanLeavesWhatWasRequestedTwice) {
  const auto policy = MakeArc(4);
  EXPECT_EQ(Outcome(*policy, "abab"), "mmhh");
  Outcome(*policy, "cdefghijklmnop");
  EXPECT_EQ(Held(*policy), "abop");
}

TEST(Arc, AGhostOfTheFirstListMakesThatListLarger) {
  const auto policy = MakeArc(4);
  EXPECT_EQ(Outcome(*policy, "abcdae"), "mmmmhm");  // b leaves T1
  EXPECT_EQ(Outcome(*policy, "b"), "m");            // p = 1; c leaves T1; T1 = d e, T2 = a b
  EXPECT_EQ(Held(*policy), "abde");
  EXPECT_EQ(Outcome(*policy, "c"), "m");  // p = 2: T1 is not larger than p any more, but c came from B1: d leaves T1? no: a leaves T2
  EXPECT_EQ(Held(*policy), "bcde");
}

TEST(Arc, AGhostOfTheSecondListMakesTheFirstSmallerAgain) {
  const auto policy = MakeArc(4);
  Outcome(*policy, "abcdaebc");           // as above: p = 2, T1 = d e, T2 = b c, a is a ghost of T2
  EXPECT_EQ(Outcome(*policy, "a"), "m");  // p = 1 at most: d leaves T1
  EXPECT_EQ(Held(*policy), "abce");
}

}  // namespace
}  // namespace smartcache

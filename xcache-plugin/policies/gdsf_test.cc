#include "policies/gdsf.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Held;

TEST(Gdsf, TheLargeGoFirstAndAgeLetsOthersIn) {
  const auto policy = MakeGdsf(10);
  policy->Request(0, 8);  // K = 1/8
  policy->Request(1, 1);  // K = 1
  policy->Request(2, 5);  // K = 1/5: a goes, L = 1/8
  EXPECT_EQ(Held(*policy), "bc");
  policy->Request(3, 9);  // K = 1/8 + 1/9: c goes, L = 1/5
  EXPECT_EQ(Held(*policy), "bd");
}

TEST(Gdsf, ANewObjectOfTheLowestPriorityIsPassedByAndAgesTheRest) {
  const auto policy = MakeGdsf(10);
  policy->Request(1, 1);   // K = 1
  policy->Request(2, 9);   // K = 1/9
  policy->Request(3, 10);  // K = 1/10: below both
  EXPECT_EQ(Held(*policy), "bc");
  EXPECT_EQ(policy->counters().written_bytes, 10);
  policy->Request(3, 10);  // K = 1/10 + 1/10 now: c goes, but b stays, and so there is no room
  EXPECT_EQ(Held(*policy), "b");
  EXPECT_EQ(policy->counters().written_bytes, 10);
  EXPECT_EQ(policy->counters().deleted_bytes, 9);
}

}  // namespace
}  // namespace smartcache

#include "policies/hyperbolic.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Held;
using testing::Outcome;

// With two objects, each is certain to be among 64 draws, but for one chance in 2^63.
TEST(Hyperbolic, TheLowestRateOfUseGoes) {
  const auto policy = MakeHyperbolic(2);
  EXPECT_EQ(Outcome(*policy, "baaaaac"), "mmhhhhm");  // b: 1 in 6 requests; a: 5 in 5
  EXPECT_EQ(Held(*policy), "ac");
}

TEST(Hyperbolic, ANewObjectIsNotWorseForBeingNew) {
  const auto policy = MakeHyperbolic(2);
  EXPECT_EQ(Outcome(*policy, "aaaaabc"), "mhhhhmm");  // a: 5 in 6; b: 1 in 1
  EXPECT_EQ(Held(*policy), "bc");
}

}  // namespace
}  // namespace smartcache

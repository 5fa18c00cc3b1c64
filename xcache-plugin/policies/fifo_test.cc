#include "policies/fifo.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Held;
using testing::Outcome;

TEST(Fifo, TheOneStoredLongestAgoGoesWhateverItsHits) {
  const auto policy = MakeFifo(3);
  EXPECT_EQ(Outcome(*policy, "abcada"), "mmmhmm");
  EXPECT_EQ(Held(*policy), "acd");
}

}  // namespace
}  // namespace smartcache

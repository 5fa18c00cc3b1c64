#include "policies/sieve.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Held;
using testing::Outcome;

TEST(Sieve, TheHandPassesWhatWasHitAndStaysWhereItIs) {
  const auto policy = MakeSieve(3);
  EXPECT_EQ(Outcome(*policy, "abcabd"), "mmmhhm");  // past a and b, out goes c, the newest
  EXPECT_EQ(Held(*policy), "abd");
  EXPECT_EQ(Outcome(*policy, "e"), "m");  // from the oldest again: a's bit is spent
  EXPECT_EQ(Held(*policy), "bde");
}

TEST(Sieve, WhereAllWereHitTheOldestGoes) {
  const auto policy = MakeSieve(3);
  EXPECT_EQ(Outcome(*policy, "abcabcd"), "mmmhhhm");
  EXPECT_EQ(Held(*policy), "bcd");
}

}  // namespace
}  // namespace smartcache

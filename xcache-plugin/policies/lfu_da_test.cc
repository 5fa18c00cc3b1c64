#include "policies/lfu_da.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Held;
using testing::Outcome;

TEST(LfuDa, WhatWasPopularOnceGrowsOld) {
  const auto policy = MakeLfuDa(2);
  // a: K = 3. b: 1. c evicts b: L = 1, K = 2. d evicts c: L = 2, K = 3. e: a and d are equal, a was requested longer ago.
  EXPECT_EQ(Outcome(*policy, "aaabcde"), "mhhmmmm");
  EXPECT_EQ(Held(*policy), "de");
}

TEST(LfuDa, AHitSetsThePriorityAnewWithTheAgeOfNow) {
  const auto policy = MakeLfuDa(2);
  // As above until d: then a is requested, K = 4 + 2 = 6. e evicts d, L = 3, K = 4; f evicts e, K = 5; g evicts f, K = 6: equal to a, which
  // is older.
  EXPECT_EQ(Outcome(*policy, "aaabcdaefg"), "mhhmmmhmmm");
  EXPECT_EQ(Held(*policy), "ag");
  EXPECT_EQ(Outcome(*policy, "h"), "m");
  EXPECT_EQ(Held(*policy), "gh");
}

}  // namespace
}  // namespace smartcache

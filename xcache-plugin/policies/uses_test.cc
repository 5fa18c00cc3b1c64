#include "policies/uses.hh"

#include <gtest/gtest.h>

#include "policies/lru.hh"
#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Held;
using testing::Outcome;

TEST(Uses, StoredFromTheNthRequestOn) {
  const auto twice = MakeUses(2, 2, MakeLru(2));
  EXPECT_EQ(Outcome(*twice, "abaa"), "mmmh");
  EXPECT_EQ(Held(*twice), "a");
  const auto thrice = MakeUses(2, 3, MakeLru(2));
  EXPECT_EQ(Outcome(*thrice, "aaaa"), "mmmh");
}

TEST(Uses, WhatWasRefusedTooLongAgoStartsAnew) {
  const auto policy = MakeUses(2, 2, MakeLru(2));
  EXPECT_EQ(Outcome(*policy, "abca"), "mmmm");  // two are remembered: a is forgotten when c comes
  EXPECT_EQ(Held(*policy), "");
  EXPECT_EQ(Outcome(*policy, "c"), "m");
  EXPECT_EQ(Held(*policy), "c");
}

TEST(Uses, WhatWasEvictedNeedsThemAgain) {
  const auto policy = MakeUses(1, 2, MakeLru(1));
  EXPECT_EQ(Outcome(*policy, "aabba"), "mmmmm");
  EXPECT_EQ(Held(*policy), "b");
}

TEST(Uses, CountsWhatItRefuses) {
  const auto policy = MakeUses(4, 2, MakeLru(4));
  Outcome(*policy, "aaa", 2);
  const PolicyCounters counters = policy->counters();
  EXPECT_EQ(counters.requests, 3);
  EXPECT_EQ(counters.bytes, 6);
  EXPECT_EQ(counters.hits, 1);
  EXPECT_EQ(counters.written_bytes, 2);
}

}  // namespace
}  // namespace smartcache

#include "policies/scdl.hh"

#include <gtest/gtest.h>

#include <vector>

#include "policies/policies.hh"
#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

std::vector<bool> Outcomes(uint64_t seed, int64_t capacity, const testing::Requests& requests) {
  const auto policy = MakeScdl(capacity, seed);
  std::vector<bool> hits;
  for (size_t i = 0; i < requests.objects.size(); ++i) hits.push_back(policy->Request(requests.objects[i], requests.sizes[i]));
  return hits;
}

TEST(Scdl, TheSeedSaysAll) {
  const testing::Requests requests = testing::RandomRequests(5, 5000, 300, false);
  EXPECT_EQ(Outcomes(1, 2000, requests), Outcomes(1, 2000, requests));
  EXPECT_NE(Outcomes(1, 2000, requests), Outcomes(2, 2000, requests));
}

// Fifty objects in turn, and all fit: what was not stored was a miss twice over, so it learns to store.
TEST(Scdl, LearnsToStoreWhatComesAgain) {
  const auto policy = MakeScdl(100, 1);
  int first = 0, last = 0;
  for (int round = 0; round < 400; ++round) {
    const int hits = testing::Range(*policy, 0, 50);
    if (round < 2) first += hits;
    if (round >= 390) last += hits;
  }
  EXPECT_LT(first, 50);  // of 100: half is stored, at random
  EXPECT_EQ(last, 500);
  EXPECT_EQ(policy->counters().objects_deleted, 0);
}

// With more objects than fit the agents make room, and each object that is deleted or not stored is missed.
TEST(Scdl, DeletesWhereRoomIsNeeded) {
  const auto policy = MakeScdl(50, 1);
  std::vector<uint32_t> removed;
  policy->TellRemoved(&removed);
  for (int round = 0; round < 100; ++round) testing::Range(*policy, 0, 80);
  const PolicyCounters counters = policy->counters();
  EXPECT_GT(counters.hits, 0);
  EXPECT_GT(counters.objects_deleted, 100);
  EXPECT_EQ(static_cast<int64_t>(removed.size()), counters.objects_deleted);
  EXPECT_LE(counters.written_bytes - counters.deleted_bytes, 50);
}

// It cannot be stored, so nobody is asked: the others fare as if it were not there.
TEST(Scdl, WhatIsLargerThanTheCacheTeachesNothing) {
  const auto with = MakeScdl(100, 1), without = MakeScdl(100, 1);
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(with->Request(0, 101));
  for (int i = 0; i < 3000; ++i) {
    const auto object = static_cast<uint32_t>(1 + i % 40);
    ASSERT_EQ(with->Request(object, 7), without->Request(object, 7)) << i;
  }
  EXPECT_LT(without->counters().hits, 750);  // the hit rate is of one class throughout
}

TEST(Scdl, ACopyThatOutgrowsTheCacheGoes) {
  const auto policy = MakeScdl(100, 1);
  while (!policy->Holds(0)) policy->Request(0, 10);
  EXPECT_TRUE(policy->Request(0, 101));
  EXPECT_FALSE(policy->Holds(0));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(policy->Request(0, 101));
}

}  // namespace
}  // namespace smartcache

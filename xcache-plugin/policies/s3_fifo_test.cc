#include "policies/s3_fifo.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Range;

// A capacity of 20: 2 in the small queue, 18 in the main one. Until something is evicted the first 20 fill both: 0 and 1 the small one.
class S3Fifo : public ::testing::Test {
 protected:
  S3Fifo() { Range(*policy_, 0, 20); }
  const std::unique_ptr<ObjectPolicy> policy_ = MakeS3Fifo(20);
};

TEST_F(S3Fifo, WhatIsNotRequestedAgainLeavesFromTheSmallQueue) {
  Range(*policy_, 20, 30);
  for (uint32_t object = 2; object < 20; ++object) EXPECT_TRUE(policy_->Holds(object)) << object;
  EXPECT_FALSE(policy_->Holds(0));
  EXPECT_FALSE(policy_->Holds(27));
  EXPECT_TRUE(policy_->Holds(28));
  EXPECT_TRUE(policy_->Holds(29));
}

TEST_F(S3Fifo, TwoHitsInTheSmallQueueAreAWayIntoTheMainOneAndOneIsNot) {
  policy_->Request(0, 1);
  policy_->Request(1, 1);
  policy_->Request(1, 1);
  policy_->Request(20, 1);  // 0 leaves
  EXPECT_FALSE(policy_->Holds(0));
  policy_->Request(21, 1);  // 1 moves on, and 20 behind it leaves
  EXPECT_TRUE(policy_->Holds(1));
  EXPECT_FALSE(policy_->Holds(20));
  EXPECT_TRUE(policy_->Holds(2));
  policy_->Request(22, 1);  // the main queue has one too many: its oldest leaves
  EXPECT_FALSE(policy_->Holds(2));
  EXPECT_TRUE(policy_->Holds(1));
}

TEST_F(S3Fifo, AGhostEntersTheMainQueue) {
  policy_->Request(20, 1);  // 0 is a ghost
  policy_->Request(0, 1);   // and 1, for whom 0 comes into the main queue
  Range(*policy_, 21, 31);
  EXPECT_TRUE(policy_->Holds(0));
  EXPECT_FALSE(policy_->Holds(2));  // the one too many in the main queue; it is no ghost
  policy_->Request(2, 1);
  Range(*policy_, 31, 40);
  EXPECT_FALSE(policy_->Holds(2));
}

TEST_F(S3Fifo, WhatWasHitInTheMainQueueGoesRoundAgain) {
  policy_->Request(2, 1);
  policy_->Request(20, 1);
  policy_->Request(0, 1);   // into the main queue: one too many
  policy_->Request(21, 1);  // 2 was requested: 3 leaves
  EXPECT_TRUE(policy_->Holds(2));
  EXPECT_FALSE(policy_->Holds(3));
}

TEST_F(S3Fifo, NotSmallerThanTheSmallQueueIsNeverStored) {
  policy_->Request(50, 2);
  policy_->Request(50, 2);
  EXPECT_FALSE(policy_->Holds(50));
  EXPECT_EQ(policy_->counters().objects_deleted, 0);
}

}  // namespace
}  // namespace smartcache

#include "policies/w_tiny_lfu.hh"

#include <gtest/gtest.h>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::Range;

// A capacity of 100: a window of 1. All of what fills it is requested three times.
class WTinyLfu : public ::testing::Test {
 protected:
  WTinyLfu() {
    for (int i = 0; i < 3; ++i) Range(*policy_, 0, 100);
  }
  int HeldOfTheFirst100() const {
    int held = 0;
    for (uint32_t object = 0; object < 100; ++object) held += policy_->Holds(object);
    return held;
  }
  const std::unique_ptr<ObjectPolicy> policy_ = MakeWTinyLfu(100);
};

TEST_F(WTinyLfu, AScanHasTheWindowOnly) {
  Range(*policy_, 1000, 1500);
  EXPECT_EQ(HeldOfTheFirst100(), 99);
  EXPECT_TRUE(policy_->Holds(1499));
}

TEST_F(WTinyLfu, WhatIsRequestedMoreOftenDisplacesWhatIsNot) {
  for (int i = 0; i < 4; ++i) policy_->Request(500, 1);
  policy_->Request(501, 1);
  policy_->Request(502, 1);
  EXPECT_TRUE(policy_->Holds(500));
  EXPECT_TRUE(policy_->Holds(502));
  EXPECT_FALSE(policy_->Holds(501));
  EXPECT_EQ(HeldOfTheFirst100(), 98);
}

TEST_F(WTinyLfu, FrequenciesAreForgottenInTime) {
  Range(*policy_, 1000, 4000);  // three halvings: nothing is left of three requests
  EXPECT_LT(HeldOfTheFirst100(), 99);
}

TEST_F(WTinyLfu, LargerThanTheWindowCompetesForItself) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(policy_->Request(500, 50));
  EXPECT_FALSE(policy_->Holds(500));
  EXPECT_EQ(HeldOfTheFirst100(), 100);
  EXPECT_FALSE(policy_->Request(500, 50));  // the fourth
  EXPECT_TRUE(policy_->Holds(500));
  EXPECT_EQ(HeldOfTheFirst100(), 50);
}

}  // namespace
}  // namespace smartcache

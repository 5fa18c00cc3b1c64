#include "reuse_features.hh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace smartcache {
namespace {

class ReuseFeaturesTest : public ::testing::Test {
 protected:
  std::map<std::string, float> Row(uint32_t object, double now, const ReuseFeatures::Beside& beside = {0, 0, 0}) {
    std::vector<float> row(ReuseFeatures::count());
    features_.Row(object, now, beside, row.data());
    std::map<std::string, float> named;
    for (size_t i = 0; i < row.size(); ++i) named[ReuseFeatures::Names()[i]] = row[i];
    EXPECT_EQ(named.size(), row.size());  // each name once
    return named;
  }

  ReuseFeatures features_{{0, 0, 1}};
};

TEST_F(ReuseFeaturesTest, ANewObjectHasNoGaps) {
  features_.Request(0, 700, 2.0);
  auto row = Row(0, 2.0);
  EXPECT_EQ(row["size"], 700);
  EXPECT_EQ(row["age"], 0);
  EXPECT_EQ(row["requests"], 1);
  EXPECT_EQ(row["lifetime"], 0);
  for (const char* name : {"gap_0", "gap_5", "gap_mean", "age_to_gap_mean", "age_to_gap_0", "group_gap"}) EXPECT_EQ(row[name], -1) << name;
  EXPECT_EQ(row["count_0"], 1);
}

TEST_F(ReuseFeaturesTest, GapsAreTheLastFirst) {
  for (const double now : {1.0, 2.0, 5.0}) features_.Request(0, 700, now);
  auto row = Row(0, 6.5);
  EXPECT_EQ(row["age"], 1.5f);
  EXPECT_EQ(row["lifetime"], 5.5f);
  EXPECT_EQ(row["gap_0"], 3.0f);
  EXPECT_EQ(row["gap_1"], 1.0f);
  EXPECT_EQ(row["gap_2"], -1.0f);
  EXPECT_EQ(row["gap_mean"], 2.0f);
  EXPECT_NEAR(row["age_to_gap_mean"], 0.75, 1e-5);
  EXPECT_NEAR(row["age_to_gap_0"], 0.5, 1e-5);
}

TEST_F(ReuseFeaturesTest, CountsDecayWithHalfLivesThatAreFourTimesApart) {
  for (const double now : {1.0, 2.0, 5.0}) features_.Request(0, 700, now);
  auto row = Row(0, 6.5);
  for (int i = 0; i < 6; ++i) {
    const double half = 32 / std::pow(4, i);
    const double expected = std::exp2(-5.5 / half) + std::exp2(-4.5 / half) + std::exp2(-1.5 / half);
    EXPECT_NEAR(row["count_" + std::to_string(i)], expected, 1e-5) << i;
  }
}

TEST_F(ReuseFeaturesTest, AGroupIsAllItsObjects) {
  features_.Request(0, 700, 1.0);
  features_.Request(1, 100, 2.0);
  features_.Request(0, 700, 4.0);
  features_.Request(2, 100, 4.5);
  auto row = Row(1, 5.0);
  EXPECT_EQ(row["group_age"], 1.0f);
  EXPECT_EQ(row["group_requests"], 3);
  EXPECT_EQ(row["group_requests_per_object"], 1.5f);
  EXPECT_EQ(row["group_gap"], 2.0f);
  EXPECT_NEAR(row["group_again_share"], 2.0 / 7, 1e-6);  // one of three, shrunk by four requests of which one is again
  EXPECT_NEAR(row["group_count_0"], std::exp2(-4.0 / 8) + std::exp2(-3.0 / 8) + std::exp2(-1.0 / 8), 1e-5);
  EXPECT_EQ(row["cohort_requests"], 4);
  EXPECT_EQ(row["after_cohort"], 1.0f);
  EXPECT_EQ(Row(2, 5.0)["group_requests"], 1);
}

TEST_F(ReuseFeaturesTest, AGroupIsReadFromItsFirstToItsLast) {
  features_.Request(0, 700, 1.0);
  auto row = Row(0, 1.5);
  EXPECT_EQ(row["front_ahead"], -1);  // none is behind the first
  EXPECT_EQ(row["position_share"], 1);
  features_.Request(1, 100, 2.0);
  features_.Request(0, 700, 4.0);  // from the beginning again
  row = Row(1, 4.5);
  EXPECT_EQ(row["front_ahead"], 1);
  EXPECT_EQ(row["front_still"], 0.5f);
  EXPECT_EQ(row["front_fronts"], 1);
  EXPECT_EQ(Row(0, 4.5)["position_share"], 0.5f);
}

TEST_F(ReuseFeaturesTest, KindsThatAreLeftOutAreUnknownAndTheOthersAsTheyWere) {
  ReuseFeatures some({0, 0, 1}, {"dataset", "shadows"});
  for (const double now : {1.0, 2.0, 5.0})
    for (ReuseFeatures* each : {&features_, &some}) each->Request(static_cast<uint32_t>(now) % 2, 700, now);
  std::vector<float> all(ReuseFeatures::count()), left(ReuseFeatures::count());
  features_.Row(1, 6.0, {0b101, 0.75, 0.5}, all.data());
  some.Row(1, 6.0, {0b101, 0.75, 0.5}, left.data());
  size_t unknown = 0;
  ASSERT_EQ(ReuseFeatures::Kinds().size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& kind = ReuseFeatures::Kinds()[i];
    const bool is_out = kind == "dataset" || kind == "shadows";
    EXPECT_EQ(left[i], is_out ? -1.0f : all[i]) << ReuseFeatures::Names()[i];
    unknown += is_out ? 1 : 0;
  }
  EXPECT_EQ(unknown, 13 + 1 + Shadows::kRules);
  EXPECT_THROW(ReuseFeatures({0}, {"dataset", "tokens"}), std::invalid_argument);
}

TEST_F(ReuseFeaturesTest, WhatTheRestOfTheCacheKnows) {
  features_.Request(0, 700, 1.0);
  auto row = Row(0, 1.0, {0b100000101, 0.75, 0.5});
  EXPECT_EQ(row["vote"], 0.75f);
  EXPECT_EQ(row["fill"], 0.5f);
  for (size_t i = 0; i < Shadows::kRules; ++i) EXPECT_EQ(row["held_by_" + std::to_string(i)], i == 0 || i == 2 || i == 8 ? 1 : 0) << i;
}

}  // namespace
}  // namespace smartcache

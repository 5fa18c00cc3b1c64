#include "smartcache/ageing.hh"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace smartcache {
namespace {

constexpr double kEdges[] = {3600, 86400, 604800};
constexpr double kHour = 3600, kDay = 86400;

TEST(Ageing, AFreshPredictionIsItself) {
  const float outputs[] = {0.4f, 0.3f, 0.2f, 0.1f};
  EXPECT_NEAR(OpenWithin(kEdges, outputs, 3, 0, kHour), 0.4, 1e-6);
  EXPECT_NEAR(OpenWithin(kEdges, outputs, 3, 0, kDay), 0.7, 1e-6);
  EXPECT_NEAR(OpenWithin(kEdges, outputs, 3, 0, 1800), 0.2, 1e-6);
  EXPECT_NEAR(OpenWithin(kEdges, outputs, 3, -5, kHour), 0.4, 1e-6);
}

TEST(Ageing, WhatDidNotHappenIsNoLongerExpected) {
  const float outputs[] = {0.8f, 0.1f, 0.0f, 0.1f};
  // After an hour without it: 0.1 of the 0.2 that are left, spread over the rest of the day.
  EXPECT_NEAR(OpenWithin(kEdges, outputs, 3, kHour, kDay), 0.5, 1e-6);
  EXPECT_NEAR(OpenWithin(kEdges, outputs, 3, kHour, kHour), 0.5 * kHour / (kDay - kHour), 1e-6);
  // After a day only "later or never" is left.
  EXPECT_EQ(OpenWithin(kEdges, outputs, 3, kDay, kDay), 0.0);
  EXPECT_EQ(OpenWithin(kEdges, outputs, 3, 100 * kDay, kDay), 0.0);
}

TEST(Ageing, ADayLaterTheOtherFileIsTheBetterOne) {
  const float soon_or_never[] = {0.6f, 0.0f, 0.0f, 0.4f}, within_the_week[] = {0.0f, 0.1f, 0.5f, 0.4f};
  const auto value = [](const float* outputs, double age) { return OpenWithin(kEdges, outputs, 3, age, kDay); };
  EXPECT_GT(value(soon_or_never, 0), value(within_the_week, 0));
  EXPECT_LT(value(soon_or_never, 2 * kHour), value(within_the_week, 2 * kHour));
}

// Against a simulation: draws from the distribution that survived to the age.
TEST(Ageing, AgreesWithSurvivorsThatWereDrawn) {
  std::mt19937_64 random(3);
  const float outputs[] = {0.2f, 0.3f, 0.3f, 0.2f};
  for (const double age : {0.0, 1000.0, 10000.0, 200000.0}) {
    int survived = 0, opened = 0;
    for (int i = 0; i < 400000; ++i) {
      std::uniform_real_distribution<double> uniform;
      const double pick = uniform(random);
      const double gap = pick < 0.2   ? uniform(random) * kEdges[0]
                         : pick < 0.5 ? kEdges[0] + uniform(random) * (kEdges[1] - kEdges[0])
                         : pick < 0.8 ? kEdges[1] + uniform(random) * (kEdges[2] - kEdges[1])
                                      : std::numeric_limits<double>::infinity();
      if (gap <= age) continue;
      ++survived;
      if (gap <= age + kDay) ++opened;
    }
    EXPECT_NEAR(OpenWithin(kEdges, outputs, 3, age, kDay), static_cast<double>(opened) / survived, 0.005) << age;
  }
}

TEST(Ageing, TheUnscoredBeginAtTheBaseRateAndFallAsLruHasIt) {
  EXPECT_DOUBLE_EQ(UnscoredOpenWithin(0.3, 0, kDay), 0.3);
  double before = 0.3;
  for (double age = kHour; age < 1000 * kDay; age *= 2) {
    const double now = UnscoredOpenWithin(0.3, age, kDay);
    EXPECT_LT(now, before);
    EXPECT_GT(now, 0);
    before = now;
  }
  EXPECT_GT(UnscoredOpenWithin(0.6, kDay, kDay), UnscoredOpenWithin(0.3, kDay, kDay));
}

TEST(Ageing, AnyNumbersGiveAProbability) {
  const double odd[] = {0, -1, 1e300, std::numeric_limits<double>::infinity(), std::nan("")};
  const float outputs[] = {0.5f, std::nanf(""), 3.0f, -1.0f};
  for (const double age : odd) {
    for (const double horizon : {1.0, kDay, 1e300}) {
      for (const double value :
           {OpenWithin(kEdges, outputs, 3, age, horizon), UnscoredOpenWithin(0.5, age, horizon), UnscoredOpenWithin(age, 5, horizon)}) {
        EXPECT_GE(value, 0.0);
        EXPECT_LE(value, 1.0);
      }
    }
  }
}

}  // namespace
}  // namespace smartcache

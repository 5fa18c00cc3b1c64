#include "read_fronts.hh"

#include <gtest/gtest.h>

namespace smartcache {
namespace {

TEST(ReadFronts, NothingIsReadYet) {
  const ReadFronts::Coming coming = ReadFronts().Before(5, 1.0);
  EXPECT_EQ(coming.ahead, -1);
  EXPECT_EQ(coming.due, -1);
  EXPECT_EQ(coming.fronts, 0);
}

TEST(ReadFronts, AFrontMovesFromFileToFile) {
  ReadFronts fronts;
  fronts.Request(0, 1.0);
  EXPECT_EQ(fronts.Before(4, 1.5).pace, -1);
  EXPECT_EQ(fronts.Before(4, 1.5).due, -1);
  fronts.Request(1, 1.5);
  fronts.Request(3, 2.5);  // one is left out
  const ReadFronts::Coming coming = fronts.Before(7, 3.0);
  EXPECT_EQ(coming.ahead, 4);
  EXPECT_EQ(coming.still, 0.5f);
  EXPECT_EQ(coming.pace, 0.5f);
  EXPECT_EQ(coming.due, 1.5f);
  EXPECT_EQ(coming.moved, 2);
  EXPECT_EQ(coming.fronts, 1);
  EXPECT_EQ(fronts.Before(3, 3.0).ahead, -1);  // it has been there
}

TEST(ReadFronts, TheSameFileAgainIsNoStep) {
  ReadFronts fronts;
  for (const double now : {1.0, 2.0, 3.0}) fronts.Request(0, now);
  const ReadFronts::Coming coming = fronts.Before(1, 3.5);
  EXPECT_EQ(coming.moved, 0);
  EXPECT_EQ(coming.still, 0.5f);
}

TEST(ReadFronts, SeveralReadAtTheSameTimeAndTheNearestCounts) {
  ReadFronts fronts;
  for (uint32_t i = 0; i < 40; ++i) {
    fronts.Request(i, i);
    if (i >= 20) fronts.Request(i - 20, i);
  }
  EXPECT_EQ(fronts.Before(25, 40).fronts, 1);
  EXPECT_EQ(fronts.Before(25, 40).ahead, 6);
  EXPECT_EQ(fronts.Before(50, 40).fronts, 2);
  EXPECT_EQ(fronts.Before(50, 40).ahead, 11);
}

TEST(ReadFronts, WhatIsFarAheadIsAnotherFrontAndTheStillestMakesRoom) {
  ReadFronts fronts;
  for (uint32_t i = 0; i <= ReadFronts::kFronts; ++i) fronts.Request(100 * i, i);
  EXPECT_EQ(fronts.Before(99, 10).fronts, 0);  // the first one is forgotten
  EXPECT_EQ(fronts.Before(1000, 10).fronts, ReadFronts::kFronts);
  fronts.Request(100 + ReadFronts::kReach, 11);
  EXPECT_EQ(fronts.Before(1000, 11).fronts, ReadFronts::kFronts);
  EXPECT_EQ(fronts.Before(110, 11).moved, 1);
}

}  // namespace
}  // namespace smartcache

#include "reuse_samples.hh"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace smartcache {
namespace {

// One feature: the row's number.
void Add(ReuseSamples* samples, uint32_t object, double now, float number) { *samples->Add(object, now) = number; }

std::map<float, int> All(const ReuseSamples& samples, double now, double horizon) {
  const LabelledRows labelled = samples.Labelled(now, horizon, 1000, 1);
  std::map<float, int> result;
  for (size_t i = 0; i < labelled.again.size(); ++i) result[labelled.rows[i]] = labelled.again[i];
  return result;
}

using Rows = std::map<float, int>;

TEST(ReuseSamples, ALabelIsAFactOnceTheHorizonHasPassed) {
  ReuseSamples samples(10, 1, 3);
  Add(&samples, 0, 1.0, 1);
  Add(&samples, 1, 2.0, 2);
  samples.Request(0, 2.5);
  Add(&samples, 0, 2.5, 3);
  EXPECT_EQ(All(samples, 2.5, 2.0), Rows{});
  EXPECT_EQ(All(samples, 3.0, 2.0), (Rows{{1, 1}}));
  samples.Request(1, 4.5);
  EXPECT_EQ(All(samples, 4.5, 2.0), (Rows{{1, 1}, {2, 0}, {3, 0}}));  // the second came too late, the third not at all
  EXPECT_EQ(All(samples, 4.5, 2.5), (Rows{{1, 1}, {2, 1}}));          // and in time for another horizon
}

TEST(ReuseSamples, ARequestAnswersAllThatWait) {
  ReuseSamples samples(10, 1, 1);
  for (int i = 0; i < 4; ++i) Add(&samples, 0, i, static_cast<float>(i));
  samples.Request(0, 4.0);
  EXPECT_EQ(All(samples, 9.0, 2.5), (Rows{{0, 0}, {1, 0}, {2, 1}, {3, 1}}));
}

TEST(ReuseSamples, TheOldestAreOverwritten) {
  ReuseSamples samples(3, 1, 2);
  for (int i = 0; i < 5; ++i) Add(&samples, static_cast<uint32_t>(i % 2), i, static_cast<float>(i));
  samples.Request(0, 5.0);
  EXPECT_EQ(All(samples, 9.0, 4.0), (Rows{{2, 1}, {3, 0}, {4, 1}}));
}

// Against a list that keeps all.
TEST(ReuseSamples, AsByDefinition) {
  constexpr size_t kRing = 50, kObjects = 20;
  ReuseSamples samples(kRing, 1, kObjects);
  struct Known {
    uint32_t object;
    double at;
  };
  std::vector<Known> rows;
  std::vector<Known> requests;
  std::mt19937_64 random(1);
  for (int step = 0; step < 2000; ++step) {
    const auto object = static_cast<uint32_t>(random() % kObjects);
    if (random() % 3 == 0) {
      samples.Request(object, step);
      requests.push_back({object, static_cast<double>(step)});
    } else {
      Add(&samples, object, step, static_cast<float>(rows.size()));
      rows.push_back({object, static_cast<double>(step)});
    }
  }
  Rows expected;
  for (size_t i = rows.size() - kRing; i < rows.size(); ++i) {
    if (rows[i].at + 12 > 1999) continue;
    int again = 0;
    for (const Known& each : requests)
      if (each.object == rows[i].object && each.at > rows[i].at && each.at - rows[i].at <= 12) again = 1;
    expected[static_cast<float>(i)] = again;
  }
  EXPECT_EQ(All(samples, 1999, 12), expected);
}

TEST(ReuseSamples, SomeOfThemAreDrawnEachAsLikely) {
  ReuseSamples samples(100, 1, 1);
  for (int i = 0; i < 100; ++i) Add(&samples, 0, i, static_cast<float>(i));
  std::map<float, int> drawn;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const LabelledRows some = samples.Labelled(200, 1, 10, seed);
    ASSERT_EQ(some.again.size(), 10u);
    for (const float each : some.rows) ++drawn[each];
  }
  ASSERT_EQ(drawn.size(), 100u);
  for (const auto& [row, count] : drawn) EXPECT_NEAR(count, 100, 50) << row;
  EXPECT_EQ(samples.Labelled(200, 1, 10, 7).rows, samples.Labelled(200, 1, 10, 7).rows);
}

}  // namespace
}  // namespace smartcache

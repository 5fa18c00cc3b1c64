#include "smartcache/worst.hh"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace smartcache {
namespace {

std::vector<std::string> Names(const std::vector<Candidate>& candidates) {
  std::vector<std::string> names;
  for (const Candidate& each : candidates) names.push_back(each.lfn);
  return names;
}

TEST(Worst, KeepsTheLeastThatFreesEnough) {
  Worst worst(100, 1000);
  worst.Show("/good", 60, 0.9, 1);
  worst.Show("/bad", 60, 0.1, 1);
  worst.Show("/worst", 60, 0.0, 1);
  EXPECT_EQ(Names(worst.Take()), (std::vector<std::string>{"/worst", "/bad"}));
  EXPECT_EQ(worst.bytes(), 0);
}

TEST(Worst, ALargeBadFileReplacesSmallerBetterOnes) {
  Worst worst(100, 1000);
  for (int i = 0; i < 5; ++i) worst.Show("/" + std::to_string(i), 25, 0.5, i);
  worst.Show("/large", 200, 0.1, 1);
  EXPECT_EQ(Names(worst.Take()), std::vector<std::string>{"/large"});
}

TEST(Worst, OfEqualValueTheOneAccessedLongerAgoGoesFirst) {
  Worst worst(100, 1000);
  worst.Show("/new", 60, 0.0, 30);
  worst.Show("/old", 60, 0.0, 10);
  worst.Show("/middle", 60, 0.0, 20);
  EXPECT_EQ(Names(worst.Take()), (std::vector<std::string>{"/old", "/middle"}));
}

TEST(Worst, WhereAllIsNotEnoughAllOfItIsKeptUpToTheMost) {
  Worst worst(1000000, 3);
  for (int i = 0; i < 5; ++i) worst.Show("/" + std::to_string(i), 10, i, 1);
  EXPECT_EQ(Names(worst.Take()), (std::vector<std::string>{"/0", "/1", "/2"}));
  Worst nothing(0, 3);
  nothing.Show("/a", 10, 0, 1);
  EXPECT_EQ(nothing.size(), 0u);
}

// Against sorting all of them.
TEST(Worst, AgreesWithSortingAll) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<Candidate> all;
    for (int i = 0; i < 100; ++i)
      all.push_back({static_cast<double>(random() % 20), static_cast<int64_t>(random() % 1000000), static_cast<int64_t>(random() % 50),
                     "/" + std::to_string(i)});
    const auto needed = static_cast<int64_t>(random() % 1000) + 1;
    Worst worst(needed, 1000);
    for (const Candidate& each : all) worst.Show(each.lfn, each.bytes, each.value, each.last_us);
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.value != b.value ? a.value < b.value : a.last_us < b.last_us; });
    int64_t bytes = 0;
    size_t n = 0;
    while (n < all.size() && bytes < needed) bytes += all[n++].bytes;
    const auto taken = worst.Take();
    int64_t freed = 0;
    for (const Candidate& each : taken) freed += each.bytes;
    EXPECT_GE(freed, std::min(needed, bytes));
    ASSERT_LE(taken.size(), n);
    ASSERT_GE(taken.size() + 10, n);  // a file of no bytes may go either way
    for (size_t i = 0; i < taken.size(); ++i) EXPECT_LE(taken[i].value, all[n - 1].value);
  }
}

}  // namespace
}  // namespace smartcache

#include "learned.hh"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "policies.hh"

namespace smartcache {
namespace {

constexpr int64_t kSize = 10;

size_t Feature(const std::string& name) {
  const auto& names = ReuseFeatures::Names();
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

// The score is a feature, or its opposite.
class ByFeature : public ReuseModel {
 public:
  ByFeature(const std::string& name, double factor) : feature_(Feature(name)), factor_(factor) {}
  double Score(const float* row) const override { return factor_ * static_cast<double>(row[feature_]); }

 private:
  const size_t feature_;
  const double factor_;
};

struct Requests {
  std::vector<uint32_t> objects;
  std::vector<int64_t> sizes;
};

Requests Drawn(uint64_t seed, size_t n, uint32_t objects) {
  std::mt19937_64 random(seed);
  Requests all;
  for (size_t i = 0; i < n; ++i) {
    all.objects.push_back(static_cast<uint32_t>(std::min(random() % objects, random() % objects)));
    all.sizes.push_back(1 + all.objects.back() * 7 % 50 + (random() % 50 == 0 ? 9 : 0));
  }
  return all;
}

// With the rules beside it, and the counters of its own.
struct Learning {
  Learning(int64_t capacity, std::vector<uint32_t> groups, const LearnedOptions& options = {})
      : rules(capacity), cache(capacity, std::move(groups), &rules, options) {}
  bool Request(uint32_t object, int64_t size) {
    std::vector<uint32_t> changed;
    rules.Request(object, size, &changed);
    return cache.Request(object, size);
  }
  Shadows rules;
  LearnedCache cache;
};

TEST(Learned, WhatTheModelThinksLeastOfGoesAndANewOneThatIsWorsePassesBy) {
  Learning it(5 * kSize, std::vector<uint32_t>(20, 0));
  it.cache.Use(std::make_unique<ByFeature>("requests", 1));
  for (const uint32_t object : {0, 1, 2, 3, 4, 0, 1, 3, 4}) it.Request(object, kSize);
  EXPECT_FALSE(it.Request(5, kSize));  // once, as object 2, and no worse: 2 goes
  EXPECT_TRUE(it.cache.Holds(5));
  EXPECT_FALSE(it.cache.Holds(2));
  EXPECT_TRUE(it.Request(5, kSize));
  EXPECT_FALSE(it.Request(6, kSize));
  EXPECT_FALSE(it.cache.Holds(6));  // all others twice
  EXPECT_EQ(it.cache.counters().written_bytes, 6 * kSize);
  EXPECT_EQ(it.cache.counters().objects_deleted, 1);
}

TEST(Learned, CandidatesAreJudgedAsTheyHaveAged) {
  Learning it(5 * kSize, std::vector<uint32_t>(20, 0));
  it.cache.Use(std::make_unique<ByFeature>("age", -1));  // LRU
  for (const uint32_t object : {0, 1, 2, 3, 4, 0, 5}) it.Request(object, kSize);
  EXPECT_FALSE(it.cache.Holds(1));
  EXPECT_TRUE(it.cache.Holds(0));
}

TEST(Learned, ByAgeItIsNearlyLru) {
  const Requests all = Drawn(1, 5000, 60);
  Learning it(300, std::vector<uint32_t>(60, 0));
  it.cache.Use(std::make_unique<ByFeature>("age", -1));
  const auto lru = MakePolicy("lru", 300);
  size_t different = 0;
  for (size_t i = 0; i < all.objects.size(); ++i)
    different += it.Request(all.objects[i], all.sizes[i]) != lru->Request(all.objects[i], all.sizes[i]) ? 1 : 0;
  EXPECT_LE(different, all.objects.size() / 20);  // the candidates are drawn at random: not all of the few stored are among them
}

TEST(Learned, CountsAddUp) {
  const Requests all = Drawn(2, 20000, 400);
  std::vector<uint32_t> groups(400);
  for (uint32_t i = 0; i < 400; ++i) groups[i] = i % 7;
  Learning it(1500, groups);
  std::vector<uint32_t> removed;
  it.cache.TellRemoved(&removed);
  std::set<uint32_t> stored;
  std::vector<int64_t> size(400);
  int64_t hits = 0;
  for (size_t i = 0; i < all.objects.size(); ++i) {
    const uint32_t object = all.objects[i];
    if (i == 6000) it.cache.Use(std::make_unique<ByFeature>("count_2", 1));
    if (i == 9000) it.cache.Use(std::make_unique<ByFeature>("age_to_gap_mean", -1));
    if (i == 15000) it.cache.Use(nullptr);
    removed.clear();
    const bool hit = it.Request(object, all.sizes[i]);
    ASSERT_EQ(hit, stored.count(object) != 0) << i;
    hits += hit ? 1 : 0;
    size[object] = all.sizes[i];
    for (const uint32_t each : removed) ASSERT_EQ(stored.erase(each), 1u) << i;
    if (it.cache.Holds(object)) stored.insert(object);
    int64_t used = 0;
    for (const uint32_t each : stored) {
      ASSERT_TRUE(it.cache.Holds(each));
      used += size[each];
    }
    ASSERT_LE(used, 1500);
  }
  const PolicyCounters counted = it.cache.counters();
  EXPECT_EQ(counted.requests, 20000);
  EXPECT_EQ(counted.hits, hits);
  EXPECT_GT(counted.objects_deleted, 100);
  EXPECT_GT(it.cache.horizon(), 0.1);
  EXPECT_GT(it.cache.Labelled(1000, 1).again.size(), 900u);
}

TEST(Learned, TheSameRequestsGiveTheSame) {
  const Requests all = Drawn(4, 8000, 200);
  const auto run = [&](uint64_t seed) {
    LearnedOptions options;
    options.seed = seed;
    Learning it(900, std::vector<uint32_t>(200, 0), options);
    it.cache.Use(std::make_unique<ByFeature>("count_3", 1));
    for (size_t i = 0; i < all.objects.size(); ++i) it.Request(all.objects[i], all.sizes[i]);
    return std::make_pair(it.cache.counters().hit_bytes, it.cache.Labelled(500, 3).rows);
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace smartcache

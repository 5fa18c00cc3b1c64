#include "policies/policies.hh"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>

#include "policies/testing/requests.hh"

namespace smartcache {
namespace {

using testing::RandomRequests;
using testing::Requests;

Trace View(const Requests& requests) { return {requests.objects.data(), requests.sizes.data(), requests.objects.size()}; }

bool Equal(const PolicyCounters& a, const PolicyCounters& b) {
  return a.requests == b.requests && a.hits == b.hits && a.bytes == b.bytes && a.hit_bytes == b.hit_bytes &&
         a.written_bytes == b.written_bytes && a.deleted_bytes == b.deleted_bytes && a.objects_deleted == b.objects_deleted;
}

std::vector<std::string> AllWithAdmission() {
  std::vector<std::string> names = PolicyNames();
  for (const std::string& name : PolicyNames())
    if (name != "belady") names.push_back("uses2+" + name);
  return names;
}

// What a rule is by its definition, found by looking at everything: the stored object of the lowest rank goes.
struct Stored {
  int64_t size;
  int64_t uses;
  int64_t last;
  int64_t next;
};
using Rank = std::pair<int64_t, int64_t> (*)(const Stored&);

PolicyCounters Naive(const Requests& requests, int64_t capacity, Rank rank) {
  std::map<uint32_t, Stored> cache;
  PolicyCounters counters;
  const auto n = static_cast<int64_t>(requests.objects.size());
  const auto used = [&cache] {
    int64_t sum = 0;
    for (const auto& each : cache) sum += each.second.size;
    return sum;
  };
  const auto evict = [&] {
    const auto lowest =
        std::min_element(cache.begin(), cache.end(), [&](const auto& a, const auto& b) { return rank(a.second) < rank(b.second); });
    counters.deleted_bytes += lowest->second.size;
    ++counters.objects_deleted;
    cache.erase(lowest);
  };
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t object = requests.objects[i];
    const int64_t size = requests.sizes[i];
    int64_t next = i + 1;
    while (next < n && requests.objects[next] != object) ++next;
    ++counters.requests;
    counters.bytes += size;
    const auto found = cache.find(object);
    if (found != cache.end()) {
      ++counters.hits;
      counters.hit_bytes += size;
      found->second = {size, found->second.uses + 1, i, next};
      while (used() > capacity) evict();
    } else if (size <= capacity) {
      while (used() + size > capacity) evict();
      cache[object] = {size, 1, i, next};
      counters.written_bytes += size;
    }
  }
  return counters;
}

TEST(Policies, LruAndLfuAgreeWithTheirDefinitionsAlsoWhereSizesChange) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Requests requests = RandomRequests(seed, 600, 40, seed % 2);
    const auto capacity = static_cast<int64_t>(1 + seed * 7);
    const auto lru = Naive(requests, capacity, [](const Stored& s) { return std::make_pair(s.last, int64_t{0}); });
    EXPECT_TRUE(Equal(SimulateObjects("lru", View(requests), capacity, 1)[0], lru)) << seed;
    const auto lfu = Naive(requests, capacity, [](const Stored& s) { return std::make_pair(s.uses, s.last); });
    EXPECT_TRUE(Equal(SimulateObjects("lfu", View(requests), capacity, 1)[0], lfu)) << seed;
  }
}

// Which of those goes first that are never requested again makes no difference to hits, but to what is deleted when.
TEST(Policies, BeladyAgreesWithItsDefinition) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Requests requests = RandomRequests(seed, 600, 40, false);
    const auto capacity = static_cast<int64_t>(1 + seed * 7);
    const auto naive = Naive(requests, capacity, [](const Stored& s) { return std::make_pair(-s.next, int64_t{0}); });
    const auto ours = SimulateObjects("belady", View(requests), capacity, 1)[0];
    EXPECT_EQ(ours.hits, naive.hits) << seed;
    EXPECT_EQ(ours.hit_bytes, naive.hit_bytes) << seed;
    EXPECT_EQ(ours.written_bytes, naive.written_bytes) << seed;
  }
}

// What is held is what was requested and hit, never more than the capacity, and what was written is held or deleted.
TEST(Policies, EachKeepsItsBooks) {
  for (const std::string& name : AllWithAdmission())
    for (uint64_t seed = 0; seed < 24; ++seed) {
      const bool change = seed % 2;
      const Requests requests = RandomRequests(seed, 2000, seed % 3 ? 60 : 400, change);
      const Trace trace = View(requests);
      const auto capacity = static_cast<int64_t>(seed < 4 ? 1 + seed * 9 : seed * 50);
      const auto policy = MakePolicy(name, capacity, &trace);
      std::map<uint32_t, int64_t> size_of;
      int64_t bytes = 0, hits = 0;
      for (size_t i = 0; i < trace.n; ++i) {
        const uint32_t object = trace.objects[i];
        const bool held = policy->Holds(object);
        ASSERT_EQ(policy->Request(object, trace.sizes[i]), held) << name << " seed " << seed << " request " << i;
        if (!held && trace.sizes[i] > capacity) {
          ASSERT_FALSE(policy->Holds(object)) << name;
        }
        size_of[object] = trace.sizes[i];
        bytes += trace.sizes[i];
        hits += held;
        int64_t sum = 0;
        for (const auto& [each, size] : size_of)
          if (policy->Holds(each)) sum += size;
        const PolicyCounters counters = policy->counters();
        ASSERT_LE(sum, capacity) << name << " seed " << seed << " request " << i;
        if (!change) {
          ASSERT_EQ(counters.written_bytes - counters.deleted_bytes, sum) << name << " seed " << seed << " request " << i;
        }
      }
      const PolicyCounters counters = policy->counters();
      EXPECT_EQ(counters.requests, static_cast<int64_t>(trace.n));
      EXPECT_EQ(counters.bytes, bytes);
      EXPECT_EQ(counters.hits, hits);
      EXPECT_LE(counters.written_bytes + counters.hit_bytes, bytes);
      EXPECT_TRUE(Equal(SimulateObjects(name, trace, capacity, 1)[0], counters)) << name << ": a replay is the same requests";
    }
}

TEST(Policies, WindowsSumToTheWholeAndAreOfEqualNumbers) {
  const Requests requests = RandomRequests(1, 1003, 100, true);
  for (const std::string& name : AllWithAdmission()) {
    const auto whole = SimulateObjects(name, View(requests), 300, 1)[0];
    const auto windows = SimulateObjects(name, View(requests), 300, 10);
    ASSERT_EQ(windows.size(), 10u);
    PolicyCounters sum;
    for (const PolicyCounters& each : windows) {
      EXPECT_GE(each.requests, 100);
      EXPECT_LE(each.requests, 101);
      sum.requests += each.requests;
      sum.hits += each.hits;
      sum.bytes += each.bytes;
      sum.hit_bytes += each.hit_bytes;
      sum.written_bytes += each.written_bytes;
      sum.deleted_bytes += each.deleted_bytes;
      sum.objects_deleted += each.objects_deleted;
    }
    EXPECT_TRUE(Equal(sum, whole)) << name;
  }
}

TEST(Policies, WhatFitsWholeIsMissedOnce) {
  const Requests requests = RandomRequests(2, 3000, 200, false);
  std::map<uint32_t, int64_t> size_of;
  for (size_t i = 0; i < requests.objects.size(); ++i) size_of[requests.objects[i]] = requests.sizes[i];
  for (const std::string& name : PolicyNames()) {
    if (name == "scdl") continue;  // tries not to store
    const auto counters = SimulateObjects(name, View(requests), 1000000, 1)[0];
    EXPECT_EQ(counters.hits, static_cast<int64_t>(requests.objects.size() - size_of.size())) << name;
    EXPECT_EQ(counters.objects_deleted, 0) << name;
  }
}

TEST(Policies, AnEmptyTraceIsNothing) {
  for (const std::string& name : AllWithAdmission()) EXPECT_EQ(SimulateObjects(name, {nullptr, nullptr, 0}, 10, 1)[0].requests, 0) << name;
}

std::string WhatIsWrong(std::string_view name, const Requests& requests, int64_t capacity, int64_t windows) {
  try {
    SimulateObjects(name, View(requests), capacity, windows);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Policies, ErrorsNameArgumentValueAndWayOut) {
  const Requests good{{0, 1}, {5, 5}};
  EXPECT_EQ(WhatIsWrong("lru", good, 10, 1), "nothing");
  EXPECT_NE(WhatIsWrong("s3fifo", good, 10, 1).find("did you mean fifo, s3-fifo?"), std::string::npos);
  EXPECT_NE(WhatIsWrong("uses2+siev", good, 10, 1).find("did you mean sieve?"), std::string::npos);
  EXPECT_EQ(WhatIsWrong("uses1+lru", good, 10, 1).find("policy: "), 0u);
  EXPECT_EQ(WhatIsWrong("uses2+", good, 10, 1).find("policy: "), 0u);
  EXPECT_EQ(WhatIsWrong("uses2+belady", good, 10, 1).find("policy: belady takes no admission"), 0u);
  EXPECT_EQ(WhatIsWrong("lru", good, 0, 1), "capacity: must be above 0 bytes, is 0; give the size of the cache");
  EXPECT_EQ(WhatIsWrong("lru", good, 10, 0).find("windows: "), 0u);
  EXPECT_EQ(WhatIsWrong("lru", good, 10, 3).find("windows: "), 0u);
  EXPECT_EQ(WhatIsWrong("lru", {{0, 2}, {5, 5}}, 10, 1).find("objects[1]: "), 0u);
  EXPECT_EQ(WhatIsWrong("lru", {{0, 1}, {5, -1}}, 10, 1).find("sizes[1]: must not be negative, is -1"), 0u);
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(WhatIsWrong("lru", {{0, 1}, {kHuge, 1}}, 10, 1).find("sizes: must sum to less than 2^63"), 0u);
  for (const std::string& name : PolicyNames()) EXPECT_EQ(WhatIsWrong(name, {{0, 0}, {kHuge - 1, 1}}, kHuge, 1), "nothing") << name;
}

}  // namespace
}  // namespace smartcache

#include "portfolio.hh"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>

#include "policies.hh"

namespace smartcache {
namespace {

const std::vector<std::string> kExperts = {"lru", "s3-fifo", "lirs", "arc", "lfu-da", "hyperbolic", "slru", "uses2+lirs", "uses2+slru"};

struct Requests {
  std::vector<uint32_t> objects;
  std::vector<int64_t> sizes;
};

// Popularity that moves, objects that come once, and a scan now and then; a size of its own for each object, which changes where asked.
Requests Drawn(uint64_t seed, size_t n, bool sizes_change = false) {
  std::mt19937_64 random(seed);
  Requests all;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t kind = random() % 10;
    const auto object = static_cast<uint32_t>(kind < 6   ? (random() % 40) * (random() % 40) / 40 + i / 1000 * 10  // popular
                                              : kind < 8 ? 200 + i % 150                                           // a scan
                                                         : (400 + i) % n);                                         // once
    all.objects.push_back(object);
    all.sizes.push_back(1 + object * 7 % 50 + (sizes_change && random() % 50 == 0 ? 9 : 0));
  }
  return all;
}

// The same rule, by its definition: who holds what is asked of each expert, and every stored object is looked at for each victim.
class ByDefinition {
 public:
  explicit ByDefinition(int64_t capacity) : capacity_(capacity) {
    for (const std::string& name : kExperts) experts_.push_back(MakePolicy(name, capacity));
  }

  bool Request(uint32_t object, int64_t size) {
    const double decay = std::exp(-static_cast<double>(size) / (10.0 * static_cast<double>(capacity_)));
    ++requests_;
    for (size_t e = 0; e < experts_.size(); ++e) {
      const bool hit = experts_[e]->Request(object, size);
      losses_[e] = losses_[e] * decay + Loss(size, hit, experts_[e]->Holds(object));
      if (e == 0 && !hit) lru_missed_ += size;
    }
    if (requests_ % 64 == 0) Weigh();
    const bool hit = stored_.count(object) != 0;
    if (!hit) missed_ += size;
    Store(object, size);
    own_ = own_ * decay + Loss(size, hit, stored_.count(object) != 0);
    const auto lru = static_cast<double>(lru_missed_), excess = static_cast<double>(missed_) - lru;
    double expected = 0;
    for (size_t e = 0; e < experts_.size(); ++e) expected += weights_[e] * losses_[e];
    guarded_ = guarded_ ? excess > 0.0025 * lru && expected > 0.98 * losses_[0]
                        : excess > 0.02 * lru + 0.01 * static_cast<double>(capacity_) && own_ > losses_[0];
    was_guarded_ += guarded_;
    return hit;
  }

  int64_t used() const {
    int64_t sum = 0;
    for (const auto& each : stored_) sum += each.second.size;
    return sum;
  }
  int was_guarded() const { return was_guarded_; }

 private:
  struct Copy {
    int64_t size;
    int64_t at;
  };

  static double Loss(int64_t size, bool hit, bool held) { return hit ? 0.0 : static_cast<double>(size) * (held ? 1.03 : 1.0); }

  void Weigh() {
    std::array<double, 9> counted = losses_;
    counted[0] *= 1 - 0.01;
    const double least = *std::min_element(counted.begin(), counted.end());
    if (least <= 0) return;
    double sum = 0;
    for (size_t e = 0; e < experts_.size(); ++e) sum += weights_[e] = std::exp(-300.0 * (counted[e] - least) / least);
    for (double& each : weights_) each /= sum;
  }

  // Added from the highest expert down, so that the sums are the same to the last bit.
  double Vote(uint32_t object) const {
    double vote = 0;
    for (size_t e = experts_.size(); e-- > 0;)
      if (experts_[e]->Holds(object)) vote += weights_[e];
    return vote;
  }

  void Store(uint32_t object, int64_t size) {
    const bool hit = stored_.erase(object) != 0;
    if (!hit && size > capacity_) return;
    std::map<uint32_t, Copy> left = stored_;
    if (hit) left[object] = {size, requests_};
    while (Sum(left) > capacity_ - (hit ? 0 : size)) {
      uint32_t victim = left.begin()->first;
      for (const auto& [each, copy] : left) {
        const double its = guarded_ ? 0 : Vote(each), least = guarded_ ? 0 : Vote(victim);
        if (its < least || (its == least && copy.at < left[victim].at)) victim = each;
      }
      if (!hit && !guarded_ && Vote(victim) > Vote(object)) return;
      left.erase(victim);
    }
    stored_ = left;
    if (!hit) stored_[object] = {size, requests_};
  }

  static int64_t Sum(const std::map<uint32_t, Copy>& of) {
    int64_t sum = 0;
    for (const auto& each : of) sum += each.second.size;
    return sum;
  }

  const int64_t capacity_;
  std::vector<std::unique_ptr<ObjectPolicy>> experts_;
  std::array<double, 9> losses_{}, weights_ = [] {
    std::array<double, 9> equal;
    equal.fill(1.0 / 9);
    return equal;
  }();
  std::map<uint32_t, Copy> stored_;
  int64_t requests_ = 0, missed_ = 0, lru_missed_ = 0;
  double own_ = 0;
  bool guarded_ = false;
  int was_guarded_ = 0;
};

TEST(Portfolio, IsWhatItsDefinitionSays) {
  int guarded = 0;
  for (const uint64_t seed : {1, 2, 12, 17, 21, 22}) {
    const Requests all = Drawn(seed, 4000, seed % 2 == 0);
    const int64_t capacity = 150 + 100 * static_cast<int64_t>(seed % 10);
    const auto portfolio = MakePolicy("portfolio", capacity);
    ByDefinition reference(capacity);
    for (size_t i = 0; i < all.objects.size(); ++i)
      ASSERT_EQ(portfolio->Request(all.objects[i], all.sizes[i]), reference.Request(all.objects[i], all.sizes[i]))
          << "seed " << seed << ", request " << i;
    EXPECT_LE(reference.used(), capacity);
    const PolicyCounters counters = portfolio->counters();
    EXPECT_EQ(counters.requests, 4000);
    guarded += reference.was_guarded();
  }
  EXPECT_GT(guarded, 0) << "the guard is not tested by these";
}

TEST(Portfolio, FollowsWhoeverHoldsALoopThatLruLoses) {
  Requests loop;
  for (size_t i = 0; i < 60000; ++i) {
    loop.objects.push_back(static_cast<uint32_t>(i % 1500));
    loop.sizes.push_back(10);
  }
  const Trace trace{loop.objects.data(), loop.sizes.data(), loop.objects.size()};
  EXPECT_LT(SimulateObjects("lru", trace, 10000, 1)[0].hits, 100);
  EXPECT_GT(SimulateObjects("portfolio", trace, 10000, 1)[0].hits, 25000);  // 40000 are possible at most
}

TEST(Portfolio, LosesLittleToLruWhateverComes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Requests all = Drawn(seed, 20000);
    const Trace trace{all.objects.data(), all.sizes.data(), all.objects.size()};
    for (const int64_t capacity : {200, 1000, 5000}) {
      const PolicyCounters lru = SimulateObjects("lru", trace, capacity, 1)[0], own = SimulateObjects("portfolio", trace, capacity, 1)[0];
      const auto missed = static_cast<double>(own.bytes - own.hit_bytes), bound = static_cast<double>(lru.bytes - lru.hit_bytes);
      EXPECT_LE(missed, 1.02 * bound + 0.5 * static_cast<double>(capacity)) << "seed " << seed << ", capacity " << capacity;
    }
  }
}

TEST(Portfolio, TellsWhatItRemoved) {
  const Requests all = Drawn(3, 5000);
  const auto portfolio = MakePolicy("portfolio", 1000);
  std::vector<uint32_t> removed;
  portfolio->TellRemoved(&removed);
  std::set<uint32_t> stored;
  for (size_t i = 0; i < all.objects.size(); ++i) {
    removed.clear();
    const bool hit = portfolio->Request(all.objects[i], all.sizes[i]);
    ASSERT_EQ(hit, stored.count(all.objects[i]) != 0);
    for (const uint32_t each : removed) ASSERT_EQ(stored.erase(each), 1u);
    if (!hit && portfolio->Holds(all.objects[i])) stored.insert(all.objects[i]);
  }
  for (const uint32_t each : stored) EXPECT_TRUE(portfolio->Holds(each));
  const PolicyCounters counters = portfolio->counters();
  EXPECT_GT(counters.objects_deleted, 0);
}

// Pairs of requests that are further apart than the cache is large, among objects that come once. No rule can hold those whose second
// request is still to come; which they are shows in the group.
struct Pairs {
  Requests all;
  std::vector<uint32_t> groups;
};
Pairs DrawPairs(size_t n, uint32_t apart) {
  Pairs pairs;
  uint32_t next = 0;
  std::vector<uint32_t> firsts;
  const auto request = [&](uint32_t object) {
    pairs.all.objects.push_back(object);
    pairs.all.sizes.push_back(10);
  };
  for (size_t i = 0; i < n; ++i) {
    pairs.groups.insert(pairs.groups.end(), {0, 1, 1});
    firsts.push_back(next);
    for (int k = 0; k < 3; ++k) request(next++);
    if (firsts.size() > apart) request(firsts[firsts.size() - 1 - apart]);
  }
  return pairs;
}

// Wants those of a group that is requested again, and that were not yet; or, where it is wrong, the others.
class ByGroup : public ReuseModel {
 public:
  explicit ByGroup(bool wrong) : factor_(wrong ? -1 : 1) {
    const auto& names = ReuseFeatures::Names();
    again_ = static_cast<size_t>(std::find(names.begin(), names.end(), "group_again_share") - names.begin());
    requests_ = static_cast<size_t>(std::find(names.begin(), names.end(), "requests") - names.begin());
  }
  double Score(const float* row) const override { return factor_ * (row[requests_] > 1 ? 0.0 : static_cast<double>(row[again_])); }

 private:
  const double factor_;
  size_t again_, requests_;
};

PolicyCounters WithModel(const Pairs& pairs, bool wrong, double* weight) {
  LearnedPortfolio portfolio(1000, pairs.groups);
  portfolio.learned->Use(std::make_unique<ByGroup>(wrong));
  portfolio.cache->Replay(pairs.all.objects.data(), pairs.all.sizes.data(), pairs.all.objects.size());
  *weight = portfolio.shadows.weight(Shadows::kJoined);
  return portfolio.cache->counters();
}

TEST(LearnedPortfolio, FollowsAModelThatKnowsWhatNoRuleCan) {
  const Pairs pairs = DrawPairs(5000, 60);
  const Trace trace{pairs.all.objects.data(), pairs.all.sizes.data(), pairs.all.objects.size()};
  EXPECT_LT(SimulateObjects("portfolio", trace, 1000, 1)[0].hits, 500);
  double weight = 0;
  EXPECT_GT(WithModel(pairs, false, &weight).hits, 4000);  // 4940 are possible
  EXPECT_GT(weight, 0.99);
}

TEST(LearnedPortfolio, AModelThatIsWrongIsNotFollowed) {
  const Requests all = Drawn(3, 30000);
  const Pairs pairs{all, std::vector<uint32_t>(30000, 0)};
  const Trace trace{all.objects.data(), all.sizes.data(), all.objects.size()};
  double weight = 1;
  const PolicyCounters own = WithModel(pairs, true, &weight), rules = SimulateObjects("portfolio", trace, 1000, 1)[0];
  EXPECT_LT(weight, 0.01);
  EXPECT_LT(static_cast<double>(own.bytes - own.hit_bytes), 1.01 * static_cast<double>(rules.bytes - rules.hit_bytes));
}

}  // namespace
}  // namespace smartcache

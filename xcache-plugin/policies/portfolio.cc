#include "portfolio.hh"

#include <algorithm>
#include <utility>
#include <vector>

#include "shadows.hh"
#include "slots.hh"

namespace smartcache {
namespace {

constexpr double kGuardEnter = 0.02, kGuardSlack = 0.01, kGuardLeave = 0.0025, kGuardTrust = 0.02;

// Heaps of objects by the time of their last request, one for each class of them. Entries may be out of date, which shows when they come
// to the top: `current(of, object, at)` says whether an entry is the object's own.
class Heaps {
 public:
  explicit Heaps(size_t classes) : heaps_(classes), counts_(classes) {}

  // An object is in class `of` now, and was requested last at `at`.
  void Add(size_t of, uint32_t object, uint64_t at) {
    heaps_[of].push_back({at, object});
    std::push_heap(heaps_[of].begin(), heaps_[of].end(), Later());
    ++counts_[of];
    ++entries_;
  }
  // One of them is in it no more.
  void Remove(size_t of) { --counts_[of]; }
  size_t count(size_t of) const { return counts_[of]; }

  // Of a class that is not empty: who was requested longest ago, and when.
  template <class Current>
  std::pair<uint64_t, uint32_t> Oldest(size_t of, const Current& current) {
    std::vector<Entry>& heap = heaps_[of];
    while (!current(of, heap.front().object, heap.front().at)) {
      std::pop_heap(heap.begin(), heap.end(), Later());
      heap.pop_back();
      --entries_;
    }
    return {heap.front().at, heap.front().object};
  }

  // Drops what is out of date, or there twice, once that is most of it.
  template <class Current>
  void Compact(size_t objects, const Current& current) {
    if (entries_ < 8 * objects + 1024) return;
    entries_ = 0;
    for (size_t of = 0; of < heaps_.size(); ++of) {
      std::vector<Entry>& heap = heaps_[of];
      heap.erase(std::remove_if(heap.begin(), heap.end(), [&](const Entry& each) { return !current(of, each.object, each.at); }),
                 heap.end());
      // What was looked at and left where it was is there twice. The oldest first is a heap.
      std::sort(heap.begin(), heap.end(), [](const Entry& a, const Entry& b) { return a.at != b.at ? a.at < b.at : a.object < b.object; });
      heap.erase(std::unique(heap.begin(), heap.end(), [](const Entry& a, const Entry& b) { return a.at == b.at && a.object == b.object; }),
                 heap.end());
      entries_ += heap.size();
    }
  }

 private:
  struct Entry {
    uint64_t at;
    uint32_t object;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const { return a.at > b.at; }
  };
  std::vector<std::vector<Entry>> heaps_;
  std::vector<size_t> counts_;
  size_t entries_ = 0;
};

class Following : public Portfolio {
  struct Known {
    int64_t size = 0;
    uint64_t at = 0;            // the number of its last request
    Shadows::Mask mask_in = 0;  // as which it is in its class; where it is stored
    bool held = false;
  };
  static_assert(sizeof(Known) == 24);

  auto Current() const {
    return [this](size_t of, uint32_t object, uint64_t at) {
      const Known& known = known_[object];
      return known.held && known.at == at && (of == all_ || known.mask_in == of);
    };
  }

 public:
  // The shadows are fed by the requests.
  Following(int64_t capacity, Shadows* shadows, bool tidies) : capacity_(capacity), shadows_(*shadows), tidies_(tidies) {}

  bool Request(uint32_t object, int64_t size) override {
    if (object >= known_.size()) known_.resize(std::max<size_t>(size_t{object} + 1, known_.size() * 2));
    ++counters_.requests;
    counters_.bytes += size;
    changed_.clear();
    shadows_.Request(object, size, &changed_);
    for (const uint32_t each : changed_) {
      const Known& known = known_[each];
      if (!known.held || known.mask_in == shadows_.mask(each)) continue;
      classes_.Remove(known.mask_in);
      Classify(each);
    }
    const bool hit = Serve(object, size);
    if (tidies_) Tidy();
    shadows_.Charge(&own_loss_, size, hit, known_[object].held);
    Guard();
    return hit;
  }

  void Replay(const uint32_t* objects, const int64_t* sizes, size_t n) override {
    for (size_t i = 0; i < n; ++i) Request(objects[i], sizes[i]);
  }

  bool Holds(uint32_t object) const override { return object < known_.size() && known_[object].held; }
  void TellRemoved(std::vector<uint32_t>* removed) override { removed_ = removed; }
  PolicyCounters counters() const override { return counters_; }
  void Reserve(size_t objects) override {
    if (objects > known_.size()) known_.resize(objects);
    shadows_.Reserve(objects);
  }

  double vote(uint32_t object) const override { return shadows_.vote(shadows_.mask(object)); }
  bool guarded() const override { return guarded_; }
  Losses losses() const override { return {own_loss_, missed_bytes_, guarded_}; }
  void Restore(const Losses& losses) override {
    own_loss_ = losses.own;
    missed_bytes_ = losses.missed_bytes;
    guarded_ = losses.guarded;
  }
  void Tidy() override { classes_.Compact(classes_.count(all_), Current()); }

 private:
  bool Serve(uint32_t object, int64_t size) {
    Known& known = known_[object];
    const bool hit = known.held;
    if (hit) {
      ++counters_.hits;
      counters_.hit_bytes += size;
      Leave(object);
      used_ -= known.size;
    } else {
      missed_bytes_ += size;
      if (size > capacity_ || !MakeRoom(object, size)) return false;
      counters_.written_bytes += size;
    }
    used_ += size;
    known.size = size;
    known.at = static_cast<uint64_t>(counters_.requests);
    Enter(object);
    while (used_ > capacity_) {  // its size has grown
      const uint32_t victim = Victim();
      Leave(victim);
      Removed(victim);
    }
    return hit;
  }

  void Guard() {
    const auto lru = static_cast<double>(shadows_.lru_missed_bytes()), excess = static_cast<double>(missed_bytes_) - lru;
    const double lru_loss = shadows_.loss(Shadows::kLru);
    if (guarded_)
      guarded_ = excess > kGuardLeave * lru && shadows_.expected_loss() > (1.0 - kGuardTrust) * lru_loss;
    else
      guarded_ = excess > kGuardEnter * lru + kGuardSlack * static_cast<double>(capacity_) && own_loss_ > lru_loss;
  }

  void Classify(uint32_t object) {
    Known& known = known_[object];
    known.mask_in = shadows_.mask(object);
    classes_.Add(known.mask_in, object, known.at);
  }

  void Enter(uint32_t object) {
    known_[object].held = true;
    classes_.Add(all_, object, known_[object].at);
    Classify(object);
  }

  void Leave(uint32_t object) {
    known_[object].held = false;
    classes_.Remove(all_);
    classes_.Remove(known_[object].mask_in);
  }

  // Of what is stored, and something is.
  uint32_t Victim() {
    if (guarded_) return classes_.Oldest(all_, Current()).second;
    uint32_t victim = kNone;
    double least = 0;
    uint64_t oldest = 0;
    for (size_t of = 0; of < all_; ++of) {
      const auto mask = static_cast<Shadows::Mask>(of);
      if (classes_.count(mask) == 0 || (victim != kNone && shadows_.vote(mask) > least)) continue;
      const auto [at, object] = classes_.Oldest(mask, Current());
      if (victim != kNone && shadows_.vote(mask) == least && at > oldest) continue;
      victim = object;
      least = shadows_.vote(mask);
      oldest = at;
    }
    return victim;
  }

  // Until there is room for it. False, and nothing is lost, where the vote is against the new one.
  bool MakeRoom(uint32_t object, int64_t size) {
    victims_.clear();
    int64_t used = used_;
    while (used > capacity_ - size) {
      const uint32_t victim = Victim();
      if (!guarded_ && shadows_.vote(known_[victim].mask_in) > shadows_.vote(shadows_.mask(object))) {
        for (const uint32_t each : victims_) Enter(each);
        return false;
      }
      victims_.push_back(victim);
      used -= known_[victim].size;
      Leave(victim);
    }
    for (const uint32_t each : victims_) Removed(each);
    return true;
  }

  void Removed(uint32_t object) {
    used_ -= known_[object].size;
    counters_.deleted_bytes += known_[object].size;
    ++counters_.objects_deleted;
    if (removed_) removed_->push_back(object);
  }

  const int64_t capacity_;
  Shadows& shadows_;
  const bool tidies_;
  std::vector<uint32_t> changed_, victims_;
  std::vector<uint32_t>* removed_ = nullptr;
  std::vector<Known> known_;
  const size_t all_ = shadows_.masks();
  Heaps classes_{all_ + 1};  // what is stored by who holds it, and all of it
  int64_t used_ = 0, missed_bytes_ = 0;
  double own_loss_ = 0;
  bool guarded_ = false;
  PolicyCounters counters_;
};

// With shadows of its own.
struct OwnShadows {
  explicit OwnShadows(int64_t capacity) : shadows(capacity) {}
  Shadows shadows;
};
class OfRules final : private OwnShadows, public Following {
 public:
  explicit OfRules(int64_t capacity) : OwnShadows(capacity), Following(capacity, &shadows, true) {}
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakePortfolio(int64_t capacity) { return std::make_unique<OfRules>(capacity); }

std::unique_ptr<Portfolio> Follow(int64_t capacity, Shadows* shadows, bool tidies) {
  return std::make_unique<Following>(capacity, shadows, tidies);
}

LearnedPortfolio::LearnedPortfolio(int64_t capacity, std::vector<uint32_t> groups, const LearnedOptions& options)
    : shadows(capacity), learned(nullptr) {
  auto joining = std::make_unique<LearnedCache>(capacity, std::move(groups), &shadows, options);
  learned = joining.get();
  shadows.Join(std::move(joining));
  cache = Follow(capacity, &shadows);
}

}  // namespace smartcache

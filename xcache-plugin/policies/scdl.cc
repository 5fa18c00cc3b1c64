#include "scdl.hh"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "slots.hh"
#include "smartcache/hash.hh"

namespace smartcache {
namespace {

constexpr double kAlpha = 0.9, kGamma = 0.5, kLeastEpsilon = 0.1, kLambda = 0.0005;
constexpr int kCalls = 2;
// Sizes as shares of the cache, requests, requests since the last one, fill, hit rate, share of a category: bounds between classes.
constexpr std::array<double, 4> kSizes = {1e-5, 1e-4, 1e-3, 1e-2}, kUses = {2, 3, 5, 10}, kGaps = {1, 101, 1001, 10001};
constexpr std::array<double, 3> kFills = {0.5, 0.75, 0.95}, kHitRates = {0.25, 0.5, 0.75}, kShares = {0.01, 0.1, 0.25};
constexpr uint32_t kCategories = 5 * 5 * 5;

template <size_t N>
uint32_t Class(const std::array<double, N>& bounds, double value) {
  return static_cast<uint32_t>(std::upper_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed)) {}
  uint64_t Bits() { return Mix(state_ += 0x9e3779b97f4a7c15ull); }
  double Share() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  size_t Below(size_t n) { return static_cast<size_t>((Bits() >> 32) * n >> 32); }

 private:
  uint64_t state_;
};

template <int kActions>
class Agent {
 public:
  explicit Agent(size_t states) : q_(states) {}

  uint8_t Choose(size_t state, Random* random) {
    if (random->Share() < epsilon_) return static_cast<uint8_t>(random->Below(kActions));
    const auto& values = q_[state];
    const double best = *std::max_element(values.begin(), values.end());
    auto left = static_cast<size_t>(std::count(values.begin(), values.end(), best));
    left = left > 1 ? random->Below(left) : 0;
    uint8_t action = 0;
    while (values[action] != best || left-- > 0) ++action;
    return action;
  }

  void Learn(size_t state, uint8_t action, double reward, size_t next) {
    double& value = q_[state][action];
    value += kAlpha * (reward + kGamma * *std::max_element(q_[next].begin(), q_[next].end()) - value);
    epsilon_ = kLeastEpsilon + (1 - kLeastEpsilon) * std::exp(-kLambda * static_cast<double>(++updates_));
  }

 private:
  std::vector<std::array<double, kActions>> q_;
  double epsilon_ = 1;
  int64_t updates_ = 0;
};

enum Addition : uint8_t { kNotStore, kStore };
enum Eviction : uint8_t { kKeep, kOne, kQuarter, kHalf, kAll };

// What the agents remember of an object. `place` of its slot is 1 where an addition, 2 where its deletion is to be rewarded (a sum); while
// it is stored, `prev` of its slot is where it is in its category, and what was chosen to keep it is the category's.
struct Memory {
  float filled = 0;  // of the cache, when the eviction was chosen
  uint32_t last = 0;
  uint32_t entered = 0;                   // calls of the eviction agent before it came into its category
  uint32_t added_in = 0, evicted_in = 0;  // the states
  uint8_t added = 0, evicted = 0;         // the actions
  uint8_t gap = 0;
  uint8_t category = 0;
};

constexpr uint8_t kAdditionWaits = 1, kEvictionWaits = 2;

class Scdl final : public ObjectPolicy {
 public:
  Scdl(int64_t capacity, uint64_t seed)
      : capacity_(capacity), random_(seed), addition_(kCategories * 16), eviction_(kCategories * 16), categories_(kCategories) {}

  bool Request(uint32_t object, int64_t size) override {
    if (object >= slots_.size()) {
      slots_.resize(std::max<size_t>(size_t{object} + 1, slots_.size() * 2));
      memories_.resize(slots_.size());
    }
    Slot& slot = slots_[object];
    Memory& memory = memories_[object];
    const bool hit = slot.held;
    ++counters_.requests;
    counters_.bytes += size;
    counters_.hits += hit;
    if (hit) counters_.hit_bytes += size;
    ++now_;
    memory.gap = slot.uses == 0 ? uint8_t{0} : static_cast<uint8_t>(Class(kGaps, static_cast<double>(now_ - memory.last)));
    memory.last = now_;
    if (slot.uses < kNone) ++slot.uses;
    const uint32_t state = AdditionState(memory, slot.uses, size);
    Reward(object, hit, state, size);
    if (hit) {
      Move(object, size);
      // Its copy grew over the capacity.
      for (int call = 0; call < kCalls && used_ > capacity_; ++call) CallEviction();
      if (used_ > capacity_ && slot.held) Remove(object);
      return true;
    }
    // Nobody is asked about what can never be stored, and a store that found no room is none: there is nothing to reward.
    if (size > capacity_) return false;
    const uint8_t action = addition_.Choose(state, &random_);
    if (action == kStore && !MakeRoom(size)) return false;
    memory.added_in = state;
    memory.added = action;
    slot.place |= kAdditionWaits;
    if (action == kStore) {
      slot.held = 1;
      slot.size = size;
      used_ += size;
      counters_.written_bytes += size;
      Enter(object, size);
    }
    return false;
  }

  void Replay(const uint32_t* objects, const int64_t* sizes, size_t n) override {
    for (size_t i = 0; i < n; ++i) Request(objects[i], sizes[i]);
  }
  bool Holds(uint32_t object) const override { return object < slots_.size() && slots_[object].held; }
  void TellRemoved(std::vector<uint32_t>* removed) override { removed_ = removed; }
  PolicyCounters counters() const override { return counters_; }

 private:
  struct Category {
    std::vector<uint32_t> objects;
    int64_t bytes = 0;
    // The last call that left all of it, 0 for none: which, the state, and how full the cache was.
    uint32_t kept = 0, kept_in = 0;
    float filled = 0;
  };

  double filled() const { return static_cast<double>(used_) / static_cast<double>(capacity_); }
  uint32_t HitRate() const { return Class(kHitRates, static_cast<double>(counters_.hits) / static_cast<double>(counters_.requests)); }

  uint8_t CategoryOf(const Memory& memory, uint32_t uses, int64_t size) const {
    const uint32_t of_size = Class(kSizes, static_cast<double>(size) / static_cast<double>(capacity_));
    return static_cast<uint8_t>((of_size * 5 + Class(kUses, uses)) * 5 + memory.gap);
  }
  uint32_t AdditionState(const Memory& memory, uint32_t uses, int64_t size) const {
    return (CategoryOf(memory, uses, size) * 4u + Class(kFills, filled())) * 4 + HitRate();
  }
  uint32_t EvictionState(uint8_t category) const {
    const double share = static_cast<double>(categories_[category].bytes) / static_cast<double>(capacity_);
    return (category * 4u + Class(kShares, share)) * 4 + HitRate();
  }

  void Reward(uint32_t object, bool hit, uint32_t state, int64_t size) {
    Slot& slot = slots_[object];
    const Memory& memory = memories_[object];
    if (slot.place & kAdditionWaits) {
      const double reward = hit ? 2 : memory.added == kNotStore ? -2 : -1;
      addition_.Learn(memory.added_in, memory.added, reward, state);
    }
    const uint32_t next = EvictionState(CategoryOf(memory, slot.uses, size));
    const Category& category = categories_[memory.category];
    if (hit && category.kept > memory.entered)
      eviction_.Learn(category.kept_in, kKeep, static_cast<float>(filled()) > category.filled ? 2 : 3, next);
    if (!hit && slot.place & kEvictionWaits)
      eviction_.Learn(memory.evicted_in, memory.evicted, static_cast<float>(filled()) > memory.filled ? -3 : -2, next);
    slot.place = 0;
  }

  void Enter(uint32_t object, int64_t size) {
    Category& category = categories_[memories_[object].category = CategoryOf(memories_[object], slots_[object].uses, size)];
    slots_[object].prev = static_cast<uint32_t>(category.objects.size());
    memories_[object].entered = calls_;
    category.objects.push_back(object);
    category.bytes += size;
  }

  void Leave(uint32_t object) {
    Category& category = categories_[memories_[object].category];
    const uint32_t last = category.objects.back(), at = slots_[object].prev;
    category.objects[at] = last;
    slots_[last].prev = at;
    category.objects.pop_back();
    category.bytes -= slots_[object].size;
  }

  // A stored object, requested again, is in another category, and may have another size.
  void Move(uint32_t object, int64_t size) {
    Leave(object);
    used_ += size - slots_[object].size;
    slots_[object].size = size;
    Enter(object, size);
  }

  void Remove(uint32_t object) {
    Leave(object);
    Slot& slot = slots_[object];
    slot.held = 0;
    used_ -= slot.size;
    counters_.deleted_bytes += slot.size;
    ++counters_.objects_deleted;
    if (removed_) removed_->push_back(object);
  }

  bool MakeRoom(int64_t size) {
    if (used_ <= capacity_ - size) return true;
    bool fits = false;
    for (int call = 0; call < kCalls && !fits; ++call) {
      CallEviction();
      fits = used_ <= capacity_ - size;
    }
    for (const Choice& each : choices_) eviction_.Learn(each.state, each.action, !fits && each.action == kKeep ? -1 : 1, each.state);
    return fits;
  }

  // Asks for each category, and does it.
  void CallEviction() {
    choices_.clear();
    ++calls_;
    for (uint32_t number = 0; number < kCategories; ++number)
      if (!categories_[number].objects.empty()) {
        const uint32_t state = EvictionState(static_cast<uint8_t>(number));
        choices_.push_back({number, state, eviction_.Choose(state, &random_)});
      }
    const auto before = static_cast<float>(filled());
    for (const Choice& each : choices_) {
      Category& category = categories_[each.category];
      std::vector<uint32_t>& objects = category.objects;
      const size_t n = objects.size();
      size_t goes = 0;
      if (each.action == kOne) goes = 1;
      if (each.action == kQuarter) goes = std::max<size_t>(1, n / 4);
      if (each.action == kHalf) goes = std::max<size_t>(1, n / 2);
      if (each.action == kAll) goes = n;
      if (each.action == kKeep) {
        category.kept = calls_;
        category.kept_in = each.state;
        category.filled = before;
      }
      for (; goes > 0; --goes) {
        const uint32_t object = objects[random_.Below(objects.size())];
        Memory& memory = memories_[object];
        memory.evicted_in = each.state;
        memory.evicted = each.action;
        memory.filled = before;
        slots_[object].place |= kEvictionWaits;
        Remove(object);
      }
    }
  }

  struct Choice {
    uint32_t category;
    uint32_t state;
    uint8_t action;
  };

  const int64_t capacity_;
  int64_t used_ = 0;
  uint32_t now_ = 0, calls_ = 0;
  Random random_;
  Agent<2> addition_;
  Agent<5> eviction_;
  Slots slots_;
  std::vector<Memory> memories_;
  std::vector<Category> categories_;
  std::vector<Choice> choices_;  // of the last call
  std::vector<uint32_t>* removed_ = nullptr;
  PolicyCounters counters_;
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeScdl(int64_t capacity, uint64_t seed) { return std::make_unique<Scdl>(capacity, seed); }

}  // namespace smartcache

#include "w_tiny_lfu.hh"

#include <algorithm>

#include "policy_of.hh"

namespace smartcache {
namespace {

enum Place : uint8_t { kWindow, kProbation, kProtected };

constexpr double kWindowShare = 0.01, kProtectedShare = 0.8;
constexpr uint32_t kMostUses = 15, kUsesBits = 4;
constexpr uint64_t kRequestsAnObject = 10;

struct WTinyLfu : RuleBase {
  explicit WTinyLfu(int64_t capacity)
      : window_capacity(static_cast<int64_t>(static_cast<double>(capacity) * kWindowShare)),
        protected_capacity(static_cast<int64_t>(static_cast<double>(capacity - window_capacity) * kProtectedShare)) {}

  void Hit(uint32_t object) {
    Count(object);
    uint8_t& place = slots[object].place;
    if (place != kProbation) {
      lists[place].ToFront(slots, object);
      return;
    }
    Move(object, kProtected);
    while (lists[kProtected].bytes() > protected_capacity) Move(lists[kProtected].back(), kProbation);
  }

  void Resize(uint32_t object, int64_t change) { lists[slots[object].place].Resize(change); }

  bool Miss(uint32_t object, int64_t /*size*/) {
    Count(object);
    return true;
  }

  uint32_t Evict(uint32_t object, int64_t size) {
    const bool passes_window = object != kNone && size > window_capacity;
    const List& window = lists[kWindow];
    const List& main = lists[lists[kProbation].empty() ? kProtected : kProbation];
    uint32_t victim = main.back();
    if (main.empty()) {
      victim = window.back();
    } else if (passes_window) {
      if (Uses(object) <= Uses(victim)) return kNone;
    } else if (!window.empty() && window.bytes() > window_capacity - size) {
      if (Uses(window.back()) <= Uses(victim)) victim = window.back();
    }
    lists[slots[victim].place].Remove(slots, victim);
    --stored;
    return victim;
  }

  void Store(uint32_t object) {
    ++stored;
    Slot& slot = slots[object];
    slot.place = slot.size > window_capacity ? kProbation : kWindow;
    lists[slot.place].PushFront(slots, object);
    while (lists[kWindow].bytes() > window_capacity) Move(lists[kWindow].back(), kProbation);
  }

  void Move(uint32_t object, Place to) {
    lists[slots[object].place].Remove(slots, object);
    slots[object].place = to;
    lists[to].PushFront(slots, object);
  }

  // In `uses`: the count in the lowest bits, and in the others how many halvings it knows of.
  uint32_t Uses(uint32_t object) const {
    const uint32_t uses = slots[object].uses, missed = (halvings - (uses >> kUsesBits)) & (~0u >> kUsesBits);
    return (uses & kMostUses) >> std::min(missed, kUsesBits);
  }

  void Count(uint32_t object) {
    slots[object].uses = std::min(Uses(object) + 1, kMostUses) | halvings << kUsesBits;
    if (++since_halving < kRequestsAnObject * std::max<uint64_t>(stored, 1)) return;
    since_halving = 0;
    ++halvings;
  }

  const int64_t window_capacity, protected_capacity;
  List lists[3];
  uint64_t stored = 0;
  uint64_t since_halving = 0;
  uint32_t halvings = 0;
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeWTinyLfu(int64_t capacity) { return std::make_unique<PolicyOf<WTinyLfu>>(capacity); }

}  // namespace smartcache

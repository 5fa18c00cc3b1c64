#include "s3_fifo.hh"

#include <algorithm>

#include "policy_of.hh"

namespace smartcache {
namespace {

enum Place : uint8_t { kNowhere, kSmall, kMain, kGhost };

constexpr double kSmallShare = 0.1, kGhostShare = 0.9;
constexpr uint32_t kUsesToMain = 2, kMostRounds = 3;

struct S3Fifo : RuleBase {
  explicit S3Fifo(int64_t capacity)
      : small_capacity(static_cast<int64_t>(static_cast<double>(capacity) * kSmallShare)),
        main_capacity(capacity - small_capacity),
        ghost_capacity(static_cast<int64_t>(static_cast<double>(capacity) * kGhostShare)) {}

  void Hit(uint32_t object) { ++slots[object].uses; }

  void Resize(uint32_t object, int64_t change) { (slots[object].place == kSmall ? small : main).Resize(change); }

  bool Miss(uint32_t object, int64_t size) {
    was_ghost = slots[object].place == kGhost;
    if (was_ghost) {
      ghost.Remove(slots, object);
      slots[object].place = kNowhere;
    }
    return size < small_capacity;
  }

  uint32_t Evict(uint32_t /*object*/, int64_t /*size*/) {
    evicted_yet = true;
    // The small queue is gone through to its first victim, also where what moves on from it makes the main queue too large meanwhile.
    if (main.bytes() <= main_capacity) {
      while (!small.empty()) {
        const uint32_t object = small.PopBack(slots);
        Slot& slot = slots[object];
        if (slot.uses < kUsesToMain) {
          Remember(object);
          return object;
        }
        slot.uses = 0;
        slot.place = kMain;
        main.PushFront(slots, object);
      }
    }
    for (;;) {
      const uint32_t object = main.PopBack(slots);
      Slot& slot = slots[object];
      if (slot.uses == 0) {
        slot.place = kNowhere;
        return object;
      }
      slot.uses = std::min(slot.uses, kMostRounds) - 1;
      main.PushFront(slots, object);
    }
  }

  void Store(uint32_t object) {
    Slot& slot = slots[object];
    slot.uses = 0;
    const bool to_main = was_ghost || (!evicted_yet && small.bytes() >= small_capacity);
    slot.place = to_main ? kMain : kSmall;
    (to_main ? main : small).PushFront(slots, object);
  }

  void Remember(uint32_t object) {
    Slot& slot = slots[object];
    slot.place = kNowhere;
    if (slot.size > ghost_capacity) return;
    while (ghost.bytes() > ghost_capacity - slot.size) slots[ghost.PopBack(slots)].place = kNowhere;
    slot.place = kGhost;
    ghost.PushFront(slots, object);
  }

  const int64_t small_capacity, main_capacity, ghost_capacity;
  List small, main, ghost;
  bool was_ghost = false;
  bool evicted_yet = false;
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeS3Fifo(int64_t capacity) { return std::make_unique<PolicyOf<S3Fifo>>(capacity); }

}  // namespace smartcache

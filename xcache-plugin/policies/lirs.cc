#include "lirs.hh"

#include <algorithm>

#include "policy_of.hh"

namespace smartcache {
namespace {

// What an object is (`place` in slots). In S or not is `flag`; `queued` has the links of Q for HIR, and of `ghosts` for kGhost.
enum Place : uint8_t { kNowhere, kLir, kHir, kGhost };

constexpr double kHirShare = 0.01;

struct Lirs : RuleBase {
  explicit Lirs(int64_t whole)
      : capacity(whole), lir_capacity(whole - std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(whole) * kHirShare))) {}

  void Grow(size_t objects) { queued.resize(objects); }

  void Hit(uint32_t object) {
    Slot& slot = slots[object];
    if (slot.place == kLir) {
      stack.ToFront(slots, object);
      Prune();
    } else if (slot.flag) {
      queue.Remove(queued, object);
      Promote(object);
    } else {
      queue.ToFront(queued, object);
      Push(object);
    }
  }

  void Resize(uint32_t object, int64_t change) {
    Slot& slot = slots[object];
    if (slot.flag) stack.Resize(change);
    if (slot.place == kLir) {
      lir_bytes += change;
    } else {
      queue.Resize(change);
      queued[object].size += change;
    }
  }

  bool Miss(uint32_t object, int64_t /*size*/) {
    was_ghost = slots[object].place == kGhost;
    if (was_ghost) {
      Forget(object);
      Prune();
    }
    return true;
  }

  uint32_t Evict(uint32_t /*object*/, int64_t /*size*/) {
    if (queue.empty()) Demote();
    const uint32_t victim = queue.PopBack(queued);
    Slot& slot = slots[victim];
    slot.place = kNowhere;
    if (slot.flag) {
      slot.place = kGhost;
      ghosts.PushFront(queued, victim);
      while (ghosts.bytes() > capacity) Forget(ghosts.back());
    }
    return victim;
  }

  void Store(uint32_t object) {
    Slot& slot = slots[object];
    queued[object].size = slot.size;
    if (was_ghost || lir_bytes <= lir_capacity - slot.size) {
      Promote(object);
    } else {
      slot.place = kHir;
      queue.PushFront(queued, object);
      Push(object);
    }
  }

  // It was requested at a short distance: LIR, on top of S.
  void Promote(uint32_t object) {
    Slot& slot = slots[object];
    slot.place = kLir;
    lir_bytes += slot.size;
    Push(object);
    while (lir_bytes > lir_capacity) Demote();
    Prune();
  }

  // The LIR object at the bottom of S becomes the youngest of Q.
  void Demote() {
    Prune();
    const uint32_t object = stack.PopBack(slots);
    Slot& slot = slots[object];
    slot.flag = 0;
    slot.place = kHir;
    lir_bytes -= slot.size;
    queued[object].size = slot.size;
    queue.PushFront(queued, object);
    Prune();
  }

  void Push(uint32_t object) {
    if (slots[object].flag) stack.Remove(slots, object);
    slots[object].flag = 1;
    stack.PushFront(slots, object);
  }

  // Takes off the bottom of S what is not LIR.
  void Prune() {
    while (!stack.empty() && slots[stack.back()].place != kLir) {
      const uint32_t object = stack.back();
      if (slots[object].place == kGhost) {
        Forget(object);
      } else {
        stack.PopBack(slots);
        slots[object].flag = 0;
      }
    }
  }

  void Forget(uint32_t ghost) {
    Slot& slot = slots[ghost];
    stack.Remove(slots, ghost);
    ghosts.Remove(queued, ghost);
    slot.flag = 0;
    slot.place = kNowhere;
  }

  const int64_t capacity, lir_capacity;
  Slots queued;
  List stack, queue, ghosts;
  int64_t lir_bytes = 0;
  bool was_ghost = false;
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeLirs(int64_t capacity) { return std::make_unique<PolicyOf<Lirs>>(capacity); }

}  // namespace smartcache

// What a rule knows of each object, in one dense array, and lists through it: 24 bytes an object, no allocation for a request.
//
// An object is in one list of a rule at most, so the links are in its slot. `held` is what PolicyOf keeps: the object is stored. Objects
// that are remembered but not stored (ghosts) are in lists too, with held = 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smartcache {

constexpr uint32_t kNone = 0xffffffffu;

struct Slot {
  int64_t size = 0;
  uint32_t prev = kNone;  // towards the front
  uint32_t next = kNone;
  uint32_t uses = 0;
  uint8_t place = 0;  // which list it is in: the rule's own numbers, 0 for none
  uint8_t held = 0;
  uint8_t flag = 0;
};
static_assert(sizeof(Slot) == 24);

using Slots = std::vector<Slot>;

// A list of objects with the sum of their sizes. The newest is at the front by custom.
class List {
 public:
  uint32_t front() const { return front_; }
  uint32_t back() const { return back_; }
  bool empty() const { return front_ == kNone; }
  int64_t bytes() const { return bytes_; }
  size_t length() const { return length_; }

  void PushFront(Slots& slots, uint32_t object) {
    Slot& slot = slots[object];
    slot.prev = kNone;
    slot.next = front_;
    (front_ == kNone ? back_ : slots[front_].prev) = object;
    front_ = object;
    bytes_ += slot.size;
    ++length_;
  }

  void Remove(Slots& slots, uint32_t object) {
    const Slot& slot = slots[object];
    (slot.prev == kNone ? front_ : slots[slot.prev].next) = slot.next;
    (slot.next == kNone ? back_ : slots[slot.next].prev) = slot.prev;
    bytes_ -= slot.size;
    --length_;
  }

  uint32_t PopBack(Slots& slots) {
    const uint32_t object = back_;
    Remove(slots, object);
    return object;
  }

  void ToFront(Slots& slots, uint32_t object) {
    if (object == front_) return;
    Remove(slots, object);
    PushFront(slots, object);
  }

  // The size of an object that is in the list changes by this.
  void Resize(int64_t change) { bytes_ += change; }

 private:
  uint32_t front_ = kNone;
  uint32_t back_ = kNone;
  int64_t bytes_ = 0;
  size_t length_ = 0;
};

}  // namespace smartcache

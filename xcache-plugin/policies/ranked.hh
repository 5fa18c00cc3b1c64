// Rules that give each stored object a priority at its requests, and throw out the lowest: of equals, the one requested longest ago.
//
// A 4-ary heap whose entries hold priority and time of the last request, so that sifting touches the heap alone; a slot's `prev` is where
// its entry is. Cost: O(log n) a request for n stored objects; 24 bytes an object, and 24 more one that is stored.
//
// A Formula says what an object is worth, and may age:
//   double Worth(uint32_t uses, int64_t size) const;   uses: requests since it was stored, from 1
//   void Evicted(double priority);                     the lowest goes out with this priority
//   static constexpr bool kCompetes;                   a new object that would be the lowest at once is passed by, and counts as evicted
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "policy_of.hh"

namespace smartcache {

template <class Formula>
class Ranked : public RuleBase {
 public:
  explicit Ranked(int64_t /*capacity*/) {}

  void Hit(uint32_t object) {
    ++now_;
    Slot& slot = slots[object];
    ++slot.uses;
    const size_t at = slot.prev;
    Entry entry = heap_[at];
    entry.priority = formula_.Worth(slot.uses, slot.size);
    entry.last = now_;
    Settle(at, entry);
  }

  bool Miss(uint32_t /*object*/, int64_t size) {
    ++now_;
    if (Formula::kCompetes) worth_of_new_ = formula_.Worth(1, size);
    return true;
  }

  uint32_t Evict(uint32_t object, int64_t /*size*/) {
    if (Formula::kCompetes && object != kNone && worth_of_new_ < heap_[0].priority) {
      formula_.Evicted(worth_of_new_);
      return kNone;
    }
    const Entry lowest = heap_[0];
    const Entry last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) Settle(0, last);
    formula_.Evicted(lowest.priority);
    return lowest.object;
  }

  void Store(uint32_t object) {
    Slot& slot = slots[object];
    slot.uses = 1;
    const Entry entry{Formula::kCompetes ? worth_of_new_ : formula_.Worth(1, slot.size), now_, object};
    heap_.push_back(entry);
    Settle(heap_.size() - 1, entry);
  }

 private:
  struct Entry {
    double priority;
    uint64_t last;
    uint32_t object;
  };

  static bool Lower(const Entry& a, const Entry& b) { return a.priority != b.priority ? a.priority < b.priority : a.last < b.last; }

  void Put(size_t at, const Entry& entry) {
    heap_[at] = entry;
    slots[entry.object].prev = static_cast<uint32_t>(at);
  }

  // Puts the entry where it belongs, above or below `at`, whose own entry is void.
  void Settle(size_t at, const Entry& entry) {
    while (at > 0 && Lower(entry, heap_[(at - 1) / 4])) {
      Put(at, heap_[(at - 1) / 4]);
      at = (at - 1) / 4;
    }
    for (;;) {
      size_t least = at * 4 + 1;
      if (least >= heap_.size()) break;
      for (size_t child = least + 1; child < heap_.size() && child < at * 4 + 5; ++child)
        if (Lower(heap_[child], heap_[least])) least = child;
      if (!Lower(heap_[least], entry)) break;
      Put(at, heap_[least]);
      at = least;
    }
    Put(at, entry);
  }

  Formula formula_;
  std::vector<Entry> heap_;
  uint64_t now_ = 0;
  double worth_of_new_ = 0;
};

}  // namespace smartcache

// What is the same in every rule (object_policy.hh): counters, capacity, sizes that change. The rule itself is the parameter, so that a
// request costs one virtual call, or none in Replay.
//
// A Rule is constructed from the capacity and owns what it remembers:
//   Slots slots;                                    its table; PolicyOf grows it and keeps size and held
//   void Grow(size_t objects);                      tables of its own beside it, if any
//   void Hit(uint32_t object);                      a stored object is requested
//   void Resize(uint32_t object, int64_t change);   before Hit: the stored copy's size changes by this; slots still has the old size
//   bool Miss(uint32_t object, int64_t size);       one that is not stored is requested: may it be? Also asked where it is too large
//   uint32_t Evict(uint32_t object, int64_t size);  room is needed for this one: takes a victim off its lists and says which. kNone: it
//                                                   would be the new one, which is then not stored. object is kNone where a copy grew
//   void Store(uint32_t object);                    the object is stored now
#pragma once

#include <algorithm>
#include <utility>

#include "object_policy.hh"
#include "slots.hh"

namespace smartcache {

// For a rule that has nothing of its own to do there.
struct RuleBase {
  Slots slots;
  void Grow(size_t /*objects*/) {}
  void Resize(uint32_t /*object*/, int64_t /*change*/) {}
  bool Miss(uint32_t /*object*/, int64_t /*size*/) { return true; }
};

template <class Rule>
class PolicyOf final : public ObjectPolicy {
 public:
  template <class... Arguments>
  explicit PolicyOf(int64_t capacity, Arguments&&... arguments)
      : capacity_(capacity), rule_(capacity, std::forward<Arguments>(arguments)...) {}

  bool Request(uint32_t object, int64_t size) override { return One(object, size); }

  void Replay(const uint32_t* objects, const int64_t* sizes, size_t n) override {
    constexpr size_t kAhead = 8;
    for (size_t i = 0; i < n; ++i) {
      if (i + kAhead < n && objects[i + kAhead] < rule_.slots.size()) __builtin_prefetch(&rule_.slots[objects[i + kAhead]], 1);
      One(objects[i], sizes[i]);
    }
  }

  bool Holds(uint32_t object) const override { return object < rule_.slots.size() && rule_.slots[object].held; }
  void TellRemoved(std::vector<uint32_t>* removed) override { removed_ = removed; }
  void Reserve(size_t objects) override {
    if (objects > rule_.slots.size()) Grow(static_cast<uint32_t>(objects - 1));
  }
  PolicyCounters counters() const override { return counters_; }

 private:
  bool One(uint32_t object, int64_t size) {
    if (object >= rule_.slots.size()) Grow(object);
    ++counters_.requests;
    counters_.bytes += size;
    Slot& slot = rule_.slots[object];
    if (slot.held) {
      ++counters_.hits;
      counters_.hit_bytes += size;
      if (slot.size != size) {
        rule_.Resize(object, size - slot.size);
        used_ += size - slot.size;
        slot.size = size;
      }
      rule_.Hit(object);
      while (used_ > capacity_) Remove(rule_.Evict(kNone, 0));
      return true;
    }
    if (!rule_.Miss(object, size) || size > capacity_) return false;
    while (used_ > capacity_ - size) {
      const uint32_t victim = rule_.Evict(object, size);
      if (victim == kNone) return false;
      Remove(victim);
    }
    slot.size = size;
    slot.held = 1;
    used_ += size;
    counters_.written_bytes += size;
    rule_.Store(object);
    return false;
  }

  void Remove(uint32_t victim) {
    Slot& slot = rule_.slots[victim];
    slot.held = 0;
    used_ -= slot.size;
    counters_.deleted_bytes += slot.size;
    ++counters_.objects_deleted;
    if (removed_) removed_->push_back(victim);
  }

  void Grow(uint32_t object) {
    const size_t objects = std::max<size_t>(size_t{object} + 1, rule_.slots.size() * 2);
    rule_.slots.resize(objects);
    rule_.Grow(objects);
  }

  const int64_t capacity_;
  int64_t used_ = 0;
  PolicyCounters counters_;
  std::vector<uint32_t>* removed_ = nullptr;
  Rule rule_;
};

}  // namespace smartcache

#include "uses.hh"

#include <algorithm>
#include <utility>

#include "slots.hh"

namespace smartcache {
namespace {

class Uses final : public ObjectPolicy {
 public:
  Uses(int64_t capacity, uint32_t uses, std::unique_ptr<ObjectPolicy> rule) : capacity_(capacity), uses_(uses), rule_(std::move(rule)) {}

  bool Request(uint32_t object, int64_t size) override {
    if (rule_->Holds(object)) return rule_->Request(object, size);
    if (object >= slots_.size()) slots_.resize(std::max<size_t>(size_t{object} + 1, slots_.size() * 2));
    Slot& slot = slots_[object];
    if (slot.place) refused_.Remove(slots_, object);
    slot.uses = slot.place ? slot.uses + 1 : 1;
    slot.place = 0;
    if (slot.uses >= uses_) return rule_->Request(object, size);
    ++refusals_.requests;
    refusals_.bytes += size;
    if (size > capacity_) return false;
    slot.size = size;
    slot.place = 1;
    refused_.PushFront(slots_, object);
    while (refused_.bytes() > capacity_) slots_[refused_.PopBack(slots_)].place = 0;
    return false;
  }

  void Replay(const uint32_t* objects, const int64_t* sizes, size_t n) override {
    for (size_t i = 0; i < n; ++i) Request(objects[i], sizes[i]);
  }

  bool Holds(uint32_t object) const override { return rule_->Holds(object); }
  void TellRemoved(std::vector<uint32_t>* removed) override { rule_->TellRemoved(removed); }
  void Reserve(size_t objects) override {
    if (objects > slots_.size()) slots_.resize(objects);
    rule_->Reserve(objects);
  }

  PolicyCounters counters() const override {
    PolicyCounters all = rule_->counters();
    all.requests += refusals_.requests;
    all.bytes += refusals_.bytes;
    return all;
  }

 private:
  const int64_t capacity_;
  const uint32_t uses_;
  const std::unique_ptr<ObjectPolicy> rule_;
  Slots slots_;
  List refused_;
  PolicyCounters refusals_;
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeUses(int64_t capacity, uint32_t uses, std::unique_ptr<ObjectPolicy> rule) {
  return std::make_unique<Uses>(capacity, uses, std::move(rule));
}

}  // namespace smartcache

#include "slru.hh"

#include "policy_of.hh"

namespace smartcache {
namespace {

constexpr uint8_t kLists = 4;

struct Slru : RuleBase {
  explicit Slru(int64_t capacity) : share(capacity / kLists) {}

  void Hit(uint32_t object) {
    uint8_t& place = slots[object].place;
    if (place + 1 == kLists) {
      lists[place].ToFront(slots, object);
      return;
    }
    lists[place].Remove(slots, object);
    lists[++place].PushFront(slots, object);
    for (uint8_t at = place; at > 0; --at)
      while (lists[at].bytes() > share) {
        const uint32_t fallen = lists[at].PopBack(slots);
        slots[fallen].place = static_cast<uint8_t>(at - 1);
        lists[at - 1].PushFront(slots, fallen);
      }
  }

  void Resize(uint32_t object, int64_t change) { lists[slots[object].place].Resize(change); }

  bool Miss(uint32_t /*object*/, int64_t size) { return size <= share; }

  uint32_t Evict(uint32_t /*object*/, int64_t /*size*/) {
    for (List& list : lists)
      if (!list.empty()) return list.PopBack(slots);
    return kNone;  // cannot be: something is stored where room is needed
  }

  void Store(uint32_t object) {
    Slot& slot = slots[object];
    slot.place = 0;
    for (uint8_t at = 0; at < kLists; ++at)
      if (lists[at].bytes() <= share - slot.size) {
        slot.place = at;
        break;
      }
    lists[slot.place].PushFront(slots, object);
  }

  const int64_t share;
  List lists[kLists];
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeSlru(int64_t capacity) { return std::make_unique<PolicyOf<Slru>>(capacity); }

}  // namespace smartcache

#include "lru.hh"

#include "policy_of.hh"

namespace smartcache {
namespace {

struct Lru : RuleBase {
  explicit Lru(int64_t /*capacity*/) {}
  void Hit(uint32_t object) { list.ToFront(slots, object); }
  uint32_t Evict(uint32_t /*object*/, int64_t /*size*/) { return list.PopBack(slots); }
  void Store(uint32_t object) { list.PushFront(slots, object); }
  List list;
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeLru(int64_t capacity) { return std::make_unique<PolicyOf<Lru>>(capacity); }

}  // namespace smartcache

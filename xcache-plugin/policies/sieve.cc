#include "sieve.hh"

#include "policy_of.hh"

namespace smartcache {
namespace {

struct Sieve : RuleBase {
  explicit Sieve(int64_t /*capacity*/) {}

  void Hit(uint32_t object) { slots[object].flag = 1; }

  uint32_t Evict(uint32_t /*object*/, int64_t /*size*/) {
    uint32_t at = hand == kNone ? queue.back() : hand;
    while (slots[at].flag) {
      slots[at].flag = 0;
      at = slots[at].prev == kNone ? queue.back() : slots[at].prev;
    }
    hand = slots[at].prev;
    queue.Remove(slots, at);
    return at;
  }

  void Store(uint32_t object) {
    slots[object].flag = 0;
    queue.PushFront(slots, object);
  }

  List queue;
  uint32_t hand = kNone;
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeSieve(int64_t capacity) { return std::make_unique<PolicyOf<Sieve>>(capacity); }

}  // namespace smartcache

#include "hyperbolic.hh"

#include <vector>

#include "policy_of.hh"
#include "smartcache/hash.hh"

namespace smartcache {
namespace {

constexpr int kDraws = 64;

// Of a stored object `prev` is where it is in `stored`, `next` the request that stored it.
struct Hyperbolic : RuleBase {
  Hyperbolic(int64_t /*capacity*/, uint64_t seed) : draws((seed - 1) << 40) {}

  void Hit(uint32_t object) {
    ++now;
    ++slots[object].uses;
  }

  bool Miss(uint32_t /*object*/, int64_t /*size*/) {
    ++now;
    return true;
  }

  uint32_t Evict(uint32_t /*object*/, int64_t /*size*/) {
    uint32_t victim = kNone;
    uint64_t uses = 0, age = 0;
    for (int i = 0; i < kDraws; ++i) {
      // The upper half of a product is a draw below the number of objects, without a division.
      const uint32_t drawn = stored[static_cast<size_t>((Mix(++draws) >> 32) * stored.size() >> 32)];
      const uint64_t its_uses = slots[drawn].uses, its_age = static_cast<uint32_t>(now - slots[drawn].next);
      if (victim != kNone && its_uses * age >= uses * its_age) continue;
      victim = drawn;
      uses = its_uses;
      age = its_age;
    }
    const uint32_t last = stored.back(), at = slots[victim].prev;
    stored[at] = last;
    slots[last].prev = at;
    stored.pop_back();
    return victim;
  }

  void Store(uint32_t object) {
    Slot& slot = slots[object];
    slot.uses = 1;
    slot.prev = static_cast<uint32_t>(stored.size());
    slot.next = now;
    stored.push_back(object);
  }

  std::vector<uint32_t> stored;
  uint32_t now = 0;  // its difference to `next` is right also once it wraps
  uint64_t draws;
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeHyperbolic(int64_t capacity, uint64_t seed) {
  return std::make_unique<PolicyOf<Hyperbolic>>(capacity, seed);
}

}  // namespace smartcache

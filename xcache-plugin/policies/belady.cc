#include "belady.hh"

#include <vector>

#include "bit_tree.hh"
#include "policy_of.hh"

namespace smartcache {
namespace {

// When each request's object is requested again, as a position in the trace; kNone for never.
std::vector<uint32_t> NextUses(const uint32_t* objects, size_t n) {
  std::vector<uint32_t> next(n), seen;
  for (size_t i = n; i-- > 0;) {
    if (objects[i] >= seen.size()) seen.resize(size_t{objects[i]} + 1, kNone);
    next[i] = seen[objects[i]];
    seen[objects[i]] = static_cast<uint32_t>(i);
  }
  return next;
}

struct Belady : RuleBase {
  Belady(int64_t /*capacity*/, const uint32_t* trace, size_t n) : objects(trace), next(NextUses(trace, n)), coming(n) {}

  // Of a stored object `uses` is when it is next requested. What is never requested again is on a list of its own.
  void Hit(uint32_t object) {
    coming.Erase(slots[object].uses);
    ++now;
    Store(object);
  }
  bool Miss(uint32_t /*object*/, int64_t /*size*/) {
    ++now;
    return true;
  }
  uint32_t Evict(uint32_t /*object*/, int64_t /*size*/) {
    if (!done.empty()) return done.PopBack(slots);
    const size_t last = coming.Greatest();
    coming.Erase(last);
    return objects[last];
  }
  void Store(uint32_t object) {
    slots[object].uses = next[now - 1];
    if (slots[object].uses == kNone)
      done.PushFront(slots, object);
    else
      coming.Insert(slots[object].uses);
  }

  const uint32_t* const objects;
  const std::vector<uint32_t> next;
  BitTree coming;
  List done;
  size_t now = 0;  // requests made
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeBelady(int64_t capacity, const uint32_t* objects, size_t n) {
  return std::make_unique<PolicyOf<Belady>>(capacity, objects, n);
}

}  // namespace smartcache

#include "arc.hh"

#include <algorithm>

#include "policy_of.hh"

namespace smartcache {
namespace {

enum Place : uint8_t { kNowhere, kOnce, kAgain, kOnceGhost, kAgainGhost };

struct Arc : RuleBase {
  explicit Arc(int64_t whole) : capacity(static_cast<double>(whole)) {}

  void Hit(uint32_t object) { Move(object, kAgain); }

  void Resize(uint32_t object, int64_t change) { lists[slots[object].place].Resize(change); }

  bool Miss(uint32_t object, int64_t size) {
    came_from = static_cast<Place>(slots[object].place);
    const double once = Bytes(kOnceGhost), again = Bytes(kAgainGhost), step = static_cast<double>(size);
    if (came_from == kOnceGhost) target = std::min(capacity, target + step * std::max(1.0, again / std::max(once, 1.0)));
    if (came_from == kAgainGhost) target = std::max(0.0, target - step * std::max(1.0, once / std::max(again, 1.0)));
    Move(object, kNowhere);
    return true;
  }

  uint32_t Evict(uint32_t /*object*/, int64_t /*size*/) {
    const double once = Bytes(kOnce);
    const bool from_once =
        !lists[kOnce].empty() && (once > target || (came_from == kAgainGhost && once >= target) || lists[kAgain].empty());
    const uint32_t victim = lists[from_once ? kOnce : kAgain].back();
    Move(victim, from_once ? kOnceGhost : kAgainGhost);
    return victim;
  }

  void Store(uint32_t object) {
    Move(object, came_from == kNowhere ? kOnce : kAgain);
    while (Bytes(kOnce) + Bytes(kOnceGhost) > capacity && !lists[kOnceGhost].empty()) Move(lists[kOnceGhost].back(), kNowhere);
    while (Bytes(kOnce) + Bytes(kAgain) + Bytes(kOnceGhost) + Bytes(kAgainGhost) > 2 * capacity && !lists[kAgainGhost].empty())
      Move(lists[kAgainGhost].back(), kNowhere);
  }

  double Bytes(Place place) const { return static_cast<double>(lists[place].bytes()); }

  void Move(uint32_t object, Place to) {
    uint8_t& place = slots[object].place;
    if (place != kNowhere) lists[place].Remove(slots, object);
    place = to;
    if (to != kNowhere) lists[to].PushFront(slots, object);
  }

  const double capacity;
  List lists[5];
  double target = 0;  // p, in bytes
  Place came_from = kNowhere;
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeArc(int64_t capacity) { return std::make_unique<PolicyOf<Arc>>(capacity); }

}  // namespace smartcache

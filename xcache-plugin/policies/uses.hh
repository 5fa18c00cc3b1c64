// Admission by minimum uses, in front of any rule: an object is passed to the rule from its n-th request on, counted while it is
// remembered.
//
// What was refused is remembered in a ghost list, the most recently refused first, as long as their sizes sum to no more than the capacity:
// so an object that comes again after a whole turnover of refusals starts anew. What the rule stored and has evicted is not remembered: it
// needs n requests again. (A plain form of what pfc's users do by hand, and of the "second-hit" admission of CDNs: B. M. Maggs and R. K.
// Sitaraman, Algorithmic nuggets in content delivery, CCR 45(3), 2015.) Cost: O(1) a request; 24 bytes an object beside the rule's.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

constexpr uint32_t kMostUses = 9;

// uses is 2 to kMostUses.
std::unique_ptr<ObjectPolicy> MakeUses(int64_t capacity, uint32_t uses, std::unique_ptr<ObjectPolicy> rule);

}  // namespace smartcache

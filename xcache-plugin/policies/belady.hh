// Belady's MIN: out goes what is requested again last, or never; every miss is stored. It knows the future, so it is a bound, not a rule.
// With objects of one size no rule misses less (L. A. Belady, IBM Systems Journal 5(2), 1966). With sizes that differ it is the customary
// yardstick, and no strict bound: a rule that passes objects by can miss fewer bytes.
// Cost: O(log64 n) a request for a trace of n; 24 bytes an object and 4 1/8 a request of the trace, plus one pass over the trace
// beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

// objects are the n requests that will be made, in this order; they stay there until the policy is gone. n is below 2^32 - 1.
std::unique_ptr<ObjectPolicy> MakeBelady(int64_t capacity, const uint32_t* objects, size_t n);

}  // namespace smartcache

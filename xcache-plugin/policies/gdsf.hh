// Greedy-Dual-Size-Frequency: out goes the lowest of K = L + uses / bytes, where K is set at each request of the object and L is the K of
// what was evicted last. It wins objects and loses bytes: small ones stay. A new object whose K is the lowest is passed by, as the paper
// has it, in whose algorithm it is stored first and evicted again; L then rises to its K. L. Cherkasova, Improving WWW proxies performance
// with Greedy-Dual-Size-Frequency caching policy, HP Laboratories report HPL-98-69R1, 1998. Cost: ranked.hh.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeGdsf(int64_t capacity);

}  // namespace smartcache

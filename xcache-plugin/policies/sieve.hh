// SIEVE: a FIFO queue with one bit an object, set at a hit, and a hand that moves from the oldest to the newest: it clears set bits and
// evicts the first object whose bit is not set. What is kept keeps its place. Y. Zhang, J. Yang, Y. Yue, Y. Vigfusson, K. V. Rashmi, SIEVE
// is simpler than LRU, NSDI 2024. Cost: O(1) amortised a request, and no write to a list at a hit; 24 bytes an object.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeSieve(int64_t capacity);

}  // namespace smartcache

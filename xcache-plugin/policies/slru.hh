// Segmented LRU: four LRU lists, each a quarter of the bytes. A hit moves an object to the front of the next list; what a list has too much
// of falls to the front of the one below, and out of the lowest. A new object enters the lowest list that has room for it, or else the
// lowest. An object larger than a list is never stored. The lists are libCacheSim's; other than there, nothing is evicted at a hit, when
// the cache as a whole is not over its capacity. R. Karedla, J. S. Love, B. G. Wherry, Caching strategies to improve disk system
// performance, Computer 27(3), 1994 (there with two lists). Cost: O(1) amortised a request; 24 bytes an object.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeSlru(int64_t capacity);

}  // namespace smartcache

// Hyperbolic caching: of 64 stored objects drawn at random, out goes the lowest of uses / (requests since it was stored); of equals, the
// first that was drawn. Without cost or size in the priority, as in libCacheSim. The draws are splitmix64 of 1, 2, 3, ..., for
// another seed of later numbers: the same in every run. A. Blankstein, S. Sen, M. J. Freedman, Hyperbolic caching: flexible caching for web
// applications, USENIX ATC 2017. Cost: O(1) a request, 64 random reads an eviction; 24 bytes an object, and 4 more one that is stored.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeHyperbolic(int64_t capacity, uint64_t seed = 1);

}  // namespace smartcache

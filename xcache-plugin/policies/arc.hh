// ARC: two LRU lists, of what was requested once (T1) and again (T2), each with the ghosts of what it lost (B1, B2). A request for a ghost
// of B1 says that T1 was too small, one of B2 the opposite: the target p of T1 moves up by size * max(1, |B2|/|B1|), or down by size *
// max(1, |B1|/|B2|). The victim is the end of T1 while that is larger than p, else of T2. T1 and B1 hold at most the capacity, all four at
// most twice the capacity. All in bytes: |X| is the sum of the sizes, and a step is as large as the object. (libCacheSim steps by max(1,
// |B2|/|B1|) bytes whatever the size, so its p hardly moves: its figures differ.) N. Megiddo, D. S. Modha, ARC: a self-tuning, low overhead
// replacement cache, FAST 2003. Cost: O(1) amortised a request; 24 bytes an object.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeArc(int64_t capacity);

}  // namespace smartcache

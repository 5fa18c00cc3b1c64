// LIRS: keeps what was requested twice at the shortest distance. Stored objects are LIR (99 % of the bytes) or HIR (the rest, in queue Q,
// whose oldest is the victim). Stack S has the LIR objects and all that was requested since the last of them, also what is not stored any
// more: a request for an HIR object that is still in S was a short distance, so it becomes LIR, and the LIR objects at the bottom of S
// become HIR while they are too many. The bottom of S is LIR always. While the LIR share is not full, new objects are LIR. In bytes, as
// meant here: shares are of the sizes; room for a large object is made by as many victims as it takes, from Q, and where that is empty from
// the bottom of S; objects of any size up to the capacity are stored; what S remembers and is not stored sums to the capacity at most, the
// oldest is forgotten. (libCacheSim refuses new objects above 1 % of the capacity and evicts from both parts separately: its figures
// differ, by up to 0.2.) S. Jiang, X. Zhang, LIRS: an efficient low inter-reference recency set replacement policy to improve buffer cache
// performance, SIGMETRICS 2002. Cost: O(1) amortised a request; 48 bytes an object, since one may be in S and Q.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeLirs(int64_t capacity);

}  // namespace smartcache

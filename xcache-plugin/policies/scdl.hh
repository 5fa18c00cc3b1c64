// SCDL: two agents that learn by tabular Q-learning, while they serve, which objects to store and what to delete.
//
// M. Tracolli, M. Baioletti, V. Poggioni, D. Spiga, Effective big data caching through reinforcement learning, FiCloud 2020, and T.
// Tedeschi et al., Smart caching in a Data Lake for High Energy Physics analysis, arXiv:2208.06437, 2022; states, actions, rewards and
// rates as in the authors' simulator (github.com/Cloud-PG/smart-cache, "SCDL2", eviction when space is needed).
//   Q(s, a) += alpha (r + gamma max_b Q(s', b) - Q(s, a))                                         alpha = 0.9, gamma = 0.5
//   a random action with probability e = 0.1 + 0.9 exp(-lambda updates); else the best, of equals one at random
// Addition, asked at each miss: store, or not. State: size, requests, requests since the last one, fill of the cache, hit rate. Reward at
// the object's next request: hit +2, miss -1, and -1 more where it had not been stored; what was to be stored and found no room leaves
// none. Eviction, asked where room is needed, at most twice for one object: of each category of stored objects (size, requests, requests
// between the last two) delete none, one, a quarter, half or all, drawn at random. State: the category, its share of the cache, the hit
// rate. Reward, to what was chosen for an object last, at its next request: hit +1, +1 more where nothing was deleted, and +1 more where
// the cache has not filled since; miss -1, -1 more where something was deleted, and -1 more where the cache has filled since. What was
// chosen for each category when room was needed: +1, but -1 to deleting nothing where the object then found no room; it is not stored.
//
// What the papers leave open, or a configuration that we have not: the bounds of the classes that states are made of (scdl.cc; sizes are
// relative to the cache, so that they fit any trace), lambda = 0.0005, and that a state's successor is the one at the object's next
// request. Left out: that exploration begins anew where rewards fall for days, which needs a clock. Random by a seed. Cost: O(1) a request,
// a pass over at most 125 categories where room is needed; 24 bytes an object and 32 more, and the tables, 340 kB.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeScdl(int64_t capacity, uint64_t seed);

}  // namespace smartcache

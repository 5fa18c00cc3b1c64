// LFU: out goes what was requested least often since it was stored; of equals, what was requested longest ago. Counts start anew when an
// object is stored again (in-cache LFU). The rule of libCacheSim, its ties too. Cost: ranked.hh.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeLfu(int64_t capacity);

}  // namespace smartcache

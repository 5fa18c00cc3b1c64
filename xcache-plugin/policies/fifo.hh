// FIFO: out goes what was stored longest ago; a hit changes nothing.
// Cost: O(1) a request; 24 bytes an object.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeFifo(int64_t capacity);

}  // namespace smartcache

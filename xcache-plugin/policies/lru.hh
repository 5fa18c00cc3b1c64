// LRU: out goes what was requested longest ago. What XCache does on its own, between watermarks.
// Cost: O(1) a request; 24 bytes an object.
#pragma once

#include <cstdint>
#include <memory>

#include "object_policy.hh"

namespace smartcache {

std::unique_ptr<ObjectPolicy> MakeLru(int64_t capacity);

}  // namespace smartcache

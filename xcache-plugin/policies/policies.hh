// The rules by name: "lru", "gdsf", ..., each with an admission in front where its name begins with one: "uses2+lru" stores at the second
// request (uses.hh; 2 to 9). And a whole trace through one of them.
//
// Thread-safety: free functions, none shares anything. Failure: std::invalid_argument, whose text names the argument, the rule, the value
// and the way out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "object_policy.hh"

namespace smartcache {

// A sequence of requests: n objects with the sizes that each request states.
struct Trace {
  const uint32_t* objects;
  const int64_t* sizes;
  size_t n;
};

const std::vector<std::string>& PolicyNames();

// capacity in bytes, above 0. future is what belady knows, and must outlive the policy; all other rules are made without. seed: of
// hyperbolic and scdl.
std::unique_ptr<ObjectPolicy> MakePolicy(std::string_view name, int64_t capacity, const Trace* future = nullptr, uint64_t seed = 1);

// The trace through the rule, in windows of equal numbers of requests: what was counted in each.
std::vector<PolicyCounters> SimulateObjects(std::string_view name, const Trace& trace, int64_t capacity, int64_t windows,
                                            uint64_t seed = 1);

}  // namespace smartcache

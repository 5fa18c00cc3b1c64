// Requests for tests, and what a rule made of them.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policies/object_policy.hh"

namespace smartcache::testing {

// 'a' is object 0; all of one size. 'h' for each hit, 'm' for each miss.
inline std::string Outcome(ObjectPolicy& policy, std::string_view letters, int64_t size = 1) {
  std::string outcome;
  for (const char letter : letters) outcome += policy.Request(static_cast<uint32_t>(letter - 'a'), size) ? 'h' : 'm';
  return outcome;
}

inline std::string Held(const ObjectPolicy& policy) {
  std::string held;
  for (char letter = 'a'; letter <= 'z'; ++letter)
    if (policy.Holds(static_cast<uint32_t>(letter - 'a'))) held += letter;
  return held;
}

// Requests objects `first` to before `last`, `size` each. How many hits?
inline int Range(ObjectPolicy& policy, uint32_t first, uint32_t last, int64_t size = 1) {
  int hits = 0;
  for (uint32_t object = first; object < last; ++object) hits += policy.Request(object, size);
  return hits;
}

struct Requests {
  std::vector<uint32_t> objects;
  std::vector<int64_t> sizes;
};

// Few objects often and many rarely, of sizes 0 to 29; where they change, a request in eight states another size than the one before.
inline Requests RandomRequests(uint64_t seed, size_t n, uint32_t objects, bool sizes_change) {
  std::mt19937_64 random(seed);
  std::map<uint32_t, int64_t> size_of;
  Requests requests;
  for (size_t i = 0; i < n; ++i) {
    const auto object = static_cast<uint32_t>(random() % (random() % objects + 1));
    const bool is_new = size_of.find(object) == size_of.end();
    if (is_new || (sizes_change && random() % 8 == 0)) size_of[object] = static_cast<int64_t>(random() % 30);
    requests.objects.push_back(object);
    requests.sizes.push_back(size_of[object]);
  }
  return requests;
}

}  // namespace smartcache::testing

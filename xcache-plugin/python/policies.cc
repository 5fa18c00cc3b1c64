#include "policies.hh"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "policies/policies.hh"

namespace nb = nanobind;

namespace {

using smartcache::PolicyCounters;
template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<nb::numpy, int64_t>;

Counts CountsOf(const std::vector<PolicyCounters>& windows, int64_t PolicyCounters::*field) {
  auto* values = new int64_t[windows.size()];
  nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<int64_t*>(p); });
  for (size_t i = 0; i < windows.size(); ++i) values[i] = windows[i].*field;
  const size_t shape[1] = {windows.size()};
  return Counts(values, 1, shape, owner);
}

nb::dict Simulate(const std::string& policy, const Column<uint32_t>& objects, const Column<int64_t>& sizes, int64_t capacity,
                  int64_t windows, uint64_t seed) {
  if (sizes.shape(0) != objects.shape(0))
    throw nb::value_error(("sizes: must be as many as objects, " + std::to_string(objects.shape(0)) + ", are " +
                           std::to_string(sizes.shape(0)) + "; give each request the size of its object")
                              .c_str());
  std::vector<PolicyCounters> result;
  {
    const nb::gil_scoped_release unlocked;
    result = smartcache::SimulateObjects(policy, {objects.data(), sizes.data(), objects.shape(0)}, capacity, windows, seed);
  }
  nb::dict counts;
  counts["requests"] = CountsOf(result, &PolicyCounters::requests);
  counts["hits"] = CountsOf(result, &PolicyCounters::hits);
  counts["bytes"] = CountsOf(result, &PolicyCounters::bytes);
  counts["hit_bytes"] = CountsOf(result, &PolicyCounters::hit_bytes);
  counts["written_bytes"] = CountsOf(result, &PolicyCounters::written_bytes);
  counts["deleted_bytes"] = CountsOf(result, &PolicyCounters::deleted_bytes);
  counts["objects_deleted"] = CountsOf(result, &PolicyCounters::objects_deleted);
  return counts;
}

}  // namespace

void BindPolicies(nb::module_& m) {
  m.def(
      "cache_policies", &smartcache::PolicyNames,
      "The names of the cache rules of the literature, in a fixed order. simulate_objects also takes each but belady behind an admission: "
      "\"uses2+lru\" stores at the second request, up to \"uses9+\".");
  m.def("simulate_objects", &Simulate, nb::arg("policy"), nb::arg("objects"), nb::arg("sizes"), nb::arg("capacity"), nb::arg("windows") = 1,
        nb::arg("seed") = 1,
        "What a cache of `capacity` bytes that starts empty would have done with these requests for whole objects. objects: dense ids from "
        "0; "
        "sizes: bytes, one for each request; windows: the requests in this many equal parts, one count for each. Counts requests, hits, "
        "bytes "
        "(requested), hit_bytes, written_bytes (stored on a miss), deleted_bytes and objects_deleted. An object larger than the capacity "
        "is never "
        "stored; one whose size changes counts with the new size. ValueError names the argument, the rule, the value and the way out. "
        "The same seed gives the same outcome; of hyperbolic and scdl, another one another. "
        "Releases the GIL.");
}

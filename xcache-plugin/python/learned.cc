#include "learned.hh"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "policies/portfolio.hh"

namespace nb = nanobind;

namespace {

using smartcache::LabelledRows;
using smartcache::ReuseFeatures;
using smartcache::ReuseTrees;
template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::vector<T> Copied(const Column<T>& column) {
  return {column.data(), column.data() + column.shape(0)};
}

// An array of NumPy's that takes the vector over.
template <typename T>
nb::ndarray<nb::numpy, T> Given(std::vector<T> values, std::initializer_list<size_t> shape) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T>(owned->data(), shape, owner);
}

[[noreturn]] void Refuse(const std::string& text) { throw std::invalid_argument(text); }

class LearnedCache {
 public:
  LearnedCache(int64_t capacity, const Column<uint32_t>& groups, uint64_t seed, const std::vector<std::string>& left_out)
      : portfolio_(Checked(capacity), Dense(groups), Options(seed, left_out)) {}

  void Replay(const Column<uint32_t>& objects, const Column<int64_t>& sizes) {
    const size_t n = objects.shape(0);
    if (sizes.shape(0) != n) Refuse("sizes: must be as many as objects, " + std::to_string(n) + ", are " + std::to_string(sizes.shape(0)));
    for (size_t i = 0; i < n; ++i) {
      if (objects.data()[i] >= portfolio_.learned->objects())
        Refuse("objects[" + std::to_string(i) + "]: must be below the number of groups, " + std::to_string(portfolio_.learned->objects()) +
               ", is " + std::to_string(objects.data()[i]));
      if (sizes.data()[i] < 0) Refuse("sizes[" + std::to_string(i) + "]: must not be negative, is " + std::to_string(sizes.data()[i]));
    }
    const nb::gil_scoped_release unlocked;
    portfolio_.cache->Replay(objects.data(), sizes.data(), n);
  }

  nb::dict Counters(bool alone) const {
    const smartcache::PolicyCounters counted = alone ? portfolio_.learned->counters() : portfolio_.cache->counters();
    nb::dict result;
    result["requests"] = counted.requests;
    result["hits"] = counted.hits;
    result["bytes"] = counted.bytes;
    result["hit_bytes"] = counted.hit_bytes;
    result["written_bytes"] = counted.written_bytes;
    result["deleted_bytes"] = counted.deleted_bytes;
    result["objects_deleted"] = counted.objects_deleted;
    return result;
  }

  nb::tuple Labelled(size_t most, uint64_t seed) const {
    LabelledRows rows;
    {
      const nb::gil_scoped_release unlocked;
      rows = portfolio_.learned->Labelled(most, seed);
    }
    const size_t count = rows.again.size();
    return nb::make_tuple(Given(std::move(rows.rows), {count, rows.width}), Given(std::move(rows.again), {count}));
  }

  void UseTrees(const Column<int32_t>& feature, const Column<float>& threshold, const Column<int32_t>& left, const Column<int32_t>& right,
                const Column<float>& leaf, const Column<int32_t>& roots) {
    const ReuseTrees::Parts parts{Copied(feature), Copied(threshold), Copied(left), Copied(right), Copied(leaf), Copied(roots)};
    portfolio_.learned->Use(std::make_unique<ReuseTrees>(parts, ReuseFeatures::count()));
  }

  double horizon() const { return portfolio_.learned->horizon(); }
  double now() const { return portfolio_.learned->now(); }
  double weight() const { return portfolio_.shadows.weight(smartcache::Shadows::kJoined); }

 private:
  static int64_t Checked(int64_t capacity) {
    if (capacity <= 0) Refuse("capacity: must be above 0 bytes, is " + std::to_string(capacity));
    return capacity;
  }
  // The bound keeps one stray number from making a table of gigabytes.
  static std::vector<uint32_t> Dense(const Column<uint32_t>& groups) {
    for (size_t i = 0; i < groups.shape(0); ++i)
      if (groups.data()[i] >= groups.shape(0))
        Refuse("groups[" + std::to_string(i) + "]: must be dense numbers from 0, so below their count, " + std::to_string(groups.shape(0)) +
               ", is " + std::to_string(groups.data()[i]));
    return Copied(groups);
  }
  static smartcache::LearnedOptions Options(uint64_t seed, const std::vector<std::string>& left_out) {
    smartcache::LearnedOptions options;
    options.seed = seed;
    options.left_out = left_out;
    return options;
  }

  smartcache::LearnedPortfolio portfolio_;
};

}  // namespace

void BindLearned(nb::module_& m) {
  m.def("reuse_features", &ReuseFeatures::Names, "The names of the features of a row of LearnedCache.labelled, in their order.");
  m.def("reuse_feature_kinds", &ReuseFeatures::Kinds, "The kind of each of them: what LearnedCache can leave out.");
  nb::class_<LearnedCache>(m, "LearnedCache",
                           "A cache that starts empty and learns online which objects will be requested again soon. Not thread-safe. "
                           "ValueError names the argument, the rule and the value.")
      .def(nb::init<int64_t, const Column<uint32_t>&, uint64_t, const std::vector<std::string>&>(), nb::arg("capacity"), nb::arg("groups"),
           nb::arg("seed") = 1, nb::arg("left_out") = std::vector<std::string>(),
           "A cache of `capacity` bytes. groups: the dataset of each object, dense numbers from 0; objects are numbered from 0 too. "
           "left_out: kinds of features that are unknown to the model.")
      .def("replay", &LearnedCache::Replay, nb::arg("objects"), nb::arg("sizes"),
           "Requests in their order, with the size in bytes at each. Releases the GIL.")
      .def("counters", &LearnedCache::Counters, nb::arg("alone") = false,
           "What was counted so far: the names of simulate_objects. alone: of the cache that keeps what the model says, one of the experts "
           "that this cache follows.")
      .def(
          "labelled", &LearnedCache::Labelled, nb::arg("most"), nb::arg("seed"),
          "(rows float32 [n, features], again uint8 [n]): of the remembered rows that are older than the horizon at most so many, drawn by "
          "the seed, and whether their object was requested again within it. Releases the GIL.")
      .def("use_trees", &LearnedCache::UseTrees, nb::arg("feature"), nb::arg("threshold"), nb::arg("left"), nb::arg("right"),
           nb::arg("leaf"), nb::arg("roots"),
           "Decide by boosted trees from now on: a row goes left where its feature is at most the threshold; a child or root below 0 is "
           "leaf "
           "~child.")
      .def_prop_ro("horizon", &LearnedCache::horizon, "Turnovers: within how many a row's object must be requested again to count.")
      .def_prop_ro("now", &LearnedCache::now, "Turnovers so far: requested bytes over the capacity.")
      .def_prop_ro("weight", &LearnedCache::weight, "How much of the vote the model has, 0 to 1.");
}

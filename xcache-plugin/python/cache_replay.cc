#include "cache_replay.hh"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smartcache/cache_replay.hh"

namespace nb = nanobind;

namespace {

using smartcache::PastOpen;
using smartcache::ReplayModel;
using smartcache::ReplayRules;
template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class CacheReplay {
 public:
  CacheReplay(const std::string& toml, int64_t capacity, const std::string& bundle_folder, const std::vector<double>& bucket_edges_s,
              size_t horizon_buckets, double admit, double evict, const ReplayRules& rules)
      : replay_(smartcache::ParseConfig(toml, "configuration"), capacity,
                bundle_folder.empty() ? std::nullopt
                                      : std::optional<ReplayModel>(ReplayModel{smartcache::Network::Read(bundle_folder + "/weights.json"),
                                                                               bucket_edges_s, horizon_buckets, admit, evict}),
                rules) {}

  void Open(const Column<int64_t>& t_us, const nb::list& lfn, const Column<int64_t>& size, const Column<int64_t>& b_read,
            const Column<bool>& asked) {
    const size_t n = t_us.shape(0);
    if (lfn.size() != n || size.shape(0) != n || b_read.shape(0) != n || asked.shape(0) != n)
      throw nb::value_error("open: t_us, lfn, size, b_read and asked must be of one length");
    // The texts are owned here, so that nobody can change the list while the loop runs without the GIL.
    std::vector<nb::object> owned(n);
    std::vector<std::string_view> names(n);
    for (size_t i = 0; i < n; ++i) {
      owned[i] = nb::borrow(lfn[i]);
      Py_ssize_t length = 0;
      const char* text = PyUnicode_Check(owned[i].ptr()) ? PyUnicode_AsUTF8AndSize(owned[i].ptr(), &length) : nullptr;
      if (!text) {
        if (PyErr_Occurred()) throw nb::python_error();
        throw nb::type_error(("open: lfn[" + std::to_string(i) + "] must be a str").c_str());
      }
      names[i] = {text, static_cast<size_t>(length)};
      if (size.data()[i] < 0)
        throw nb::value_error(("open: size[" + std::to_string(i) + "] must not be negative, is " + std::to_string(size.data()[i]) +
                               "; leave opens of unknown size out")
                                  .c_str());
    }
    const nb::gil_scoped_release unlocked;
    for (size_t i = 0; i < n; ++i) replay_.Open(PastOpen{t_us.data()[i], names[i], size.data()[i], b_read.data()[i], asked.data()[i]});
  }

  void Name(const Column<uint8_t>& text, const Column<int64_t>& ends) {
    std::vector<std::string> names(ends.shape(0));
    const auto* at = reinterpret_cast<const char*>(text.data());
    int64_t begin = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      const int64_t end = ends.data()[i];
      if (end < begin || static_cast<uint64_t>(end) > text.shape(0))
        throw nb::value_error(("name: ends[" + std::to_string(i) + "] must not be before the one before it, nor after the text's end, " +
                               std::to_string(text.shape(0)) + ", is " + std::to_string(end))
                                  .c_str());
      names[i].assign(at + begin, static_cast<size_t>(end - begin));
      begin = end;
    }
    names_ = std::move(names);
  }

  void Replay(const Column<uint32_t>& file, const Column<int64_t>& t_us, const Column<int64_t>& size, const Column<int64_t>& b_read,
              const Column<int64_t>& next_us) {
    const size_t n = file.shape(0);
    if (t_us.shape(0) != n || size.shape(0) != n || b_read.shape(0) != n || next_us.shape(0) != n)
      throw nb::value_error("replay: file, t_us, size, b_read and next_us must be of one length");
    for (size_t i = 0; i < n; ++i) {
      if (file.data()[i] >= names_.size())
        throw nb::value_error(("replay: file[" + std::to_string(i) + "] must be below the number of names, " +
                               std::to_string(names_.size()) + ", is " + std::to_string(file.data()[i]))
                                  .c_str());
      if (size.data()[i] < 0)
        throw nb::value_error(
            ("replay: size[" + std::to_string(i) + "] must not be negative, is " + std::to_string(size.data()[i])).c_str());
    }
    const nb::gil_scoped_release unlocked;
    for (size_t i = 0; i < n; ++i)
      replay_.Open(PastOpen{t_us.data()[i], names_[file.data()[i]], size.data()[i], b_read.data()[i], true, next_us.data()[i]});
  }

  nb::dict Counters() const {
    const smartcache::ReplayCounters& counted = replay_.counters();
    nb::dict result;
    result["opens"] = counted.opens;
    result["hits"] = counted.hits;
    result["bytes"] = counted.bytes;
    result["missed_bytes"] = counted.missed_bytes;
    result["fetched_bytes"] = counted.fetched_bytes;
    result["written_bytes"] = counted.written_bytes;
    result["bypassed"] = counted.bypassed;
    result["evicted"] = counted.evicted;
    result["refused"] = counted.refused;
    result["purged_bytes"] = counted.purged_bytes;
    result["evicted_bytes"] = counted.evicted_bytes;
    result["removed_files"] = counted.removed_files;
    return result;
  }

 private:
  smartcache::CacheReplay replay_;
  std::vector<std::string> names_;
};

// As keywords, with the defaults of the core.
ReplayRules Rules(int64_t block_bytes, double purge_interval_s, double purge_high, double purge_low, bool fallback, int admit_at,
                  bool foresight, bool portfolio) {
  ReplayRules rules;
  rules.block_bytes = block_bytes;
  rules.purge_interval_s = purge_interval_s;
  rules.purge_high = purge_high;
  rules.purge_low = purge_low;
  rules.fallback = fallback;
  rules.admit_at = admit_at;
  rules.foresight = foresight;
  rules.portfolio = portfolio;
  return rules;
}

}  // namespace

void BindCacheReplay(nb::module_& m) {
  const ReplayRules usual;
  nb::class_<ReplayRules>(m, "ReplayRules", "How the cache of a CacheReplay works: cache_replay.hh has what each means.")
      .def(nb::new_(&Rules), nb::kw_only(), nb::arg("block_bytes") = usual.block_bytes,
           nb::arg("purge_interval_s") = usual.purge_interval_s, nb::arg("purge_high") = usual.purge_high,
           nb::arg("purge_low") = usual.purge_low, nb::arg("fallback") = usual.fallback, nb::arg("admit_at") = usual.admit_at,
           nb::arg("foresight") = usual.foresight, nb::arg("portfolio") = usual.portfolio);
  nb::class_<CacheReplay>(m, "CacheReplay",
                          "One cache, replayed on opens of the past with the code that the plugin decides by. Not thread-safe.")
      .def(nb::init<const std::string&, int64_t, const std::string&, const std::vector<double>&, size_t, double, double,
                    const ReplayRules&>(),
           nb::arg("config_toml"), nb::arg("capacity"), nb::arg("bundle_folder") = "", nb::arg("bucket_edges_s") = std::vector<double>(),
           nb::arg("horizon_buckets") = 0, nb::arg("admit") = 0.0, nb::arg("evict") = 0.0, nb::arg("rules") = ReplayRules{})
      .def("open", &CacheReplay::Open, nb::arg("t_us"), nb::arg("lfn"), nb::arg("size"), nb::arg("b_read"), nb::arg("asked"),
           "Opens in the order of their times. Releases the GIL.")
      .def("name", &CacheReplay::Name, nb::arg("text"), nb::arg("ends"),
           "The names of the files that `replay` calls by number, in bytes, one after the other, and where each ends.")
      .def("replay", &CacheReplay::Replay, nb::arg("file"), nb::arg("t_us"), nb::arg("size"), nb::arg("b_read"), nb::arg("next_us"),
           "The same as `open`, with the files by number, all asked for; next_us: of the file's next open, the largest number where there "
           "is none. Releases the GIL.")
      .def("counters", &CacheReplay::Counters, "What came of all opens so far.");
}

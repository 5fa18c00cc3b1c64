// smartcache._core: the C++ core for Python, so that Spark, training and the simulator compute features with the code that the plugin runs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <atomic>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cache_replay.hh"
#include "cinfo.hh"
#include "embedded.hh"
#include "learned.hh"
#include "policies.hh"
#include "side_table.hh"
#include "smartcache/features.hh"
#include "smartcache/history_file.hh"
#include "smartcache/side_table.hh"

namespace nb = nanobind;
using smartcache::FeatureCore;
using smartcache::Open;
using smartcache::ParsedLfn;
using smartcache::SideTable;

namespace {

using Floats = nb::ndarray<nb::numpy, float>;
template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Floats Adopt(std::unique_ptr<float[]> data, std::initializer_list<size_t> shape) {
  nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Floats(data.release(), shape, owner);
}

std::string_view View(nb::handle text) {
  Py_ssize_t length = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &length);
  if (!data) throw nb::python_error();
  return {data, static_cast<size_t>(length)};
}

smartcache::Config Parse(const std::string& toml) { return smartcache::ParseConfig(toml, "configuration"); }

class Core {
 public:
  explicit Core(const std::string& toml) : config_(Parse(toml)), core_(config_), width_(core_.schema().names.size()) {}

  std::string DatasetOf(std::string_view lfn) const { return core_.parser().DatasetOf(lfn); }

  Floats Observe(int64_t t_us, std::string_view lfn, bool on_disk, int64_t size, double fill, double read_share,
                 const SideTable* side_table) {
    const Use use(&busy_);
    std::unique_ptr<float[]> row(new float[width_]);
    ObserveInto(Open{t_us, lfn, on_disk, size, static_cast<float>(fill), static_cast<float>(read_share)}, side_table, row.get());
    return Adopt(std::move(row), {width_});
  }

  Floats Replay(const Column<int64_t>& t_us, const nb::list& lfn, const Column<bool>& on_disk, const Column<int64_t>& size,
                const Column<float>& fill, const std::optional<Column<float>>& read_share, const SideTable* side_table) {
    const Use use(&busy_);
    const size_t n = t_us.shape(0);
    const auto check = [n](const char* name, size_t length) {
      if (length != n)
        throw nb::value_error(("replay: " + std::string(name) + " has " + std::to_string(length) + " entries, t_us has " +
                               std::to_string(n) + "; all columns must be of one length")
                                  .c_str());
    };
    check("lfn", lfn.size());
    check("on_disk", on_disk.shape(0));
    check("size", size.shape(0));
    check("fill", fill.shape(0));
    if (read_share) check("read_share", read_share->shape(0));
    // The texts are owned here, so that nobody can change the list while the loop runs without the GIL.
    std::vector<nb::object> owned(n);
    std::vector<std::string_view> names(n);
    for (size_t i = 0; i < n; ++i) {
      owned[i] = nb::borrow(lfn[i]);
      if (!PyUnicode_Check(owned[i].ptr())) throw nb::type_error(("replay: lfn[" + std::to_string(i) + "] must be a str").c_str());
      names[i] = View(owned[i]);
    }
    std::unique_ptr<float[]> rows(new float[n * width_]);
    {
      const nb::gil_scoped_release unlocked;
      for (size_t i = 0; i < n; ++i)
        ObserveInto(
            Open{t_us.data()[i], names[i], on_disk.data()[i], size.data()[i], fill.data()[i], read_share ? read_share->data()[i] : -1.0f},
            side_table, rows.get() + i * width_);
    }
    return Adopt(std::move(rows), {n, width_});
  }

  nb::bytes Save() {
    const Use use(&busy_);
    std::string bytes, why;
    {
      const nb::gil_scoped_release unlocked;
      std::mutex unshared;
      const auto sink = [&bytes](const void* data, size_t size) {
        bytes.append(static_cast<const char*>(data), size);
        return true;
      };
      if (!smartcache::WriteHistory(
              config_, &core_.history(), &unshared, [] { return smartcache::HistoryState{}; }, sink, &why))
        throw std::runtime_error("the history " + why);
    }
    return nb::bytes(bytes.data(), bytes.size());
  }

  void Restore(const nb::bytes& bytes) {
    const Use use(&busy_);
    const std::string_view view(static_cast<const char*>(bytes.data()), bytes.size());
    std::string why;
    smartcache::HistoryState state;
    const nb::gil_scoped_release unlocked;
    core_.history().Clear();
    if (!smartcache::RestoreHistory(view, config_, &core_.history(), &state, &why))
      throw std::invalid_argument("restore: what was given " + why);
  }

  uint64_t files() const { return core_.history().files(); }
  uint64_t datasets() const { return core_.history().datasets(); }
  uint64_t memory_bytes() const { return core_.history().memory_bytes(); }

 private:
  // replay lets go of the GIL, so another thread may call meanwhile: that is refused, or both would write to one history.
  class Use {
   public:
    explicit Use(std::atomic<bool>* busy) : busy_(busy) {
      if (busy->exchange(true))
        throw std::runtime_error("this Core is in use by another thread; give each thread a Core of its own, or take a lock");
    }
    ~Use() { *busy_ = false; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    std::atomic<bool>* busy_;
  };

  void ObserveInto(const Open& open, const SideTable* side_table, float* out) {
    ParsedLfn parsed;
    core_.Parse(open.lfn, &parsed);
    core_.Observe(smartcache::Sanitised(open), parsed, out, side_table ? side_table->Find(parsed.dataset) : smartcache::Federation{});
  }

  const smartcache::Config config_;
  FeatureCore core_;
  const size_t width_;
  std::atomic<bool> busy_{false};
};

nb::dict SchemaOf(const std::string& toml) {
  const smartcache::Schema schema = smartcache::MakeSchema(Parse(toml));
  nb::list names;
  for (const std::string& name : schema.names) names.append(nb::str(name.c_str()));
  nb::dict result;
  result["version"] = smartcache::kSchemaVersion;
  result["names"] = names;
  result["hash"] = schema.hash;
  result["text"] = schema.text;
  return result;
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The decision core: dataset names, history and features of opens, as the plugin computes them.";
  // A configuration that cannot be used is a ValueError whose text says field, rule, value and fix.
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const smartcache::ConfigError& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });
  BindCacheReplay(m);
  BindCinfo(m);
  BindEmbeddedModel(m);
  BindPolicies(m);
  BindLearned(m);
  BindSideTable(m);
  m.def("schema", &SchemaOf, nb::arg("config_toml") = "",
        "The feature schema: version, names, hash, and the canonical text that is hashed.");
  nb::class_<Core>(m, "Core", "The history and features of one cache. Not thread-safe: RuntimeError where two threads use it.")
      .def(nb::init<const std::string&>(), nb::arg("config_toml") = "")
      .def("dataset_of", &Core::DatasetOf, nb::arg("lfn"), "The dataset that an LFN belongs to.")
      .def("observe", &Core::Observe, nb::arg("t_us"), nb::arg("lfn"), nb::arg("on_disk"), nb::arg("size"), nb::arg("fill"),
           nb::arg("read_share") = -1.0, nb::arg("side_table").none() = nb::none(),
           "The features of this open as they were just before it, with this side table; then records it.")
      .def("replay", &Core::Replay, nb::arg("t_us"), nb::arg("lfn"), nb::arg("on_disk"), nb::arg("size"), nb::arg("fill"),
           nb::arg("read_share") = nb::none(), nb::arg("side_table").none() = nb::none(),
           "observe for every row in turn: one row of features each. Releases the GIL.")
      .def("save", &Core::Save, "The history as bytes: what the plugin keeps in [history] file. Releases the GIL.")
      .def(
          "restore", &Core::Restore, nb::arg("bytes"),
          "Replaces the history by one that was saved under the same [dataset] and half-lives. ValueError where it is none; the history is "
          "then empty.")
      .def_prop_ro("files", &Core::files, "Files remembered.")
      .def_prop_ro("datasets", &Core::datasets, "Datasets remembered.")
      .def_prop_ro("memory_bytes", &Core::memory_bytes, "Memory in use by the history; never more than configured.");
}

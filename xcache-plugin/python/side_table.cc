#include "side_table.hh"

#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "smartcache/side_table.hh"

namespace nb = nanobind;
using smartcache::SideTable;

namespace {

void Make(SideTable* self, const nb::bytes& bytes) {
  const std::string_view text(static_cast<const char*>(bytes.data()), bytes.size());
  const nb::gil_scoped_release unlocked;
  try {
    new (self) SideTable(text, "side table");
  } catch (const smartcache::SideTableError& error) {
    throw std::invalid_argument(error.what());
  }
}

}  // namespace

void BindSideTable(nb::module_& m) {
  nb::class_<SideTable>(m, "SideTable", "A dataset side table (contract 8), as the plugin reads it. Immutable, thread-safe.")
      .def("__init__", &Make, nb::arg("bytes"), "Of the bytes of its file; ValueError says what is wrong with them. Releases the GIL.")
      .def_prop_ro("version", &SideTable::version, "As its head says.")
      .def_prop_ro("until_us", &SideTable::until_us, "As its head says.")
      .def_prop_ro("datasets", &SideTable::datasets, "How many it has.");
}

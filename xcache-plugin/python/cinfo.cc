#include "cinfo.hh"

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "smartcache/cinfo.hh"

namespace nb = nanobind;

namespace {

nb::dict AccessOf(const smartcache::Cinfo::Access& access) {
  nb::dict result;
  result["attach_s"] = access.attach_s;
  result["detach_s"] = access.detach_s;
  result["duration_s"] = access.duration_s;
  result["clients"] = access.clients;
  result["times"] = access.times;
  result["hit"] = access.hit;
  result["missed"] = access.missed;
  result["bypassed"] = access.bypassed;
  return result;
}

nb::dict Parse(const nb::bytes& bytes) {
  const std::string_view view(static_cast<const char*>(bytes.data()), bytes.size());
  smartcache::Cinfo cinfo;
  std::string why;
  bool parsed = false;
  {
    const nb::gil_scoped_release unlocked;
    parsed = smartcache::ParseCinfo(view, &cinfo, &why);
  }
  if (!parsed) throw nb::value_error(why.c_str());
  nb::list accesses;
  for (const auto& record : cinfo.records) accesses.append(AccessOf(record));
  nb::dict result;
  result["version"] = cinfo.version;
  result["block_bytes"] = cinfo.block_bytes;
  result["file_bytes"] = cinfo.file_bytes;
  result["created_s"] = cinfo.created_s;
  result["no_checksum_s"] = cinfo.no_checksum_s;
  result["checksums"] = cinfo.checksums;
  result["blocks"] = cinfo.blocks;
  result["blocks_present"] = cinfo.blocks_present;
  result["accesses"] = cinfo.accesses;
  result["records"] = accesses;
  return result;
}

}  // namespace

void BindCinfo(nb::module_& m) {
  m.def("parse_cinfo", &Parse, nb::arg("bytes"),
        "What a .cinfo says, its checksums verified. ValueError says why it says nothing. Releases the GIL.");
}

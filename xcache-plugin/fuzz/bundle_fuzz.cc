// Any bytes as bundle.json and golden.json, cut apart at the first zero byte: refused by a BundleError, or a bundle that makes sense.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "smartcache/bundle.hh"

namespace {

struct Folder {
  Folder() : path(std::filesystem::temp_directory_path() / "smartcache-fuzz-XXXXXX") {
    if (!::mkdtemp(path.data())) std::abort();
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

void Write(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace smartcache;
  static const Folder folder;
  static const Schema schema = MakeSchema(ParseConfig("", "fuzz"));
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t zero = all.find('\0');
  Write(folder.path + "/bundle.json", all.substr(0, zero));
  if (zero != std::string_view::npos)
    Write(folder.path + "/golden.json", all.substr(zero + 1));
  else
    std::filesystem::remove(folder.path + "/golden.json");
  try {
    const Bundle bundle = ReadBundle(folder.path, schema);
    if (!(0 <= bundle.evict && bundle.evict <= bundle.admit && bundle.admit <= 1)) std::abort();
    if (bundle.buckets < 2 || bundle.buckets > kMaxBuckets || bundle.horizon_buckets < 1 || bundle.horizon_buckets >= bundle.buckets)
      std::abort();
    if (bundle.golden_inputs.size() != bundle.golden_outputs.size()) std::abort();
  } catch (const BundleError& error) {
    if (error.what()[0] == '\0') std::abort();
  }
  return 0;
}

// Any bytes as a dataset side table: refused by a SideTableError, or a table whose every answer makes sense and can be a feature.
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "smartcache/features.hh"
#include "smartcache/sha256.hh"
#include "smartcache/side_table.hh"

namespace {

using namespace smartcache;

// The foot stands in the way of a fuzzer: with the first byte odd, one that fits takes the place of the last line.
std::string Mended(const unsigned char* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 0 || text.empty()) return text;
  const size_t before = text.rfind('\n', text.size() - 2);
  text.resize(before == std::string::npos ? 0 : before + 1);
  size_t lines = 0;
  for (const char c : text) lines += c == '\n';
  Sha256 hash;
  hash.Add(text);
  return text + "{\"rows\":" + std::to_string(lines - (lines > 0)) + ",\"sha256\":\"" + hash.Hex() + "\"}\n";
}

void Check(const SideTable& table, uint64_t key) {
  static FeatureCore core(ParseConfig("[history]\nmemory_bytes = 65536\n", "fuzz"));
  static std::vector<float> features(core.schema().names.size());
  const Federation found = table.Find(key);
  if (found.until_us != table.until_us() || found.until_us < 0) std::abort();
  if (found.known && (found.last_open_us > found.until_us || found.part_read > 1 || found.opens_shortest > found.opens)) std::abort();
  ParsedLfn parsed;
  core.Parse("/a/b", &parsed);
  core.Observe(Sanitised(Open{1, "/a/b", false, -1, -1}), parsed, features.data(), found);
  for (const float each : features) {
    if (!std::isfinite(each)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  if (size == 0) return 0;
  const std::string text = Mended(data, size);
  try {
    const SideTable table(text, "fuzz");
    for (const uint64_t key : {UINT64_C(0), UINT64_MAX, LfnParser::DatasetKey("/store/a"), LfnParser::DatasetKey("/store/b")})
      Check(table, key);
  } catch (const SideTableError& error) {
    if (error.what()[0] == '\0') std::abort();
  }
  return 0;
}

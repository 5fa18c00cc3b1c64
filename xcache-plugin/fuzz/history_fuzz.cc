// Any bytes as a saved history: refused with a reason, or a history that goes on: its features are finite, and it can be saved again.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "smartcache/crc32c.hh"
#include "smartcache/features.hh"
#include "smartcache/history_file.hh"

namespace {

using namespace smartcache;

// The checksums stand in the way of a fuzzer: with the first byte odd they are put right, that of the header and of each block.
std::string Mended(const unsigned char* data, size_t size) {
  constexpr size_t kHeader = 80, kEntryBytesAt = 64, kCrcAt = 76, kBlockHead = 8;
  std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 0 || bytes.size() < kHeader) return bytes;
  const std::string_view view = bytes;
  const auto put = [&](size_t at, uint32_t sum) { std::memcpy(&bytes[at], &sum, sizeof sum); };
  const auto get = [&](size_t at) {
    uint32_t value;
    std::memcpy(&value, &bytes[at], sizeof value);
    return value;
  };
  put(kCrcAt, Crc32c(view.substr(0, kCrcAt)));
  const size_t entry_bytes = get(kEntryBytesAt);
  for (size_t at = kHeader; at + kBlockHead <= bytes.size();) {
    const size_t length = std::min(get(at) * entry_bytes, bytes.size() - at - kBlockHead);
    put(at + 4, Crc32c(view.substr(at + kBlockHead, length)));
    at += kBlockHead + length;
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  static const Config config = ParseConfig("[history]\nmemory_bytes = 65536\n", "fuzz");
  if (size == 0) return 0;
  FeatureCore core(config);
  HistoryState state;
  std::string why;
  if (!RestoreHistory(Mended(data, size), config, &core.history(), &state, &why)) {
    if (why.empty() || core.history().files() + core.history().datasets() != 0) std::abort();
  }
  std::vector<float> features(core.schema().names.size());
  // More files than fit, so that what was restored is forgotten too.
  for (int64_t i = 0; i < 400; ++i) {
    const std::string lfn = "/store/set/" + std::to_string(i);
    ParsedLfn parsed;
    core.Parse(lfn, &parsed);
    core.Observe(Sanitised(Open{i * 1000000, lfn, false, -1, -1}), parsed, features.data());
    for (const float each : features) {
      if (!std::isfinite(each)) std::abort();
    }
  }
  std::mutex mutex;
  if (!WriteHistory(
          config, &core.history(), &mutex, [&] { return state; }, [](const void*, size_t) { return true; }, &why))
    std::abort();
  return 0;
}

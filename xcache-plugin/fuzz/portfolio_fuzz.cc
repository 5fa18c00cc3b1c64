// Any bytes as a saved portfolio: refused with a reason, or a portfolio that goes on, and can be saved and read again.
#include <cstdlib>
#include <cstring>
#include <string>

#include "smartcache/crc32c.hh"
#include "smartcache/file_portfolio.hh"

namespace {

using namespace smartcache;

// The checksum stands in the way of a fuzzer: with the first byte odd it is put right.
std::string Mended(const unsigned char* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 0 || bytes.size() < sizeof(uint32_t)) return bytes;
  const size_t at = bytes.size() - sizeof(uint32_t);
  const uint32_t sum = Crc32c(std::string_view(bytes).substr(0, at));
  std::memcpy(&bytes[at], &sum, sizeof sum);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  if (size == 0) return 0;
  FilePortfolio portfolio({true, 1 << 20, ""}, 1000, true, data[0] % 4 < 2);
  std::string why;
  if (!portfolio.Read(Mended(data, size), &why) && why.empty()) std::abort();
  portfolio.Room(10000);
  portfolio.Tidy();
  for (uint64_t i = 0; i < 100; ++i) {
    if (!portfolio.Opened({i % 30, i % 3, static_cast<int64_t>(i), 500, 1.0, 0.5}, nullptr).known) std::abort();
    const auto worth = portfolio.Worth(i);
    if (!worth || !(*worth == -1 || (*worth >= 0 && *worth <= 1.0001))) std::abort();
  }
  FilePortfolio after({true, 1 << 20, ""}, 1000, true, data[0] % 4 < 2);
  if (!after.Read(portfolio.Write(), &why)) std::abort();
  return 0;
}

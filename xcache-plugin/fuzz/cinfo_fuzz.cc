// Any bytes as a .cinfo, read as a whole and as an open reads it: refused with a reason, or counts that can be.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "smartcache/cinfo.hh"
#include "smartcache/crc32c.hh"
#include "smartcache/md5.hh"

namespace {

// The checksums stand in the way of a fuzzer: with the first byte odd, the one of the Store is put right, or that of the blocks of a file
// of version 2 or 3 which has eight of them at most.
std::string Mended(const unsigned char* data, size_t size) {
  constexpr size_t kStore = 4, kStoreBytes = 48;
  std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 1 && bytes.size() >= kStore + kStoreBytes + 4) {
    const uint32_t sum = smartcache::Crc32c(std::string_view(bytes).substr(kStore, kStoreBytes));
    std::memcpy(&bytes[kStore + kStoreBytes], &sum, sizeof sum);
  }
  if (data[0] % 4 == 3 && bytes.size() > kStore + kStoreBytes + 8) {
    const std::string_view rest = std::string_view(bytes).substr(kStore + kStoreBytes + 4);
    const uint32_t sum = smartcache::Crc32c(rest.substr(0, rest.size() - 4));
    std::memcpy(&bytes[bytes.size() - 4], &sum, sizeof sum);
  }
  constexpr size_t kBits = 20, kOldBits = 1;
  if (data[0] % 2 == 1 && bytes.size() > kBits + kOldBits + 16 && (bytes[0] == 2 || bytes[0] == 3)) {
    const auto sum = smartcache::Md5(std::string_view(bytes).substr(kBits, kOldBits));
    std::memcpy(&bytes[kBits + kOldBits], sum.data(), sum.size());
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace smartcache;
  if (size == 0) return 0;
  const std::string bytes = Mended(data, size);
  Cinfo cinfo;
  std::string why;
  if (ParseCinfo(bytes, &cinfo, &why)) {
    if (cinfo.file_bytes < 0 || cinfo.blocks_present > cinfo.blocks || cinfo.blocks < 0) std::abort();
    for (const Cinfo::Access& each : cinfo.records) {
      const float share = ReadShare(each, cinfo.file_bytes);
      if (share != -1 && !(share >= 0 && share <= 4)) std::abort();
    }
  } else if (why.empty()) {
    std::abort();
  }
  const CinfoHead head = ReadCinfoHead([&](void* buffer, int64_t offset, size_t wanted) -> ssize_t {
    if (offset < 0 || static_cast<uint64_t>(offset) > bytes.size()) return 0;
    const size_t n = std::min(wanted, bytes.size() - static_cast<size_t>(offset));
    std::memcpy(buffer, bytes.data() + offset, n);
    return static_cast<ssize_t>(n);
  });
  if (head.file_bytes < -1 || (head.read_share != -1 && !(head.read_share >= 0 && head.read_share <= 4))) std::abort();
  return 0;
}

#include "cache_state.hh"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "XrdOss/XrdOss.hh"
#include "XrdOss/XrdOssVS.hh"
#include "XrdOuc/XrdOucEnv.hh"

namespace smartcache {
namespace {

constexpr double kMeasureEveryS = 5.0;
constexpr int32_t kCinfoVersion = 4;
// int32 version, then the Store: int64 buffer size, int64 file size, ...
constexpr size_t kCinfoHead = 20, kFileSizeAt = 12;
constexpr int64_t kLargestFile = INT64_C(1) << 50;

int64_t TrueSize(const std::string& lfn, XrdOss& oss) {
  const std::unique_ptr<XrdOssDF> file(oss.newFile("smartcache"));
  XrdOucEnv env;
  if (!file || file->Open((lfn + ".cinfo").c_str(), O_RDONLY, 0600, env) < 0) return -1;
  char head[kCinfoHead];
  const ssize_t got = file->Read(head, 0, sizeof head);
  file->Close();
  int32_t version;
  int64_t size;
  std::memcpy(&version, head, sizeof version);
  std::memcpy(&size, head + kFileSizeAt, sizeof size);
  return got == sizeof head && version == kCinfoVersion && size >= 0 && size < kLargestFile ? size : -1;
}

}  // namespace

CacheState::CacheState() : thread_(kMeasureEveryS, [this] { Measure(); }) {}

FileState CacheState::Look(const std::string& lfn, XrdOss& oss) {
  if (oss_.load(std::memory_order_relaxed) == nullptr && oss_.exchange(&oss) == nullptr) thread_.Wake();
  struct stat status;
  FileState state;
  const int result = oss.Stat(lfn.c_str(), &status);
  // Only "no such file" is absence. What cannot be looked at may well be here, and bypassing it would read it over the WAN.
  state.on_disk = result == 0 ? S_ISREG(status.st_mode) : result != -ENOENT && result != -ENOTDIR;
  if (state.on_disk) state.size = TrueSize(lfn, oss);
  return state;
}

void CacheState::Measure() noexcept {
  XrdOss* oss = oss_.load();
  if (!oss) return;
  try {
    XrdOssVSInfo space;
    const bool known = oss->StatVS(&space, "public", 1) == 0 && space.Total > 0;
    fill_ = known ? 1.0f - static_cast<float>(static_cast<double>(space.Free) / static_cast<double>(space.Total)) : -1.0f;
  } catch (...) {
    fill_ = -1.0f;
  }
}

}  // namespace smartcache

#include "oss_disk.hh"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "XrdOss/XrdOss.hh"
#include "XrdOss/XrdOssVS.hh"
#include "XrdOuc/XrdOucEnv.hh"
#include "smartcache/cinfo.hh"

namespace smartcache {
namespace {

constexpr std::string_view kCinfo = ".cinfo";
constexpr char kStatistics[] = "/pfc-stats/";
constexpr int64_t kBlock = 512;  // of st_blocks, whatever the file system's own is
constexpr int kFailuresInARow = 1000;

int64_t Microseconds(const timespec& time) { return int64_t{time.tv_sec} * 1000000 + time.tv_nsec / 1000; }

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() > end.size() && text.substr(text.size() - end.size()) == end;
}

// Closed at the end, as XrdOss does not by itself.
struct Closer {
  void operator()(XrdOssDF* file) const {
    file->Close();
    delete file;
  }
};
using Handle = std::unique_ptr<XrdOssDF, Closer>;

// A .cinfo and the status of it: the file it is of, where that is there.
bool FileOf(const std::string& cinfo, const struct stat& status, XrdOss* oss, const std::function<bool(const DiskFile&)>& each) {
  const std::string lfn = cinfo.substr(0, cinfo.size() - kCinfo.size());
  struct stat data;
  if (oss->Stat(lfn.c_str(), &data) != 0 || !S_ISREG(data.st_mode)) return true;
  return each({lfn, int64_t{data.st_blocks} * kBlock, Microseconds(status.st_mtim)});
}

}  // namespace

void OssDisk::Measure(std::string space, Log log) {
  space_ = std::move(space);
  log_ = std::move(log);
}

bool OssDisk::FileSystem(DiskUsage* out) {
  XrdOss* oss = oss_.load();
  if (!oss) return false;
  XrdOssVSInfo space;
  const int result = oss->StatVS(&space, space_.c_str(), 1);
  const bool found = result == 0 && space.Total > 0;
  if (!said_.exchange(!found) && !found && log_)
    log_("the usage of the cache's disk is not known: XRootD has no figures of the space \"" + space_ + "\" (" +
         (result == 0 ? "its size is 0" : std::strerror(std::abs(result))) +
         "): no fill, no [policy] pressure, no evictor. The first word of pfc.spaces must name one of oss.space; or give the cache's size "
         "as [evictor] capacity_bytes");
  if (found) *out = {space.Total - space.Free, space.Total};
  return found;
}

bool OssDisk::Walk(const std::function<bool(const DiskFile&)>& each) {
  XrdOss* oss = oss_.load();
  if (!oss) return false;
  std::vector<std::string> folders = {"/"};
  bool top = true;
  while (!folders.empty()) {
    const std::string folder = std::move(folders.back());
    folders.pop_back();
    XrdOucEnv env;
    const Handle handle(oss->newDir("smartcache"));
    const bool opened = handle && handle->Opendir(folder.c_str(), env) == 0;
    if (!opened && top) return false;
    top = false;
    if (!opened) continue;
    struct stat status {};
    const bool with_status = handle->StatRet(&status) == 0;
    char name[NAME_MAX + 2];
    for (int failures = 0; failures < kFailuresInARow;) {
      const int result = handle->Readdir(name, sizeof name);
      if (result == -ENOENT) {  // gone between its name and its status
        ++failures;
        continue;
      }
      if (result != 0 || name[0] == '\0') break;
      failures = 0;
      name[sizeof name - 1] = '\0';
      if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
      std::string path = folder + name;
      if (path.size() >= PATH_MAX) continue;
      if (!with_status && oss->Stat(path.c_str(), &status) != 0) continue;
      if (S_ISDIR(status.st_mode)) {
        path += '/';
        if (path != kStatistics) folders.push_back(std::move(path));
      } else if (EndsWith(path, kCinfo) && S_ISREG(status.st_mode)) {
        if (!FileOf(path, status, oss, each)) return false;
      }
    }
  }
  return true;
}

bool OssDisk::ReadCinfo(const std::string& lfn, std::string* out) {
  XrdOss* oss = oss_.load();
  XrdOucEnv env;
  const Handle file(oss ? oss->newFile("smartcache") : nullptr);
  if (!file || file->Open((lfn + std::string(kCinfo)).c_str(), O_RDONLY, 0600, env) < 0) return false;
  struct stat status;
  if (file->Fstat(&status) != 0 || status.st_size < 0 || static_cast<uint64_t>(status.st_size) > kLargestCinfo) return false;
  out->resize(static_cast<size_t>(status.st_size));
  size_t done = 0;
  while (done < out->size()) {
    const ssize_t got = file->Read(out->data() + done, static_cast<off_t>(done), out->size() - done);
    if (got < 0) return false;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  out->resize(done);
  return true;
}

}  // namespace smartcache

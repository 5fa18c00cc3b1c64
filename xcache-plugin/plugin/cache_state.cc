#include "cache_state.hh"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <memory>

#include "XrdOss/XrdOss.hh"
#include "XrdOuc/XrdOucEnv.hh"
#include "smartcache/cinfo.hh"
#include "smartcache/descriptor.hh"

namespace smartcache {
namespace {

CinfoHead ReadBy(int file) {
  return ReadCinfoHead([file](void* buffer, int64_t offset, size_t size) { return ::pread(file, buffer, size, offset); });
}

// pfc has written it since it was last read, so that a read would write its time of access: a third of the whole, and it may wait for the
// file system's journal. Who does not own the file may not leave that out.
CinfoHead Head(const std::string& path) {
  const Descriptor file(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOATIME);
  if (file.get() >= 0) return ReadBy(file.get());
  if (errno != EPERM) return {};
  const Descriptor of_another(path.c_str(), O_RDONLY | O_NONBLOCK);
  return of_another.get() >= 0 ? ReadBy(of_another.get()) : CinfoHead();
}

// Whatever XrdOss may stand for.
CinfoHead Head(const std::string& name, XrdOss& oss) {
  const std::unique_ptr<XrdOssDF> file(oss.newFile("smartcache"));
  XrdOucEnv env;
  if (!file || file->Open(name.c_str(), O_RDONLY, 0600, env) < 0) return {};
  const CinfoHead head = ReadCinfoHead([&file](void* buffer, int64_t offset, size_t size) { return file->Read(buffer, offset, size); });
  file->Close();
  return head;
}

}  // namespace

FileState LookAt(const std::string& lfn, XrdOss& oss) {
  const std::string name = lfn + ".cinfo";
  char path[PATH_MAX];
  const bool local = oss.Lfn2Pfn(name.c_str(), path, sizeof path) == 0;
  if (local) {
    const CinfoHead head = Head(path);
    if (head.file_bytes >= 0) return {true, head.file_bytes, head.read_share};
  }
  struct stat status;
  FileState state;
  const int result = oss.Stat(lfn.c_str(), &status);
  // Only "no such file" is absence. What cannot be looked at may well be here, and bypassing it would read it over the WAN.
  state.on_disk = result == 0 ? S_ISREG(status.st_mode) : result != -ENOENT && result != -ENOTDIR;
  if (state.on_disk && !local) {
    const CinfoHead head = Head(name, oss);
    state.size = head.file_bytes;
    state.read_share = head.read_share;
  }
  return state;
}

}  // namespace smartcache

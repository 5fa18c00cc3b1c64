// The disk of a cache, as evictor and scan need it. Only the plugin can look at it; tests have one of their own.
// Thread-safe. Failure: false, and nothing else happens; no method throws, except what `each` throws.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace smartcache {

struct DiskFile {
  std::string_view lfn;
  int64_t bytes;    // on disk: the blocks of the data file
  int64_t last_us;  // when its .cinfo was written last: the end of its last access, or a little later
};

struct DiskUsage {
  int64_t used = 0, total = 0;  // bytes
};

class Disk {
 public:
  virtual ~Disk() = default;

  // The file system that holds the cache. False: not known (yet).
  virtual bool FileSystem(DiskUsage* out) = 0;
  // Every data file that has a .cinfo beside it, in no order; files come and go meanwhile. `each` answers false to stop. False: the top
  // could not be listed, or it was stopped. Slow: a look at every file.
  virtual bool Walk(const std::function<bool(const DiskFile&)>& each) = 0;
  // The bytes of the file's .cinfo.
  virtual bool ReadCinfo(const std::string& lfn, std::string* out) = 0;
};

}  // namespace smartcache

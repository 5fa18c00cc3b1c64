// What the cache itself knows of a file and of its disk, asked as cheaply as it can be.
//
// On disk: one Stat (5 to 20 us) of the data file; pfc keeps each file beside a NAME.cinfo. Stat gives the size up to the last block that
// was written, so the true size comes from the first 20 bytes of the .cinfo (an open, a read, a close: 20 to 40 us, only for files on
// disk). Fill: used share of the cache's file system, asked every few seconds by a background thread. The first opens do not know it.
// Thread-safe. Failure: a file that cannot be looked at counts as on disk, so that it is not bypassed; -1 for what cannot be known.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "smartcache/periodic.hh"

class XrdOss;

namespace smartcache {

struct FileState {
  bool on_disk = false;
  int64_t size = -1;
};

class CacheState {
 public:
  CacheState();

  FileState Look(const std::string& lfn, XrdOss& oss);
  float fill() const { return fill_.load(std::memory_order_relaxed); }

 private:
  void Measure() noexcept;

  std::atomic<XrdOss*> oss_{nullptr};  // pfc's own, which lives as long as the server; known from the first open on
  std::atomic<float> fill_{-1.0f};
  Periodic thread_;  // last: it uses all of the above
};

}  // namespace smartcache

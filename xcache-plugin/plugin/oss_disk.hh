// The cache's disk through XrdOss, as pfc's own purge looks at it: its name space, its file system, its .cinfo files.
//
// pfc hands its XrdOss to Decide only, so the disk is known from the first open on. Its file system is that of the space in which pfc
// stores data (the first word of pfc.spaces), as pfc measures it; where that cannot be had it is said once, until it can be. The walk goes
// by the .cinfo files and looks at the data file of each; a folder's names are not kept, only the folders that are still to be visited.
// pfc's own folder /pfc-stats is left out. Thread-safe. Failure: see disk.hh; a folder that cannot be listed is passed over, as are paths
// longer than XRootD's.
#pragma once

#include <atomic>
#include <string>

#include "smartcache/disk.hh"
#include "smartcache/log.hh"

class XrdOss;

namespace smartcache {

class OssDisk : public Disk {
 public:
  // Before the first use: the space, and where to complain. Without it the space is XRootD's default, and nothing is said.
  void Measure(std::string space, Log log);
  // True for the one call that makes it known.
  bool Use(XrdOss* oss) { return oss_.load(std::memory_order_relaxed) == nullptr && oss_.exchange(oss) == nullptr; }
  bool known() const { return oss_.load(std::memory_order_relaxed) != nullptr; }

  bool FileSystem(DiskUsage* out) override;
  bool Walk(const std::function<bool(const DiskFile&)>& each) override;
  bool ReadCinfo(const std::string& lfn, std::string* out) override;

 private:
  std::atomic<XrdOss*> oss_{nullptr};  // pfc's own, which lives as long as the server
  std::string space_ = "public";
  Log log_;
  std::atomic<bool> said_{false};
};

}  // namespace smartcache

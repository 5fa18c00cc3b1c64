// What the cache itself knows of a file at its open, asked as cheaply as it can be.
//
// pfc keeps a NAME.cinfo beside each file and makes both at the first open. A .cinfo that can be read therefore says that the file is on
// disk, and its true size (Stat gives that up to the last block that was written) and what share of it was read last time: an open, one or
// two reads, a close, past XrdOss, whose open takes three system calls more. Where there is none, Stat of the data file decides. pfc's
// purge removes the .cinfo first, its unlink the data first: an open between the two counts as on disk, so it is stored without being asked
// about. The .cinfo is read now, and not when the decision is made: by then it may tell of this open. Thread-safe. Failure: a file that
// cannot be looked at counts as on disk, so that it is not bypassed; -1 for what cannot be known.
#pragma once

#include <cstdint>
#include <string>

class XrdOss;

namespace smartcache {

struct FileState {
  bool on_disk = false;
  int64_t size = -1;
  float read_share = -1.0f;  // of the last access: see cinfo.hh
};

FileState LookAt(const std::string& lfn, XrdOss& oss);

}  // namespace smartcache

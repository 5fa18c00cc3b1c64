// Learning from a cache that is already full: the access records of the .cinfo files seed a history that began empty. A scan that the
// server's end interrupts begins again with its next start, whatever was saved meanwhile.
//
// An access in a .cinfo is one open as Decide sees it: one life of pfc's File object. A record that n accesses were merged into is read as
// n opens at equal steps from its attach to its detach, in at most 8 points. Times are brought into order and not after now. The walk is
// one pass over the disk, in a thread of low priority; the mutex of the history is held for about a microsecond a file. What a live open
// has recorded stays as it is. Failure: a file that has vanished, or whose .cinfo cannot be read, is counted and passed over; a disk that
// cannot be listed is scanned again later.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "smartcache/cinfo.hh"
#include "smartcache/features.hh"
#include "smartcache/log.hh"
#include "smartcache/periodic.hh"

namespace smartcache {

class Decider;
class Disk;

PastOpens FromRecords(const Cinfo& cinfo, int64_t now_us);

struct ScanResult {
  bool finished = false;
  uint64_t files = 0;   // on disk
  uint64_t seeded = 0;  // of them in the history now
  uint64_t known = 0;   // were there already, or found no room
  uint64_t unread = 0;  // no .cinfo that could be read
  std::string why;      // of one of those
};

// Until `stop`, or the end.
ScanResult SeedFromDisk(Disk* disk, Decider* decider, int64_t now_us, const std::atomic<bool>& stop);

// Does so once, in a thread of its own: as soon as the disk is known, and again each `again_s` where it could not be listed. Thread-safe.
class Scanner {
 public:
  // `known`: whether there is a disk to look at. `clock`: microseconds of Unix time. `log` is told of the beginning and the end of a scan.
  Scanner(Disk* disk, Decider* decider, std::function<bool()> known, std::function<int64_t()> clock, Log log, double again_s = 600);
  ~Scanner();

  // Looks now: the disk has become known.
  void Wake() { thread_->Wake(); }

 private:
  void Scan() noexcept;

  Disk* const disk_;
  Decider* const decider_;
  const std::function<bool()> known_;
  const std::function<int64_t()> clock_;
  const Log log_;
  const double again_s_;
  std::atomic<bool> stop_{false};
  bool done_ = false;                 // the thread's own
  std::unique_ptr<Periodic> thread_;  // last: it uses all of the above
};

}  // namespace smartcache

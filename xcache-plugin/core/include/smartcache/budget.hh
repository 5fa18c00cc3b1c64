// How much may be stored: bytes a second onto the cache's disk, and files on it.
//
// Bytes: a token bucket. level(t) rises by r = write_bytes_per_s up to r * burst_s, which it begins with. A file may be stored while
// level > 0, and then costs its whole size, which may leave level below 0: the debt is paid at r before the next. So a file larger than the
// bucket can be stored too, and over a time T no more than r * (T + burst_s) is admitted, plus the last file.
// Cost: the size of the file where it is known; else as file_sizes.hh has it, and unknown_size_bytes in the end. Sizes are learnt from
// files on disk. Files: the last count of what is on disk (Found), and what was admitted since, less what was removed since. As long as
// nobody has counted, it is unknown and binds nothing. Deterministic in its clock. Thread-safe: one short mutex; nothing at all where no
// budget is configured. Failure: none.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "smartcache/config.hh"
#include "smartcache/file_sizes.hh"

namespace smartcache {

class Budget {
 public:
  // Seconds that only rise.
  using Clock = std::function<double()>;

  explicit Budget(const BudgetConfig& config, Clock clock = {});

  // Whether one more file may be stored now.
  bool Allows();
  // A file that was not on disk was admitted; `size` -1 where unknown.
  void Charge(uint64_t dataset, int64_t size);
  // A file of this dataset is known to be so large.
  void Learn(uint64_t dataset, int64_t size);
  // So many files are on disk.
  void Found(int64_t objects);
  void Removed();

  struct State {
    double level_bytes;      // 0 where there is no limit
    int64_t objects;         // -1 unknown
    uint64_t charged_bytes;  // all that was charged so far
  };
  State state();

 private:
  bool idle() const { return config_.write_bytes_per_s == 0 && config_.objects == 0; }
  void Refill();

  const BudgetConfig config_;
  const Clock clock_;
  const double rate_, capacity_;

  std::mutex mutex_;  // guards all below
  double level_, filled_at_;
  int64_t objects_ = -1;
  uint64_t charged_bytes_ = 0;
  FileSizes sizes_;
};

}  // namespace smartcache

// Keeps the cache below its high mark: when more than `high` of it is used, the files that are worth least go until `low` is reached.
//
// Usage: used share of the file system, or, where [evictor] capacity_bytes is set, the sum of the disk blocks of the data files over it
// (one measure for this, and for the `fill` that opens are decided by). The one is asked every few seconds; the other is a walk over the
// cache, made each `scan_s`, but for no more than a twentieth of the time. Between two walks what was removed is taken off. Worth: the
// expected benefit per byte on disk of keeping the file for the horizon h of the model in use,
//   P(next open within h | not opened for age a) * benefit / bytes on disk        benefit: 1 (an open), or the bytes themselves
// P from what was predicted at the file's last open, as it has aged since (ageing.hh); from its age alone where nothing was predicted, or
// by a model with other buckets. The age counts from the last open in the history, else from the last write of the .cinfo. With a portfolio
// that is ready its vote ranks instead: what it does not hold goes first, then what has the lowest vote (file_portfolio.hh).
// A run: one walk finds the worst files that free enough, and a quarter more in case some are open (worst.hh: memory goes with what is
// removed); then they are removed, worst first, at most `files_per_minute`, until that is done, or usage is at `low` whoever has made
// room; a file that was opened since the walk is left. Nothing is done without a model in use and without a portfolio: by age alone pfc's
// own purge ranks as well. Nothing is done either where all of the cache's files are not enough: something else fills the disk. A run that
// does not get below `high` (all open, say) doubles the time until the next one, up to ten minutes. dry_run: ranks, says what it would
// remove, and then waits as after a run that did not get there. One thread of its own, of low priority. Thread-safe. Failure: counted
// results; the thread goes on whatever happens.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "smartcache/config.hh"
#include "smartcache/disk.hh"
#include "smartcache/log.hh"
#include "smartcache/periodic.hh"
#include "smartcache/trace.hh"
#include "smartcache/worst.hh"

namespace smartcache {

class Decider;
struct Bundle;

struct WatermarkOptions {
  double look_every_s = 5.0;
  double longest_pause_s = 600.0;
  double limit_period_s = 60.0;
  size_t most_files = 200000;  // of a run
};

class Watermark {
 public:
  // Removes one file unless it is open: see Evictor::Unlink. Empty: nothing can be removed, usage is measured all the same.
  using Unlink = std::function<int(const std::string& lfn)>;
  // Microseconds of Unix time.
  using Clock = std::function<int64_t()>;

  Watermark(const EvictorConfig& config, bool count_objects, Disk* disk, Decider* decider, Unlink unlink, Clock clock, Log log, Trace trace,
            WatermarkOptions options = {});
  ~Watermark();

  // Used share of the cache, -1 unknown.
  float fill() const { return fill_.load(std::memory_order_relaxed); }
  // Looks now: the disk has become known.
  void Wake() { thread_->Wake(); }

 private:
  using Steady = std::chrono::steady_clock;
  struct Removal {
    uint64_t files = 0, bytes = 0, busy = 0;
    bool low = false;  // as much was removed as was needed, or somebody made room
    bool interrupted = false;
  };

  void Look() noexcept;
  bool Measure(DiskUsage* usage);
  bool Sum(DiskUsage* usage);
  void Publish(const DiskUsage& usage);
  void Run(const DiskUsage& usage);
  double Value(const DiskFile& file, const Bundle* bundle, int64_t now_us, int64_t* last_us);
  Removal Remove(const std::vector<Candidate>& worst, int64_t needed);
  // Whether the low mark is reached, where it is time to look.
  bool LookedLow();
  bool MayRemoveOne();
  void Pause(bool reached);
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

  const EvictorConfig config_;
  const bool count_objects_;
  Disk* const disk_;
  Decider* const decider_;
  const Unlink unlink_;
  const Clock clock_;
  const Log log_;
  const Trace trace_;
  const WatermarkOptions options_;

  std::atomic<float> fill_{-1.0f};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // with the next, to wait
  std::condition_variable stopping_;

  // The thread's own.
  bool lowered_ = false, summed_ = false, said_others_ = false;
  DiskUsage sum_;
  Steady::time_point next_sum_{}, next_run_{}, next_look_{}, period_began_{};
  double pause_s_ = 0;
  int removed_ = 0;                   // in this period
  std::unique_ptr<Periodic> thread_;  // last: it uses all of the above
};

}  // namespace smartcache

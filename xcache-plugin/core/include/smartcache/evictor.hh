// Removes files that were answered `evict`, once nobody has them open.
//
// The open that was answered `evict` is itself about to read the file, so nothing is tried for `first_delay_s`; a file in use is tried
// again with a delay that doubles up to `max_delay_s`, and given up after `max_attempts` (about a day). A later open that is answered
// otherwise cancels. At most `max_pending` files wait; what comes then is dropped. At most `limit` files are removed in each
// `limit_period_s`: a model that scores everything low must not empty the cache before somebody can move it back. What is over the limit
// stays on disk, for pfc's own purge. All of it is counted. Thread-safe. Failure: counted results only.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "smartcache/counters.hh"
#include "smartcache/periodic.hh"

namespace smartcache {

struct EvictorOptions {
  double first_delay_s = 2.0;
  double max_delay_s = 60.0;
  int max_attempts = 1500;
  size_t max_pending = 100000;
  double look_every_s = 0.5;
  int limit = 600;
  double limit_period_s = 60.0;
};

class Evictor {
 public:
  // Removes one file unless it is open: 0 done, -EBUSY open, -ENOENT absent, other: cannot be done. May block; must not throw.
  using Unlink = std::function<int(const std::string& lfn)>;

  Evictor(Unlink unlink, Counters* counters, EvictorOptions options = {});

  void Add(const std::string& lfn);
  // Cheap where nothing waits, which is what most opens find.
  void Cancel(const std::string& lfn);
  size_t pending() const { return pending_count_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    Clock::time_point due{};
    double delay_s = 0;
    int attempts = 0;
    uint64_t ticket = 0;  // from 1; tells an entry from one that was added again meanwhile
  };
  using Queue = std::unordered_map<std::string, Waiting>;

  void Run() noexcept;
  // Whether one more file may be removed now.
  bool WithinLimit();
  void Try(const std::string& lfn, uint64_t ticket);
  // With the mutex held: puts an entry where its turn is; takes it out of both.
  void Enlist(Queue::iterator it);
  void Erase(Queue::iterator it);

  const Unlink unlink_;
  Counters* const counters_;
  const EvictorOptions options_;
  std::mutex mutex_;  // guards the three below; not held while unlinking
  Queue waiting_;
  std::map<std::pair<Clock::time_point, uint64_t>, const std::string*> due_;  // by time and ticket: the keys of `waiting_`
  uint64_t tickets_ = 0;
  std::atomic<size_t> pending_count_{0};
  Clock::time_point period_began_{};  // the background thread's own, as is the next
  int removed_ = 0;                   // in this period
  Periodic thread_;                   // last: it uses all of the above
};

}  // namespace smartcache

// A circuit breaker: after `failures` in a row the endpoint is left alone for `open_for`, then one probe decides.
//
//   closed --failures in a row--> open --open_for passed--> half-open --probe succeeds--> closed
//                                   ^------------------------ probe fails ----'
// While it is not closed, Allow is false and an open costs nothing. The probe is not an open's request: a background thread makes it (with
// patience for a new connection, then without any on a warm one), so no client waits for a server that is probably still dead or too slow.
// Thread-safe. Times are passed in, so that tests need no clock.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

namespace smartcache {

class Breaker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  Breaker(int failures, Duration open_for) : limit_(failures), open_for_(open_for) {}

  // Whether a request may be sent.
  bool Allow() const { return !open_.load(std::memory_order_relaxed); }

  // What became of an allowed request.
  void Succeeded() { in_a_row_.store(0, std::memory_order_relaxed); }
  void Failed(Time now);

  // True once for each time that open_for has passed: the caller probes and reports.
  bool TakeProbe(Time now);
  void Probed(bool success, Time now);

 private:
  const int limit_;
  const Duration open_for_;
  std::atomic<bool> open_{false};
  std::atomic<int> in_a_row_{0};
  std::mutex mutex_;  // guards the two below
  Time probe_at_{};
  bool probing_ = false;
};

}  // namespace smartcache

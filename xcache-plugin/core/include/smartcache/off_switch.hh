// The way to turn smartcache off at once: while a file exists, every open is admitted and nothing is removed, as by an XCache without us.
//
// A background thread looks once a second, so an open costs one relaxed load. The change is said in the log. Only "no such file" is on:
// what cannot be looked at (no permission, a stale mount) says nothing, and the last state stays. Thread-safe. Failure: the constructor
// throws std::system_error where the system gives no thread.
#pragma once

#include <atomic>
#include <string>

#include "smartcache/log.hh"
#include "smartcache/periodic.hh"

namespace smartcache {

class OffSwitch {
 public:
  // `every_s` is for tests.
  OffSwitch(std::string file, Log log, double every_s = 1.0);

  bool off() const { return off_.load(std::memory_order_relaxed); }

 private:
  void Look() noexcept;

  const std::string file_;
  const Log log_;
  std::atomic<bool> off_;
  Periodic thread_;  // last: it uses all of the above
};

}  // namespace smartcache

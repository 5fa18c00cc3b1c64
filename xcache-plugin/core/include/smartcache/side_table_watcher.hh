// Has the side table that lies at [side_table] file ready for opens: a background thread looks every poll_s whether another file is there.
//
// Another one (by its number, size and time of change) is read whole and checked, then one pointer is swapped: an open sees the table
// before or the new one. One that cannot be read stays unused, with one message, and the one before stays; so it does where the file
// changes while it is read. Where there is no file, there is no table: said once. Thread-safe. Failure: counted; the constructor throws
// std::system_error where the system gives no thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "smartcache/config.hh"
#include "smartcache/counters.hh"
#include "smartcache/log.hh"
#include "smartcache/periodic.hh"
#include "smartcache/side_table.hh"

namespace smartcache {

class SideTableWatcher {
 public:
  // `counters` must outlive it.
  SideTableWatcher(const SideTableConfig& config, Counters* counters, Log log);

  // Null as long as there is no good one.
  std::shared_ptr<const SideTable> current() const { return std::atomic_load(&table_); }

 private:
  void Poll() noexcept;
  void Look();
  void Use(std::shared_ptr<const SideTable> table);
  void SayOnce(const std::string& text);

  const std::string path_;
  Counters* const counters_;
  const Log log_;
  // The poll thread's own:
  std::string looked_at_;  // the file that was last read, or why there was none
  std::string last_said_;
  std::shared_ptr<const SideTable> before_;  // until the next look, so that it is not an open that frees it

  std::shared_ptr<const SideTable> table_;
  Periodic thread_;  // last: it uses all of the above
};

}  // namespace smartcache

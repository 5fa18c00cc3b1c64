// Keeps a history in a file: restores it at construction, saves it every `save_s` and at destruction.
//
// Restored before the first open is answered: a history that came later would have to be merged with what was opened meanwhile, and replays
// would not know how. About half a second for a million entries.
// A file that cannot be used (truncated, damaged, of another version or configuration, unreadable) is renamed FILE.bad-UNIXTIME, said in
// one line of the log, and the history begins empty. No file: it begins empty. Saved by a thread of its own, into FILE.tmp, which is synced
// and then renamed: whatever ends the server, FILE is whole and of one moment. Where that fails the file before stays; it is counted, and
// said once until it works again. Nothing is written where nothing was opened. XRootD ends on SIGTERM without destroying its plugins, and
// the signal is its own: what was opened since the last save is lost then. Thread-safe: `mutex` guards the history. Failure: the
// constructor throws std::system_error where there is no thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "smartcache/config.hh"
#include "smartcache/counters.hh"
#include "smartcache/history_file.hh"
#include "smartcache/log.hh"
#include "smartcache/periodic.hh"

namespace smartcache {

class HistoryKeeper {
 public:
  // `state` says, under the mutex, of which moment the history is. [history] file is not empty.
  HistoryKeeper(const Config& config, History* history, std::mutex* mutex, std::function<HistoryState()> state, Counters* counters,
                Log log);
  ~HistoryKeeper();

  // The moment that was restored; none where the history began empty.
  const std::optional<HistoryState>& restored() const { return restored_; }

  // To be called once what restored() gave has been taken over.
  void Start();

 private:
  void Restore();
  void Refuse(const std::string& what_is_wrong);
  void Save() noexcept;
  bool Write(std::string* why);

  const Config config_;
  const std::string& path_;
  History* const history_;
  std::mutex* const mutex_;
  const std::function<HistoryState()> state_;
  Counters* const counters_;
  const Log log_;
  std::optional<HistoryState> restored_;
  uint64_t saved_stamp_ = 0;  // the saving thread's own, as the next; then the destructor's
  bool failed_ = false;
  std::unique_ptr<Periodic> thread_;  // last: it uses all of the above
};

}  // namespace smartcache

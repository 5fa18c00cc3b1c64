// Keeps a portfolio: tidies it every second, and over a restart, in [portfolio] file.
//
// The file is read at construction, before the first open: it is told when the room is known. One that cannot be used (truncated, damaged,
// of another version) is renamed FILE.bad-UNIXTIME, said in one line of the log, and the portfolio begins anew. Saved every [history]
// save_s by a thread of its own, and at destruction; where that fails the file before stays, and it is said once until it
// works again. Without a file nothing is kept. Thread-safe. Failure: the constructor throws std::system_error where there is no thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "smartcache/config.hh"
#include "smartcache/file_portfolio.hh"
#include "smartcache/log.hh"
#include "smartcache/periodic.hh"

namespace smartcache {

class PortfolioKeeper {
 public:
  PortfolioKeeper(const Config& config, FilePortfolio* portfolio, Log log);
  ~PortfolioKeeper();

  // The room has become known.
  void Wake() { thread_->Wake(); }

 private:
  using Clock = std::chrono::steady_clock;

  void Restore();
  void Keep() noexcept;
  void Save();

  const std::string path_;
  const std::chrono::duration<double> save_every_;
  FilePortfolio* const portfolio_;
  const Log log_;

  // The thread's own; then the destructor's.
  Clock::time_point saved_ = Clock::now();
  uint64_t forgotten_ = 0;
  bool failed_ = false, was_ready_ = false, was_guarded_ = false;
  std::unique_ptr<Periodic> thread_;  // last: it uses all of the above
};

}  // namespace smartcache

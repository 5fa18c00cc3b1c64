// The portfolio beside a real cache: what it would keep of the files that are opened, as far as rules and model earn it.
//
// A cache of metadata (policies/portfolio.hh) with room for what the real one holds at its low mark. Every open is a request to it; the
// real cache follows: a file that it passes by is not stored, and what it does not hold goes first when the disk fills, then what has the
// lowest vote. So the cache does as the best of its rules without anybody knowing which, from the first hour, with a model or without one.
// The model, where there is one, is one more of them: what it says of each file is handed over with the open (forecast_cache.hh).
//
// Sizes: what the file takes on disk, as far as that can be known: its size (of one never seen, file_sizes.hh) times the part of it that is
// read.
// Memory: at most `memory_bytes` for all files that are known, whether stored or not; the tables are made at once for twice as many as
// there are, so that no open pays for their growing. Tidy, which is to be called every second or so, in the background, makes larger ones
// as files come, tells them of all that was known, in the order of the last opens, and forgets those opened longest ago where there is no
// room. Meanwhile, and where others hold the lock for longer than an open has patience, opens are remembered and told later, and nothing is
// said of them.
// Restart: Write gives the files, in that order, and the losses; Read tells them to an empty one.
// Cost: a few microseconds a request. Thread-safe. Failure: std::bad_alloc from Tidy and Read, which leave a portfolio that says nothing;
// where an open finds no memory it begins anew. Opens that cannot be remembered are counted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smartcache/config.hh"
#include "smartcache/file_sizes.hh"
#include "smartcache/forecast.hh"

namespace smartcache {

class FilePortfolio {
 public:
  // `per_open`: what a file that is opened again is worth, see worth.hh; `model`: whether there will be one.
  FilePortfolio(const PortfolioConfig& config, int64_t unknown_size_bytes, bool per_open, bool model);
  ~FilePortfolio();

  // The room that there is; until it is told, and where it changes by more than a twentieth, the portfolio begins (anew) at the next Tidy.
  void Room(int64_t bytes) { room_.store(bytes > 0 ? bytes : 0, std::memory_order_relaxed); }

  struct Open {
    uint64_t file, dataset;
    int64_t t_us;
    int64_t size;      // -1 unknown
    double part;       // of it that will be read, 0 to 1
    double base_rate;  // of its dataset: how many of the opens are of files opened before
  };
  struct Says {
    bool known = false;    // else the rest means nothing
    bool stores = false;   // the file is worth its place
    bool guarded = false;  // plain LRU decides, as the portfolio has lost more than it may
  };
  using Duration = std::chrono::steady_clock::duration;
  static constexpr std::chrono::microseconds kPatience{300};
  // How long an open may wait for the lock that has been under way for `spent`, of `deadline`: not at all once half of that is gone, so
  // that it is not late because of us.
  static Duration PatienceAfter(Duration spent, Duration deadline);
  // `forecast` is null where no model spoke.
  Says Opened(const Open& open, const Forecast* forecast, Duration patience = kPatience);

  // What a file is worth beside others: -1 what it does not hold, else its vote, 0 to 1; under the guard all are worth the same. None: the
  // portfolio has nothing to say now.
  std::optional<double> Worth(uint64_t file);

  // See the head. False: there was nothing to do.
  bool Tidy();

  struct State {
    bool ready = false, guarded = false;
    uint64_t files = 0, capacity_bytes = 0;
    uint64_t forgotten = 0;                               // files, for want of memory
    uint64_t unsaid = 0;                                  // opens of which nothing was said, since the portfolio began
    uint64_t lost = 0;                                    // of these, those that it was never told of
    std::vector<std::pair<const char*, double>> weights;  // what each has to say, of 1
  };
  State state();

  // All of it as bytes, and from them: false with the reason where they are no whole portfolio of this version. Both in the background.
  std::string Write();
  bool Read(std::string_view bytes, std::string* why);

 private:
  struct Cache;
  struct Past;  // what a cache is told before it begins

  bool Fits() const;
  bool Tell(const Open& open, const Forecast* forecast);
  void Wait(const Open& open);
  bool TellSome();
  void Begin(Past* past);

  const bool per_open_, model_;
  const size_t most_files_;
  std::atomic<int64_t> room_{0};  // 0: not known yet

  std::mutex mutex_;  // guards the three below
  FileSizes sizes_;
  std::unique_ptr<Cache> cache_;  // null: before it has begun, and while another is made
  std::unique_ptr<Past> read_;    // and not yet told

  std::mutex waiting_mutex_;  // guards the rest; taken after the other, if both are
  std::deque<Open> waiting_;  // some are taken from its front while opens come
  uint64_t forgotten_ = 0, unsaid_ = 0, lost_ = 0;
};

}  // namespace smartcache

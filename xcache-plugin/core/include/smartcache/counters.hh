// What the plugin counts, as Prometheus text. Never an LFN as a label: the label values are answers, reasons, results and a model's name.
// Thread-safe: counting is one relaxed atomic addition. Failure: none to count; WriteTextfile returns false.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "smartcache/answer.hh"
#include "smartcache/budget.hh"
#include "smartcache/file_portfolio.hh"

namespace smartcache {

// kBusy: found open, will be tried again. The others are final.
enum class EvictionResult { kDone, kAbsent, kBusy, kGaveUp, kDropped, kCancelled, kLimited };
constexpr size_t kEvictionResults = 7;

// What became of a run of the evictor over the high mark. kShort: the low mark was not reached; kOthers: not the cache fills the disk.
enum class RunResult { kReached, kShort, kDryRun, kNoModel, kOthers, kFailed };
constexpr size_t kRunResults = 6;
// What became of a file that it chose.
enum class FileResult { kRemoved, kBusy, kAbsent, kOpenedAgain, kFailed };
constexpr size_t kFileResults = 5;

class Counters {
 public:
  void Answered(Answer answer, Reason reason, double seconds);
  // What became of asking a source of the model: kModel for an answer, else the reason for none.
  void Asked(Role role, Source source, Reason result) {
    Add(&asked_[static_cast<size_t>(role)][static_cast<size_t>(source)][static_cast<size_t>(result)]);
  }
  void Evicted(EvictionResult result) { Add(&evictions_[static_cast<size_t>(result)]); }
  void HistorySaved(bool done) { Add(&history_saves_[done ? 0 : 1]); }
  void HistorySavedAt(int64_t unix_s) { history_saved_s_ = unix_s; }
  void EvictorRan(RunResult result) { Add(&runs_[static_cast<size_t>(result)]); }
  void EvictorFile(FileResult result, uint64_t bytes = 0) {
    Add(&run_files_[static_cast<size_t>(result)]);
    removed_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  // Bytes of the cache in use, and its size: by the measure that the evictor goes by.
  void CacheUsed(int64_t used, int64_t total) {
    cache_used_.store(used, std::memory_order_relaxed);
    cache_total_.store(total, std::memory_order_relaxed);
  }
  // A scan that seeds the history: files looked at so far.
  void Scanned(uint64_t files) { scanned_.store(files, std::memory_order_relaxed); }
  // Another side table was found: it was loaded, or refused.
  void SideTableLoaded(bool done) { Add(&side_table_loads_[done ? 0 : 1]); }
  void LogDropped() { Add(&log_dropped_); }
  void LogSent() { Add(&log_sent_); }

  // Gauges, set by whoever knows them.
  struct Gauges {
    uint64_t files = 0, datasets = 0, history_bytes = 0;
    std::string model;
    Budget::State budget{0, -1, 0};
    uint64_t waiting = 0;  // decisions that are being made in the background
    std::string challenger{};
    int64_t side_table_until_us = -1;  // of the side table in use; -1: there is none
    uint64_t side_table_datasets = 0;
    uint64_t forgotten_files = 0, forgotten_datasets = 0;
    std::array<std::optional<bool>, kRoles> breaker_open{};  // by role; none: no endpoint is asked for it
    std::optional<FilePortfolio::State> portfolio{};         // none: there is none
  };
  std::string Text(const Gauges& gauges) const;

  uint64_t answers(Answer answer, Reason reason) const;
  uint64_t asked(Role role, Source source, Reason result) const {
    return asked_[static_cast<size_t>(role)][static_cast<size_t>(source)][static_cast<size_t>(result)];
  }
  uint64_t evictions(EvictionResult result) const { return evictions_[static_cast<size_t>(result)]; }
  uint64_t history_saves(bool done) const { return history_saves_[done ? 0 : 1]; }
  uint64_t runs(RunResult result) const { return runs_[static_cast<size_t>(result)]; }
  uint64_t run_files(FileResult result) const { return run_files_[static_cast<size_t>(result)]; }
  uint64_t removed_bytes() const { return removed_bytes_; }
  uint64_t side_table_loads(bool done) const { return side_table_loads_[done ? 0 : 1]; }
  uint64_t log_dropped() const { return log_dropped_; }
  uint64_t log_sent() const { return log_sent_; }

 private:
  using Counter = std::atomic<uint64_t>;
  static void Add(Counter* counter) { counter->fetch_add(1, std::memory_order_relaxed); }

  static constexpr std::array<double, 12> kBounds = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1};

  std::array<std::array<Counter, kReasons>, kAnswers> answers_{};
  std::array<Counter, kBounds.size() + 1> latency_{};
  Counter latency_ns_{0};
  std::array<std::array<std::array<Counter, kReasons>, kSources>, kRoles> asked_{};
  std::array<Counter, kEvictionResults> evictions_{};
  std::array<Counter, 2> history_saves_{};  // done, failed
  std::atomic<int64_t> history_saved_s_{0};
  std::array<Counter, 2> side_table_loads_{};  // done, failed
  std::array<Counter, kRunResults> runs_{};
  std::array<Counter, kFileResults> run_files_{};
  Counter removed_bytes_{0}, scanned_{0};
  std::atomic<int64_t> cache_used_{-1}, cache_total_{-1};
  Counter log_dropped_{0}, log_sent_{0};
};

// Writes `text` beside `path` and renames it there, so that no reader sees half of it.
bool WriteTextfile(const std::string& path, const std::string& text);

}  // namespace smartcache

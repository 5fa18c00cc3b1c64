// What the plugin counts, as Prometheus text. Never an LFN as a label: the label values are answers, reasons, results and a model's name.
// Thread-safe: counting is one relaxed atomic addition. Failure: none to count; WriteTextfile returns false.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "smartcache/answer.hh"

namespace smartcache {

// kBusy: found open, will be tried again. The others are final.
enum class EvictionResult { kDone, kAbsent, kBusy, kGaveUp, kDropped, kCancelled, kLimited };
constexpr size_t kEvictionResults = 7;

class Counters {
 public:
  void Answered(Answer answer, Reason reason, double seconds);
  // What became of asking the model: kModel for an answer, else the reason for none.
  void Asked(Reason result) { Add(&asked_[static_cast<size_t>(result)]); }
  void Evicted(EvictionResult result) { Add(&evictions_[static_cast<size_t>(result)]); }
  void LogDropped() { Add(&log_dropped_); }
  void LogSent() { Add(&log_sent_); }

  // Gauges, set by whoever knows them.
  struct Gauges {
    uint64_t files = 0, datasets = 0, history_bytes = 0;
    std::string model;
  };
  std::string Text(const Gauges& gauges) const;

  uint64_t answers(Answer answer, Reason reason) const;
  uint64_t asked(Reason result) const { return asked_[static_cast<size_t>(result)]; }
  uint64_t evictions(EvictionResult result) const { return evictions_[static_cast<size_t>(result)]; }
  uint64_t log_dropped() const { return log_dropped_; }
  uint64_t log_sent() const { return log_sent_; }

 private:
  using Counter = std::atomic<uint64_t>;
  static void Add(Counter* counter) { counter->fetch_add(1, std::memory_order_relaxed); }

  static constexpr std::array<double, 12> kBounds = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1};

  std::array<std::array<Counter, kReasons>, kAnswers> answers_{};
  std::array<Counter, kBounds.size() + 1> latency_{};
  Counter latency_ns_{0};
  std::array<Counter, kReasons> asked_{};
  std::array<Counter, kEvictionResults> evictions_{};
  Counter log_dropped_{0}, log_sent_{0};
};

// Writes `text` beside `path` and renames it there, so that no reader sees half of it.
bool WriteTextfile(const std::string& path, const std::string& text);

}  // namespace smartcache

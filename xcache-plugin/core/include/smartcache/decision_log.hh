// The decision log: one JSON datagram for each answer, the record `xcache.decision.v1` without what the collector adds.
//
// Sent without blocking and without waiting for anybody: where the system takes no datagram (no collector, full buffer, one that is too
// large), it is dropped and counted. Invalid UTF-8 in an LFN becomes U+FFFD, so that the datagram is JSON whatever a client asked for.
// A literal address is connected at construction. A name is looked up by a background thread, for a resolver may take long and the server's
// start must not: each second until it has an address (said once where it has none; its datagrams are dropped), then every
// `resolve_every_s`. A name that moves is followed; one that no longer resolves keeps its last address.
// Thread-safe. Failure: drops, counted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "smartcache/answer.hh"
#include "smartcache/config.hh"
#include "smartcache/counters.hh"
#include "smartcache/log.hh"
#include "smartcache/periodic.hh"

namespace smartcache {

struct DecisionRecord {
  std::string_view cache;
  int64_t boot_us;
  uint64_t seq;
  int64_t t_us;
  std::string_view lfn;
  Answer answer;
  Reason reason;
  bool has_score;
  double score;
  double threshold;  // the admit threshold that the score was held against; as has_score
  double probability;
  std::string_view model;
  int64_t latency_us;
  bool on_disk;
  int64_t size;
  float fill;
  float read_share;
  bool has_history;  // the history was restored: of which moment
  int64_t history_boot_us;
  uint64_t history_seq;
  bool history_scanned;
  int64_t side_table;  // version of the table that the features are with; 0: none, and it is not in the datagram
  // What the challenger said, without effect; empty name: it was not asked, and is not in the datagram.
  std::string_view challenger_model;
  Answer challenger_answer;
  double challenger_score;
  const float* features;  // null: not in the datagram
  size_t feature_count;
};

// The datagram's text, appended to `out`.
void WriteRecord(const DecisionRecord& record, std::string* out);

class DecisionLog {
 public:
  // `log` may be empty.
  DecisionLog(const DecisionLogConfig& config, Counters* counters, Log log = {}, double resolve_every_s = 30);
  ~DecisionLog();
  DecisionLog(const DecisionLog&) = delete;
  DecisionLog& operator=(const DecisionLog&) = delete;

  bool with_features() const { return config_.features; }
  void Send(const DecisionRecord& record);
  // There was an answer, and no record of it could be made.
  void Lost() noexcept;

 private:
  void Connect();

  const DecisionLogConfig config_;
  Counters* const counters_;
  const Log log_;
  using Clock = std::chrono::steady_clock;

  std::string peer_;   // the address in use, as the system has it; the constructor's, then the background thread's own
  bool said_ = false;  // likewise
  Clock::duration resolve_every_{};
  Clock::time_point resolve_at_{};
  // -1 until there is an address. Once set it keeps its number: another address is put under it in one step (dup3), so that no send ever
  // finds it closed.
  std::atomic<int> socket_{-1};
  std::unique_ptr<Periodic> thread_;  // last: it uses all of the above
};

}  // namespace smartcache

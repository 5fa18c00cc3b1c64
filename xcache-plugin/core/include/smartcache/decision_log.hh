// The decision log: one JSON datagram for each answer, the record `xcache.decision.v1` without what the collector adds.
//
// Sent without blocking and without waiting for anybody: where the system takes no datagram (no collector, full buffer, one that is too
// large), it is dropped and counted. Invalid UTF-8 in an LFN becomes U+FFFD, so that the datagram is JSON whatever a client asked for.
// The host is looked up at construction, which waits for the resolver, and then every `resolve_every_s` by a background thread (not for a
// literal address that is connected): a name that has no address at boot is said once, and found when it has one; a name that moves is
// followed; one that no longer resolves keeps its last address.
// Thread-safe. Failure: drops, counted.
#pragma once

#include <atomic>
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
  double probability;
  std::string_view model;
  int64_t latency_us;
  bool on_disk;
  int64_t size;
  float fill;
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

 private:
  void Connect();

  const DecisionLogConfig config_;
  Counters* const counters_;
  const Log log_;
  std::string peer_;   // the address in use, as the system has it; the constructor's, then the background thread's own
  bool said_ = false;  // likewise
  // -1 until there is an address. Once set it keeps its number: another address is put under it in one step (dup3), so that no send ever
  // finds it closed.
  std::atomic<int> socket_{-1};
  std::unique_ptr<Periodic> thread_;  // last: it uses all of the above
};

}  // namespace smartcache

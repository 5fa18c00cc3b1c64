// The decision log: one JSON datagram for each answer, the record `xcache.decision.v1` without what the collector adds.
//
// Sent without blocking and without waiting for anybody: where the system takes no datagram (no collector, full buffer, one that is too
// large), it is dropped and counted. Invalid UTF-8 in an LFN becomes U+FFFD, so that the datagram is JSON whatever a client asked for.
// Thread-safe. Failure: drops, counted; the constructor throws ConfigError where the host is no address that can be resolved.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "smartcache/answer.hh"
#include "smartcache/config.hh"
#include "smartcache/counters.hh"

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
  DecisionLog(const DecisionLogConfig& config, Counters* counters);
  ~DecisionLog();
  DecisionLog(const DecisionLog&) = delete;
  DecisionLog& operator=(const DecisionLog&) = delete;

  bool with_features() const { return with_features_; }
  void Send(const DecisionRecord& record);

 private:
  const bool with_features_;
  Counters* const counters_;
  int socket_ = -1;  // -1: no log is wanted
};

}  // namespace smartcache

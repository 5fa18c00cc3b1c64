// The features of an open: computed from the history as it was just before it, in one place for the plugin, Spark and the simulator.
//
// Everything here is known when Decide runs: the LFN, the clock, the cache's own state, earlier opens. Counts and times enter as ln(1 + x)
// (seconds, bytes); -1 stands for "unknown" and cannot be mistaken for a value. `share` features are shrunk towards a prior:
// (re-opens + 1) / (opens + 4). A clock that steps back gives gaps of 0. Every feature is finite for any input.
//
// Schema: names, version and hash. The hash (FNV-1a 64, 16 hex digits) covers a canonical text with every name and every parameter that
// changes what a feature means, so two cores with equal hashes compute equal bits of equal histories. [history] memory_bytes is not in it:
// it says how much is remembered, and changes values only once the history is full and forgets. A change of meaning needs a new
// kSchemaVersion.
// Thread-safety: Parse may run concurrently; Observe not, the owner serialises it. Failure: at construction only, ConfigError where there
// is not the memory that [history] asks for, std::bad_alloc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "smartcache/config.hh"
#include "smartcache/history.hh"
#include "smartcache/lfn.hh"

namespace smartcache {

constexpr int kSchemaVersion = 1;

struct Schema {
  std::vector<std::string> names;
  std::string text;
  std::string hash;
};

Schema MakeSchema(const Config& config);

// What is known of one open. `size` -1 and `fill` -1: unknown.
struct Open {
  int64_t t_us;
  std::string_view lfn;
  bool on_disk;
  int64_t size;
  float fill;
};

// The same open, with what is out of range brought back into it: the core works on, and the log shows, only such values.
Open Sanitised(const Open& open);

class FeatureCore {
 public:
  explicit FeatureCore(const Config& config);

  void Parse(std::string_view lfn, ParsedLfn* out) const { parser_.Parse(lfn, out); }
  // Writes schema().names.size() features to `out`, then records the open. `open` as Sanitised left it.
  void Observe(const Open& open, const ParsedLfn& parsed, float* out);

  const Schema& schema() const { return schema_; }
  const LfnParser& parser() const { return parser_; }
  const History& history() const { return history_; }

 private:
  void Decay(History::Entry* entry, int64_t t_us, bool reopens);

  const Schema schema_;
  const int token_buckets_;
  std::vector<double> per_half_life_;  // 1 / microseconds
  LfnParser parser_;
  History history_;
};

}  // namespace smartcache

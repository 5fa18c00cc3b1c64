// The features of an open: computed from the history as it was just before it, in one place for the plugin, Spark and the simulator.
//
// Everything here is known when Decide runs: the LFN, the clock, the cache's own state, earlier opens, and where there is a dataset side
// table, what all caches of the federation saw of the dataset until it was made (the `federation_` features). Counts and times enter as
// ln(1 + x) (seconds, bytes); -1 stands for "unknown" and cannot be mistaken for a value. `share` features are shrunk towards a prior:
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
#include "smartcache/federation.hh"
#include "smartcache/history.hh"
#include "smartcache/lfn.hh"

namespace smartcache {

constexpr int kSchemaVersion = 3;

struct Schema {
  std::vector<std::string> names;
  std::string text;
  std::string hash;
};

Schema MakeSchema(const Config& config);

// ln(1 + n), and a share as the features have it.
float LogCount(double n);
float ShrunkShare(double reopens, double opens);

// What is known of one open. -1: unknown. `read_share` is of the last access before this open: bytes read over the size of the file, at
// most kMaxReadShare (a job may read a file more than once).
struct Open {
  int64_t t_us;
  std::string_view lfn;
  bool on_disk;
  int64_t size;
  float fill;
  float read_share = -1.0f;
};

constexpr float kMaxReadShare = 4.0f;
constexpr int64_t kLastMicrosecond = INT64_C(253402300799999999);  // the end of the year 9999

// The same open, with what is out of range brought back into it: the core works on, and the log shows, only such values.
Open Sanitised(const Open& open);

// Opens of one file that this core has not seen, in the order of time: `times` opens at about `t_us`, the last of them at `last_us`.
struct PastOpens {
  struct At {
    int64_t t_us;
    double times;
  };
  std::vector<At> opens;
  uint64_t count = 0;
  int64_t previous_gap_us = -1;  // between the last two; -1: there was one
  double log_gaps = 0;           // sum over the re-opens of ln(1 + gap in seconds)
  float read_share = -1.0f;      // of the last one
};

class FeatureCore {
 public:
  explicit FeatureCore(const Config& config);

  void Parse(std::string_view lfn, ParsedLfn* out) const { parser_.Parse(lfn, out); }
  // Writes schema().names.size() features to `out`, then records the open. `open` as Sanitised left it. `federation` is what a side table
  // says of `parsed.dataset`; nothing of it is remembered.
  void Observe(const Open& open, const ParsedLfn& parsed, float* out, const Federation& federation = {});

  // What `past` amounts to at its last open: everything that takes long, and needs no lock.
  struct Seed {
    PastOpens past;
    std::vector<double> opens, reopens;  // decayed counters
  };
  Seed MakeSeed(PastOpens past) const;
  // Records it as if the core had seen those opens, except that nothing which it has seen changes: false where the file is known already,
  // where nothing is told, or where there is no room without forgetting something.
  bool Plant(const Seed& seed, const ParsedLfn& parsed);
  // What part of the file will be read, 0 to 1: as at its last access that was told, else as files of its dataset are, else all of it.
  double ExpectedPart(const ParsedLfn& parsed);
  // Share of the opens of the dataset that were of a file seen before, shrunk as above.
  double BaseRate(const ParsedLfn& parsed);

  const Schema& schema() const { return schema_; }
  const LfnParser& parser() const { return parser_; }
  const History& history() const { return history_; }
  History& history() { return history_; }

 private:
  void Decay(History::Entry* entry, int64_t t_us, bool reopens);

  const Schema schema_;
  const int token_buckets_;
  std::vector<double> per_half_life_;  // 1 / microseconds
  LfnParser parser_;
  History history_;
};

}  // namespace smartcache

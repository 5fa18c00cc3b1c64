// One cache, replayed on opens of the past: what it would have fetched, written and removed with a model, or as an XCache without one.
//
// Features, history, network, policy and the worth of a file are those of the plugin; the cache is simulated: metadata only, empty at the
// beginning, by one of two sets of rules (ReplayRules).
//   asked:     rules, then the model's score against its thresholds under the fill of now, as policy.hh has it; nothing is explored, and
//              no budget binds. Without a model every open is admitted that no rule forbids, or [policy] fallback answers.
//   not asked: (another client held the file, so pfc asks nobody) it is read from where the file is; nothing is stored
//   full:      over [evictor] high of the capacity files go until [evictor] low is reached: with a model, where the evictor may remove, by
//              their worth (worth.hh), else by last access, as pfc purges. Never the file that is just being opened.
//   evict:     the file goes after this open, where the evictor may remove.
// Whole files (block_bytes 0): what is admitted is fetched and written whole, what is bypassed is fetched whole; a look at the marks and
// the removal of what was answered `evict` come with each open, and no limit a minute is kept.
// As pfc does it (block_bytes above 0): an open reads the first b_read bytes of the file (all of it where that is unknown), since a trace
// says how much was read but not where. What is admitted is fetched and written in whole blocks, those that are not there yet; what is
// bypassed is fetched to the byte, and so is what would not fit on a disk that is full. Each purge_interval_s pfc looks: over purge_high of
// the capacity the files of the oldest last access go until purge_low is reached. Each evictor_look_s the evictor looks, at its own marks:
// it ranks, and removes at most [evictor] files_per_minute, the rest in the minutes that follow, but what was opened since; what was
// answered `evict` goes evict_delay_s after its open unless it was opened again, at most answers_per_minute.
// A file is told to the core as the plugin would: on disk with its size and the share that the access before read of it, else unknown.
// Time never runs backwards here. Deterministic. An open costs about two microseconds, a purge the ranking of all that is stored.
// Thread-safety: none. Failure: std::bad_alloc, and std::invalid_argument from the constructor where the model or the rules do not fit.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "smartcache/config.hh"
#include "smartcache/features.hh"
#include "smartcache/file_portfolio.hh"
#include "smartcache/network.hh"
#include "smartcache/policy.hh"

namespace smartcache {

struct ReplayModel {
  std::shared_ptr<const Network> network;
  std::vector<double> bucket_edges_s;
  size_t horizon_buckets;
  double admit, evict;
};

constexpr int64_t kNeverOpened = std::numeric_limits<int64_t>::max();

struct PastOpen {
  int64_t t_us;
  std::string_view lfn;
  int64_t size;                    // of the file; not negative
  int64_t b_read;                  // by this open; -1 unknown
  bool asked;                      // whether Decide was
  int64_t next_us = kNeverOpened;  // of the file's next open: for ReplayRules::foresight alone
};

// How the cache itself works, and who decides where there is no model. As it is: whole files, between the marks of [evictor].
struct ReplayRules {
  int64_t block_bytes = 0;  // 0: whole files, and none of the next five
  double purge_interval_s = 300, purge_high = 0.95, purge_low = 0.90;
  double evictor_look_s = 5, evict_delay_s = 2;
  bool fallback = false;   // without a model [policy] fallback answers; else all is admitted
  int admit_at = 1;        // a file is stored at this open of it and later, where it would be admitted; the first is 1
  bool foresight = false;  // without a model what is opened again last goes first: the bound
  bool portfolio = false;  // the portfolio votes, with the model or without one; as large as [portfolio] says, whether enabled or not
};

struct ReplayCounters {
  int64_t opens = 0;
  int64_t hits = 0;                   // whole files: the file was on disk; blocks: nothing had to be fetched
  int64_t bytes = 0;                  // of all opened files; with blocks, that were read
  int64_t missed_bytes = 0;           // those of them that were not on disk
  int64_t fetched_bytes = 0;          // from the origin, for these: with blocks, what is read besides them to fill the blocks too
  int64_t written_bytes = 0;          // of those that were stored then
  int64_t bypassed = 0, evicted = 0;  // opens that were answered so
  int64_t refused = 0;                // opens that were admitted, on a disk that was full
  int64_t purged_bytes = 0, evicted_bytes = 0;
  int64_t removed_files = 0;
};

class CacheReplay {
 public:
  CacheReplay(const Config& config, int64_t capacity, std::optional<ReplayModel> model, const ReplayRules& rules = {});

  void Open(const PastOpen& open);
  const ReplayCounters& counters() const { return counters_; }
  int64_t used() const { return used_; }

 private:
  // On disk.
  struct File {
    uint64_t dataset;
    int64_t size;    // of the file
    int64_t stored;  // of it, on disk
    int64_t last_us;
    int64_t next_us;
    float read_share;
  };
  struct Ranked {
    double worth;
    int64_t last_us;
    uint64_t file;
    int64_t opened_us;  // as the cache has it
  };
  // Answered `evict`: goes when due, unless it was opened since.
  struct Leaving {
    int64_t due_us;
    int64_t opened_us;
    uint64_t file;
  };
  // A budget of removals that is whole again each minute.
  struct Limit {
    int64_t began_us = std::numeric_limits<int64_t>::min();
    int64_t removed = 0;
    static constexpr int64_t kMinute = 60000000;
    bool Take(int64_t now_us, int64_t a_minute);
  };

  Verdict Ask(const smartcache::Open& open, const ParsedLfn& parsed);
  Verdict Vote(const smartcache::Open& open, const ParsedLfn& parsed, const Verdict& otherwise, const Scored* scored);
  bool Wanted(Answer answer, uint64_t file);
  void WholeFile(const PastOpen& told, const ParsedLfn& parsed, int64_t t_us, Answer answer);
  void Blocks(const PastOpen& told, const ParsedLfn& parsed, int64_t t_us, Answer answer);
  void Touch(File* file, const PastOpen& told, const ParsedLfn& parsed, int64_t t_us);
  // All that would have happened between the last open and this moment.
  void Meanwhile(int64_t now_us);
  static void Pass(int64_t* next_us, double every_s, int64_t now_us);
  // Returns the bytes that it had.
  int64_t Remove(uint64_t file);
  // Makes room down to the low mark; `open` stays. Returns the bytes.
  int64_t Purge(uint64_t open, int64_t now_us, double low, bool by_worth);
  // All stored files but `open`, as a heap with the worst on top.
  void RankAll(uint64_t open, int64_t now_us, bool by_worth, std::vector<Ranked>* ranked);
  static bool IsBetter(const Ranked& a, const Ranked& b);
  static Ranked Worst(std::vector<Ranked>* ranked);
  // The evictor ranks, and removes what the limit allows; once a minute has passed it goes on.
  void BeginRun(int64_t now_us);
  void GoOn(int64_t now_us);
  Ranked Rank(uint64_t key, const File& file, int64_t now_us, bool by_worth);
  bool may_remove() const { return (model_ || portfolio_) && config_.evictor.enabled && !config_.evictor.dry_run; }
  bool over(double mark) const { return static_cast<double>(used_) > mark * static_cast<double>(capacity_); }
  float fill() const;

  const Config config_;
  const int64_t capacity_;
  const std::optional<ReplayModel> model_;
  const ReplayRules rules_;
  const Policy policy_;
  FeatureCore core_;
  std::unique_ptr<FilePortfolio> portfolio_;  // null: not asked for
  int64_t last_t_us_ = 0;
  int64_t used_ = 0;
  ReplayCounters counters_;
  std::vector<float> features_, outputs_;
  std::vector<double> shares_;  // the outputs, as the history takes them
  std::unordered_map<uint64_t, File> files_;
  std::unordered_map<uint64_t, int> uses_;  // opens of each file, where admit_at is above 1
  std::deque<Leaving> leaving_;
  Limit evictor_limit_, answers_limit_;
  int64_t purge_us_ = 0, look_us_ = 0;  // the next of each
  int64_t needed_ = 0, resume_us_ = 0;  // what is left of a run of the evictor: bytes, and when it goes on
  std::vector<Ranked> run_;             // of it
  std::vector<Ranked> ranked_;          // keeps its memory from purge to purge
};

}  // namespace smartcache

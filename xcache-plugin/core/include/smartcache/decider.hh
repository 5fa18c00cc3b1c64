// The decision of one cache: history, features, model, policy, log and counters, tied together. What the plugin calls at every open.
//
// The open of a file on disk goes on whatever is answered, so it need not wait: DecideLater makes the same decision in the background,
// those of some milliseconds with one question to an endpoint that takes several rows.
//
//   Decide: features of the history so far, the open recorded -> rule? -> budget? -> model within its deadline -> policy -> prediction
//   remembered, counters, log
// Challenger: a second bundle. It decides in place of the model for the files of the canary, a share of all by a hash of the name, and is
// asked as the model is: at the endpoint, by connections and a breaker of its own, with its copy in place of no answer. For the others its
// copy is asked besides (shadow), its answer logged and nothing else: no open waits for two servers. Without a champion it is not asked.
// Portfolio: is shown every open but those of never_admit, with what the model said, and has the last word where neither a rule nor the
// budget has spoken.
// Time never runs backwards by less than a second in what is recorded and logged: concurrent opens get the times in which the history saw
// them. A larger step back is a clock that was set, and is taken. The order of the history is therefore (boot_us, seq), not time: replaying
// the log in that order, each boot_us into a new core of the same configuration, gives the same features. For the same reason the LFN that
// is computed with is the one that is logged, in valid UTF-8. Thread-safe: one short mutex around history and features (about a
// microsecond); the model is asked outside it. Failure: Decide never throws and always answers: the fallback, with the reason. The
// constructor throws ConfigError, std::system_error or std::bad_alloc.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "smartcache/budget.hh"
#include "smartcache/bundle_watcher.hh"
#include "smartcache/counters.hh"
#include "smartcache/decision_log.hh"
#include "smartcache/embedded.hh"
#include "smartcache/features.hh"
#include "smartcache/file_portfolio.hh"
#include "smartcache/history_keeper.hh"
#include "smartcache/later.hh"
#include "smartcache/log.hh"
#include "smartcache/metrics_server.hh"
#include "smartcache/model.hh"
#include "smartcache/off_switch.hh"
#include "smartcache/periodic.hh"
#include "smartcache/policy.hh"
#include "smartcache/portfolio_keeper.hh"
#include "smartcache/side_table_watcher.hh"
#include "smartcache/trace.hh"

namespace smartcache {

struct Decision {
  Answer answer;
  Reason reason;
};

class Decider {
 public:
  // `cache` is the cache id, host:port; `boot_us` when this server started; `seed` that of exploration. `log` gets what an admin must know:
  // a model in use, a bundle refused. Never a line per open: that is what `trace` may get.
  // `decided` is called with what DecideLater has come to, from several threads.
  using Decided = std::function<void(const std::string& lfn, const Decision& decision)>;
  Decider(const Config& config, std::string cache, int64_t boot_us, uint64_t seed, Log log, Trace trace = {}, Decided decided = {});

  // As told by pfc: `size` -1 and `fill` -1 where unknown.
  // `read_share` of the last access, -1 where unknown.
  Decision Decide(int64_t t_us, std::string_view lfn, bool on_disk, int64_t size, float fill, float read_share = -1.0f) noexcept;

  // The same in the background, within milliseconds unless the endpoint is slow; `decided` of the constructor is told. For a file on disk.
  // False where thousands wait already: nothing was done then.
  bool DecideLater(int64_t t_us, std::string_view lfn, int64_t size, float fill, float read_share) noexcept;

  // What was predicted at the last open of a file, and when that was. False where nothing is remembered of the file. Its `model_id` is the
  // `edges_id` of the bundle that gave it: as long as that is the current bundle's, the outputs belong to its buckets.
  // `base_rate`, known for any file: the share of the opens of its dataset that were opens of a file seen before, shrunk as the features
  // are.
  bool Recall(std::string_view lfn, History::Forecast* out, double* base_rate);
  // Whether a scan of the disk is to seed the history: it had nothing to begin with, or was saved before such a scan had ended.
  bool scan_due();
  // It has ended.
  void Scanned();
  // Opens of a file from before this core began: see FeatureCore::Plant. From the first one on, decisions are logged as `history_scanned`:
  // a replay of the log does not know what was seeded.
  bool Seed(std::string_view lfn, PastOpens past);
  // The room that the cache has for files; for the portfolio.
  void Room(int64_t bytes);
  // What a file is worth beside others by the portfolio (FilePortfolio::Worth); none: there is none, or it has nothing to say now.
  std::optional<double> Worth(std::string_view lfn);
  // Whether there is one, and it has.
  bool votes();
  // Turned off by the admin: nothing may be removed either.
  bool off() const { return off_ && off_->off(); }
  // The bundle in use, null for none.
  std::shared_ptr<const Bundle> bundle() const { return bundles_ ? bundles_->current() : nullptr; }
  // The challenger's, null for none.
  std::shared_ptr<const Bundle> challenger() const { return challengers_ ? challengers_->current() : nullptr; }

  Counters* counters() { return &counters_; }
  // Who counts or removes the files on disk tells it.
  Budget* budget() { return &budget_; }
  // The page of counters, as the textfile has it.
  std::string CountersText();
  // The side table in use, null for none.
  std::shared_ptr<const SideTable> side_table() const { return side_tables_ ? side_tables_->current() : nullptr; }
  // The name of the model in use, "" for none.
  std::string model_name() const;

 private:
  struct Judgement {
    Verdict verdict;
    Scored scored{};                         // only with a bundle
    std::shared_ptr<const Bundle> bundle{};  // that gave the score; null: there is none
    // What the challenger said without effect.
    std::shared_ptr<const Bundle> shadow{};  // null: it was not asked
    Verdict shadow_verdict{};
    double shadow_score = 0;
  };

  // An open on its way to its decision.
  struct Question;

  Decision FailSafe(bool on_disk, std::chrono::steady_clock::time_point start) noexcept;
  // What DecideLater was told of.
  void DecideKept(const std::vector<KeptOpen>& opens) noexcept;
  // Up to the question to a model: the open is in the history, the steps of the policy before the model are done, and who is to be asked is
  // known. False where the answer, or the prediction, is there already.
  bool Begin(const Open& told, Question* question);
  // Moves those of the bundle of the first, which there is, to the front and asks for them, with one question where the model takes several
  // rows. Returns their end. A version that has just come into use has others than the one before it.
  using Questions = std::vector<Question*>;
  static Questions::iterator AskTogether(Questions::iterator first, Questions::iterator end);
  // With the prediction there, or no answer: the rest of the policy, counters and log.
  Decision Finish(Question* question);
  // Takes the open into the history, and gives the time and number under which it is logged.
  void Observe(Question* question);
  // What is decided without a model.
  std::optional<Verdict> WithoutModel(const Open& open);
  Judgement ByModel(const Question& question);
  // Shows the open to the portfolio, which may decide otherwise.
  void Vote(const Question& question, Judgement* judged);
  // Asks the challenger besides.
  void Shadow(const std::shared_ptr<const Bundle>& challenger, const Open& open, const float* features, Judgement* judged);
  // A prediction as the policy takes it.
  Scored Score(const Bundle& bundle, const Prediction& prediction, float fill) const;
  // The rest of the record, and off with it.
  void Record(const Open& open, const Judgement& judged, DecisionRecord* record);
  double Uniform();
  // A complaint about a value of the configuration.
  void Say(const std::string& text) const;
  void TraceDecision(const DecisionRecord& record) const;
  // Where it is another than the last time that a model of this role was asked: what became of it.
  void TraceAsked(Role role, Reason result);
  void WriteCounters() noexcept;
  void KeepHistory();
  HistoryState HistoryNow() const;

  const Config config_;
  const std::string cache_;
  const int64_t boot_us_;
  const Log log_;
  const Trace trace_;
  Counters counters_;
  const Policy policy_;
  Budget budget_;
  DecisionLog decision_log_;

  std::mutex mutex_;  // guards the five below
  FeatureCore core_;
  int64_t last_t_us_ = 0;
  uint64_t seq_ = 0;
  bool scanned_ = false;
  bool scan_due_ = false;

  std::optional<HistoryState> began_as_;               // what the history was restored as; none: it began empty
  std::unique_ptr<HistoryKeeper> keeper_;              // null: the history is not kept
  std::unique_ptr<OffSwitch> off_;                     // null: no such file configured
  std::unique_ptr<FilePortfolio> portfolio_;           // null: not configured
  std::unique_ptr<PortfolioKeeper> portfolio_keeper_;  // the same
  std::unique_ptr<Periodic> memory_;                   // backs the history's memory ahead of its use

  bool textfile_failed_ = false;  // the metrics thread's own
  std::atomic<uint64_t> random_;
  std::atomic<Reason> last_asked_[kRoles] = {Reason::kNoModel, Reason::kNoModel};  // by role
  std::unique_ptr<Model> model_;                                                   // null: nobody to ask is configured
  std::unique_ptr<BundleWatcher> bundles_;                                         // null: no bundle_dir configured
  EmbeddedModel challenger_copy_;
  std::unique_ptr<Model> challenger_model_;        // null: the copy alone is asked
  std::unique_ptr<BundleWatcher> challengers_;     // null: none is to be tried
  std::unique_ptr<SideTableWatcher> side_tables_;  // null: no file configured
  const Decided decided_;
  std::unique_ptr<Later> later_;
  std::unique_ptr<Periodic> metrics_;  // these two last: they use all of the above
  std::unique_ptr<MetricsServer> server_;
};

}  // namespace smartcache

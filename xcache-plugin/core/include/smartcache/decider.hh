// The decision of one cache: history, features, model, policy, log and counters, tied together. What the plugin calls at every open.
//
//   Decide: rule? -> features of the history so far, the open recorded -> model within its deadline -> policy -> counters, log
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
#include <string>
#include <vector>

#include "smartcache/bundle_watcher.hh"
#include "smartcache/counters.hh"
#include "smartcache/decision_log.hh"
#include "smartcache/features.hh"
#include "smartcache/log.hh"
#include "smartcache/model.hh"
#include "smartcache/periodic.hh"
#include "smartcache/policy.hh"

namespace smartcache {

struct Decision {
  Answer answer;
  Reason reason;
};

class Decider {
 public:
  // `cache` is the cache id, host:port; `boot_us` when this server started; `seed` that of exploration. `log` gets what an admin must know:
  // a model in use, a bundle refused. Never a line per open.
  Decider(const Config& config, std::string cache, int64_t boot_us, uint64_t seed, Log log);

  // As told by pfc: `size` -1 and `fill` -1 where unknown.
  Decision Decide(int64_t t_us, std::string_view lfn, bool on_disk, int64_t size, float fill) noexcept;

  Counters* counters() { return &counters_; }
  // The page of counters, as the textfile has it.
  std::string CountersText();
  // The name of the model in use, "" for none.
  std::string model_name() const;

 private:
  Decision DecideOrThrow(const Open& told, std::chrono::steady_clock::time_point start);
  // Records the open and gives the times and number under which it is logged.
  void Observe(Open* open, const ParsedLfn& parsed, float* features, uint64_t* seq);
  double Uniform();
  // A complaint about a value of the configuration.
  void Say(const std::string& text) const;
  void WriteCounters() noexcept;

  const Config config_;
  const std::string cache_;
  const int64_t boot_us_;
  const Log log_;
  Counters counters_;
  const Policy policy_;
  DecisionLog decision_log_;

  std::mutex mutex_;  // guards the three below
  FeatureCore core_;
  int64_t last_t_us_ = 0;
  uint64_t seq_ = 0;

  bool textfile_failed_ = false;  // the metrics thread's own
  std::atomic<uint64_t> random_;
  std::unique_ptr<Model> model_;            // null: no endpoint configured
  std::unique_ptr<BundleWatcher> bundles_;  // null: no bundle_dir configured
  std::unique_ptr<Periodic> metrics_;       // last: it uses all of the above
};

}  // namespace smartcache

#include "smartcache/decider.hh"

#include <algorithm>
#include <chrono>
#include <utility>

#include "smartcache/endpoint.hh"
#include "smartcache/hash.hh"
#include "smartcache/utf8.hh"

namespace smartcache {
namespace {

constexpr int64_t kClockJitterUs = 1000000;
constexpr size_t kMaxFeatures = 256;  // 8 half-lives and 64 token buckets make 112

std::unique_ptr<Model> MakeModel(const Config& config, size_t features, Log log) {
  if (config.model.endpoint_url.empty() || config.model.bundle_dir.empty()) return nullptr;
  try {
    return std::make_unique<EndpointModel>(config.model, features, std::move(log));
  } catch (const ConfigError& error) {
    throw ConfigError(config.source + ": " + error.what());
  }
}

}  // namespace

Decider::Decider(const Config& config, std::string cache, int64_t boot_us, uint64_t seed, Log log)
    : config_(config),
      cache_(std::move(cache)),
      boot_us_(boot_us),
      log_(std::move(log)),
      policy_(config.policy),
      decision_log_(config.decision_log, &counters_, [this](const std::string& text) { Say(text); }),
      core_(config),
      random_(seed),
      model_(MakeModel(config, core_.schema().names.size(), [this](const std::string& text) { Say(text); })) {
  if (model_) bundles_ = std::make_unique<BundleWatcher>(config_.model, core_.schema(), model_.get(), log_);
  if (!config_.plugin_metrics.textfile.empty())
    metrics_ = std::make_unique<Periodic>(config_.plugin_metrics.interval_s, [this] { WriteCounters(); });
}

Decision Decider::Decide(int64_t t_us, std::string_view lfn, bool on_disk, int64_t size, float fill) noexcept {
  const auto start = std::chrono::steady_clock::now();
  try {
    return DecideOrThrow(Sanitised(Open{t_us, lfn, on_disk, size, fill}), start);
  } catch (...) {
    const Verdict verdict = policy_.Fallback(Reason::kError, on_disk);
    counters_.Answered(verdict.answer, verdict.reason, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return {verdict.answer, verdict.reason};
  }
}

void Decider::Observe(Open* open, const ParsedLfn& parsed, float* features, uint64_t* seq) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (open->t_us <= last_t_us_ && last_t_us_ - open->t_us < kClockJitterUs) open->t_us = last_t_us_ + 1;
  last_t_us_ = open->t_us;
  *seq = ++seq_;
  core_.Observe(*open, parsed, features);
}

Decision Decider::DecideOrThrow(const Open& told, std::chrono::steady_clock::time_point start) {
  // What is logged is what is computed with: other bytes in an LFN become U+FFFD before anything looks at them.
  thread_local std::string scratch;
  Open open = told;
  open.lfn = ValidUtf8(told.lfn, &scratch);
  ParsedLfn parsed;
  float features[kMaxFeatures];
  uint64_t seq = 0;
  core_.Parse(open.lfn, &parsed);
  Observe(&open, parsed, features, &seq);

  std::shared_ptr<const Bundle> answered;  // the bundle that gave the score
  Scored scored{};
  Verdict verdict{};
  if (const auto rule = policy_.ByRule(open.lfn, open.on_disk)) {
    verdict = *rule;
  } else if (const auto bundle = bundles_ ? bundles_->current() : nullptr; !bundle) {
    verdict = policy_.Fallback(Reason::kNoModel, open.on_disk);
  } else {
    Prediction prediction;
    model_->Predict(*bundle, features, &prediction);
    counters_.Asked(prediction.answered ? Reason::kModel : prediction.why_not);
    if (prediction.answered) {
      answered = bundle;
      scored = {0.0, bundle->admit, bundle->evict};
      for (size_t i = 0; i < bundle->horizon_buckets; ++i) scored.score += prediction.outputs[i];
      scored.score = std::clamp(scored.score, 0.0, 1.0);  // float32 outputs add up to a little more than 1 too
      verdict = policy_.ByScore(scored, open.on_disk, Uniform());
    } else {
      verdict = policy_.Fallback(prediction.why_not, open.on_disk);
    }
  }

  const auto latency = std::chrono::steady_clock::now() - start;
  counters_.Answered(verdict.answer, verdict.reason, std::chrono::duration<double>(latency).count());
  DecisionRecord record{};
  record.cache = cache_;
  record.boot_us = boot_us_;
  record.seq = seq;
  record.t_us = open.t_us;
  record.lfn = open.lfn;
  record.answer = verdict.answer;
  record.reason = verdict.reason;
  record.has_score = answered != nullptr;
  record.score = scored.score;
  record.probability = verdict.probability;
  if (answered) record.model = answered->name;
  record.latency_us = std::chrono::duration_cast<std::chrono::microseconds>(latency).count();
  record.on_disk = open.on_disk;
  record.size = open.size;
  record.fill = open.fill;
  if (decision_log_.with_features()) {
    record.features = features;
    record.feature_count = core_.schema().names.size();
  }
  decision_log_.Send(record);
  return {verdict.answer, verdict.reason};
}

// splitmix64 on a shared counter: no lock, and no state a thread would have to own.
double Decider::Uniform() {
  const uint64_t bits = Mix(random_.fetch_add(0x9e3779b97f4a7c15ull, std::memory_order_relaxed) + 0x9e3779b97f4a7c15ull);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

std::string Decider::model_name() const {
  const auto bundle = bundles_ ? bundles_->current() : nullptr;
  return bundle ? bundle->name : "";
}

std::string Decider::CountersText() {
  Counters::Gauges gauges;
  gauges.model = model_name();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    gauges.files = core_.history().files();
    gauges.datasets = core_.history().datasets();
    gauges.history_bytes = core_.history().memory_bytes();
  }
  return counters_.Text(gauges);
}

void Decider::Say(const std::string& text) const { log_(config_.source + ": " + text); }

void Decider::WriteCounters() noexcept {
  try {
    const bool written = WriteTextfile(config_.plugin_metrics.textfile, CountersText());
    if (!written && !textfile_failed_)
      Say("[plugin_metrics] textfile must be a file that the server's user can write, but is \"" + config_.plugin_metrics.textfile +
          "\"; let that user write to its folder");
    textfile_failed_ = !written;
  } catch (...) {
    textfile_failed_ = true;
  }
}

}  // namespace smartcache

#include "smartcache/decider.hh"

#include <algorithm>
#include <chrono>
#include <locale>
#include <sstream>
#include <utility>

#include "smartcache/endpoint.hh"
#include "smartcache/endpoint_with_copy.hh"
#include "smartcache/hash.hh"
#include "smartcache/utf8.hh"

namespace smartcache {
namespace {

constexpr int64_t kClockJitterUs = 1000000;
constexpr double kBackEveryS = 1.0;
constexpr size_t kLaterThreads = 4;
constexpr size_t kLaterCapacity = 8192;
constexpr double kNotExplored = 1.0;              // as a random number: never below the share of exploration
constexpr uint64_t kCanarySalt = 0x63616e617279;  // "canary": apart from what else is drawn from the hash of a file
constexpr size_t kMaxFeatures = 256;              // 8 half-lives and 64 token buckets make 121

std::unique_ptr<Model> MakeEndpoint(const Config& config, size_t features, Log log) {
  try {
    return std::make_unique<EndpointModel>(config.model, features, std::move(log));
  } catch (const ConfigError& error) {
    throw ConfigError(config.source + ": " + error.what());
  }
}

std::unique_ptr<Model> MakeModel(const Config& config, size_t features, Log log) {
  const ModelConfig& model = config.model;
  if (model.bundle_dir.empty() || (model.use == ModelUse::kEndpoint && model.endpoint_url.empty())) return nullptr;
  if (model.use == ModelUse::kEmbedded || model.endpoint_url.empty()) return std::make_unique<EmbeddedModel>();
  auto endpoint = MakeEndpoint(config, features, std::move(log));
  if (model.use == ModelUse::kEndpoint) return endpoint;
  return std::make_unique<EndpointWithCopy>(std::move(endpoint));
}

// Who answers for the canary besides the copy. Its own connections and breaker: what it does to the endpoint is not the champion's fault.
std::unique_ptr<Model> MakeChallenger(const Config& config, size_t features) {
  const ModelConfig& model = config.model;
  if (config.challenger.canary_share <= 0 || model.use == ModelUse::kEmbedded || model.endpoint_url.empty()) return nullptr;
  return std::make_unique<EndpointWithCopy>(MakeEndpoint(config, features, {}));  // its files are the champion's, who complains
}

// Whether a file is of the canary. The same for all caches and versions, so that what is compared stays apart for as long as it lasts.
bool InCanary(uint64_t file, double share) { return static_cast<double>(Mix(file ^ kCanarySalt) >> 11) * 0x1.0p-53 < share; }

}  // namespace

Decider::Decider(const Config& config, std::string cache, int64_t boot_us, uint64_t seed, Log log, Trace trace, Decided decided)
    : config_(config),
      cache_(std::move(cache)),
      boot_us_(boot_us),
      log_(std::move(log)),
      trace_(std::move(trace)),
      policy_(config.policy),
      budget_(config.budget),
      decision_log_(config.decision_log, &counters_, [this](const std::string& text) { Say(text); }),
      core_(config),
      random_(seed),
      model_(MakeModel(config, core_.schema().names.size(), [this](const std::string& text) { Say(text); })),
      decided_(std::move(decided)) {
  KeepHistory();
  if (!config_.side_table.file.empty()) side_tables_ = std::make_unique<SideTableWatcher>(config_.side_table, &counters_, log_);
  if (config_.portfolio.enabled) {
    portfolio_ = std::make_unique<FilePortfolio>(config_.portfolio, config_.budget.unknown_size_bytes, config_.evictor.benefit_per_open,
                                                 model_ != nullptr);
    portfolio_keeper_ = std::make_unique<PortfolioKeeper>(config_, portfolio_.get(), [this](const std::string& text) { Say(text); });
  }
  if (!config_.policy.off_file.empty()) off_ = std::make_unique<OffSwitch>(config_.policy.off_file, log_);
  scan_due_ = config_.history.scan && (scan_due_ || core_.history().files() == 0);
  if (model_) bundles_ = std::make_unique<BundleWatcher>(config_.model, core_.schema(), model_.get(), log_);
  if (model_ && (config_.challenger.canary_share > 0 || config_.challenger.shadow)) {
    challenger_model_ = MakeChallenger(config_, core_.schema().names.size());
    Model* const asked = challenger_model_ ? challenger_model_.get() : &challenger_copy_;
    challengers_ = std::make_unique<BundleWatcher>(config_.model, core_.schema(), asked, log_, Role::kChallenger);
  }
  later_ = std::make_unique<Later>([this](const std::vector<KeptOpen>& opens) { DecideKept(opens); }, kLaterThreads, kLaterCapacity,
                                   [this] { return model_ ? model_->rows_at_once() : EmbeddedModel().rows_at_once(); });
  if (!config_.plugin_metrics.textfile.empty())
    metrics_ = std::make_unique<Periodic>(config_.plugin_metrics.interval_s, [this] { WriteCounters(); });
  if (config_.plugin_metrics.port != 0)
    server_ = std::make_unique<MetricsServer>(
        config_.plugin_metrics, [this] { return CountersText(); }, [this](const std::string& text) { Say(text); });
}

struct Decider::Question {
  std::chrono::steady_clock::time_point start;
  Open open;
  std::string valid;  // the LFN, where it had to be changed
  ParsedLfn parsed;
  float features[kMaxFeatures];
  DecisionRecord record{};
  std::optional<Verdict> known;  // without a model
  std::shared_ptr<const Bundle> bundle, challenger;
  Model* model = nullptr;  // who is to be asked for `bundle`
  bool canary = false;
  Prediction prediction;
  bool decided = false;  // whatever the portfolio says
  // How long those that are decided together, and that no open waits for, may still wait for the portfolio.
  FilePortfolio::Duration* patience = nullptr;
  double part = 1, base_rate = 0;  // for the portfolio
};

Decision Decider::Decide(int64_t t_us, std::string_view lfn, bool on_disk, int64_t size, float fill, float read_share) noexcept {
  const auto start = std::chrono::steady_clock::now();
  try {
    Question question;
    question.start = start;
    if (Begin({t_us, lfn, on_disk, size, fill, read_share}, &question))
      question.model->Predict(*question.bundle, question.features, start, &question.prediction);
    return Finish(&question);
  } catch (...) {
    return FailSafe(on_disk, start);
  }
}

Decision Decider::FailSafe(bool on_disk, std::chrono::steady_clock::time_point start) noexcept {
  const Verdict verdict = policy_.Fallback(Reason::kError, on_disk);
  decision_log_.Lost();
  counters_.Answered(verdict.answer, verdict.reason, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return {verdict.answer, verdict.reason};
}

bool Decider::DecideLater(int64_t t_us, std::string_view lfn, int64_t size, float fill, float read_share) noexcept {
  try {
    return later_->Add({t_us, lfn, true, size, fill, read_share});
  } catch (...) {
    return false;  // no memory
  }
}

void Decider::DecideKept(const std::vector<KeptOpen>& opens) noexcept {
  const auto start = std::chrono::steady_clock::now();
  std::vector<bool> told;
  const auto tell = [&](size_t i, const Decision& decision) {
    if (decided_) decided_(opens[i].lfn, decision);
  };
  try {
    told.resize(opens.size());
    std::vector<Question> questions(opens.size());
    FilePortfolio::Duration patience = FilePortfolio::kPatience;
    const auto finish = [&](Question* question) {
      const auto i = static_cast<size_t>(question - questions.data());
      const Decision decision = Finish(question);
      told[i] = true;
      tell(i, decision);
    };
    std::vector<Question*> to_ask;
    for (size_t i = 0; i < opens.size(); ++i) {
      questions[i].start = start;
      questions[i].patience = &patience;
      if (Begin(opens[i].open, &questions[i]))
        to_ask.push_back(&questions[i]);
      else
        finish(&questions[i]);
    }
    // The champion's first, and each as soon as its question is answered: none waits for a slow challenger.
    std::stable_partition(to_ask.begin(), to_ask.end(), [&](const Question* each) { return each->model == model_.get(); });
    for (auto first = to_ask.begin(); first != to_ask.end();) {
      const auto last = AskTogether(first, to_ask.end());
      for (; first != last; ++first) finish(*first);
    }
  } catch (...) {
    for (size_t i = 0; i < opens.size(); ++i)
      if (i >= told.size() || !told[i]) tell(i, FailSafe(true, start));
  }
}

Decider::Questions::iterator Decider::AskTogether(Questions::iterator first, Questions::iterator end) {
  const auto of_first = [bundle = (*first)->bundle](const Question* each) { return each->bundle == bundle; };
  const auto last = std::stable_partition(first, end, of_first);
  std::vector<const float*> rows;
  for (auto each = first; each != last; ++each) rows.push_back((*each)->features);
  std::vector<Prediction> predictions(rows.size());
  (*first)->model->PredictRows(*(*first)->bundle, rows, predictions.data());
  for (size_t i = 0; first != last; ++first, ++i) (*first)->prediction = predictions[i];
  return last;
}

bool Decider::Begin(const Open& told, Question* question) {
  // What is logged is what is computed with: other bytes in an LFN become U+FFFD before anything looks at them.
  question->open = Sanitised(told);
  question->open.lfn = ValidUtf8(told.lfn, &question->valid);
  core_.Parse(question->open.lfn, &question->parsed);
  Observe(question);
  question->known = WithoutModel(question->open);
  question->decided = question->known.has_value();
  if (question->known) return false;
  question->bundle = bundle();
  if (!question->bundle) {
    question->known = policy_.Fallback(Reason::kNoModel, question->open.on_disk);
    return false;
  }
  question->model = model_.get();
  question->challenger = challenger();
  question->canary = question->challenger && InCanary(question->parsed.file, config_.challenger.canary_share);
  if (!question->canary) return true;
  // Its copy first: where that has no distribution the champion is asked, and no time is lost on a server before.
  challenger_copy_.Predict(*question->challenger, question->features, question->start, &question->prediction);
  const bool answers = question->prediction.answered;
  if (answers) question->bundle = question->challenger;
  if (answers && !challenger_model_) return false;
  if (answers)
    question->model = challenger_model_.get();
  else
    counters_.Asked(Role::kChallenger, Source::kEmbedded, question->prediction.result(Source::kEmbedded));
  question->prediction = {};
  return true;
}

void Decider::Observe(Question* question) {
  Open& open = question->open;
  Federation federation;
  if (const auto table = side_table()) {
    federation = table->Find(question->parsed.dataset);
    question->record.side_table = table->version();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (open.t_us <= last_t_us_ && last_t_us_ - open.t_us < kClockJitterUs) open.t_us = last_t_us_ + 1;
  last_t_us_ = open.t_us;
  question->record.seq = ++seq_;
  question->record.history_scanned = scanned_;
  core_.Observe(open, question->parsed, question->features, federation);
  if (!portfolio_) return;
  question->part = core_.ExpectedPart(question->parsed);
  question->base_rate = core_.BaseRate(question->parsed);
}

Decision Decider::Finish(Question* question) {
  const Open& open = question->open;
  Judgement judged = question->known ? Judgement{*question->known} : ByModel(*question);
  if (portfolio_) Vote(*question, &judged);
  if (open.on_disk)
    budget_.Learn(question->parsed.dataset, open.size);
  else if (judged.verdict.answer == Answer::kAdmit)
    budget_.Charge(question->parsed.dataset, open.size);

  const auto latency = std::chrono::steady_clock::now() - question->start;
  question->record.latency_us = std::chrono::duration_cast<std::chrono::microseconds>(latency).count();
  if (decision_log_.with_features()) {
    question->record.features = question->features;
    question->record.feature_count = core_.schema().names.size();
  }
  Record(open, judged, &question->record);
  counters_.Answered(judged.verdict.answer, judged.verdict.reason, std::chrono::duration<double>(latency).count());
  return {judged.verdict.answer, judged.verdict.reason};
}

std::optional<Verdict> Decider::WithoutModel(const Open& open) {
  if (off()) return policy_.Off();
  if (const auto rule = policy_.ByRule(open.lfn, open.on_disk)) return rule;
  if (!open.on_disk && !budget_.Allows()) return policy_.OverBudget();
  return std::nullopt;
}

Decider::Judgement Decider::ByModel(const Question& question) {
  const Open& open = question.open;
  const Prediction& prediction = question.prediction;
  const Role role = question.bundle == question.challenger ? Role::kChallenger : Role::kChampion;
  for (const Source source : {Source::kEndpoint, Source::kEmbedded})
    if (prediction.result(source) != Reason::kNoModel) counters_.Asked(role, source, prediction.result(source));
  if (trace_.On(Concern::kModel)) TraceAsked(role, prediction.reason());
  Judgement judged{policy_.Fallback(prediction.reason(), open.on_disk)};
  if (prediction.answered) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      core_.history().Remember(question.parsed.file, open.t_us, question.bundle->edges_id, prediction.outputs, prediction.buckets);
    }
    judged.scored = Score(*question.bundle, prediction, open.fill);
    judged.verdict = policy_.ByScore(judged.scored, open.on_disk, Uniform());
    judged.bundle = question.bundle;
  }
  if (question.challenger && !question.canary && config_.challenger.shadow) Shadow(question.challenger, open, question.features, &judged);
  return judged;
}

void Decider::Vote(const Question& question, Judgement* judged) {
  const Open& open = question.open;
  const Verdict& verdict = judged->verdict;
  const bool never = verdict.reason == Reason::kCached || (verdict.reason == Reason::kRule && verdict.answer == Answer::kBypass);
  if (question.decided && never) return;  // by never_admit: it is not to be there
  std::optional<Forecast> forecast;
  if (judged->bundle) {
    const Bundle& bundle = *judged->bundle;
    forecast = Forecast{bundle.bucket_edges_s.data(),
                        bundle.bucket_edges_s.size(),
                        bundle.edges_id,
                        bundle.bucket_edges_s[bundle.horizon_buckets - 1],
                        question.prediction.outputs,
                        judged->scored.score >= judged->scored.admit};
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto deadline =
      std::chrono::duration_cast<FilePortfolio::Duration>(std::chrono::duration<double, std::milli>(config_.model.deadline_ms));
  const FilePortfolio::Says says =
      portfolio_->Opened({question.parsed.file, question.parsed.dataset, open.t_us, open.size, question.part, question.base_rate},
                         forecast ? &*forecast : nullptr,
                         question.patience ? *question.patience : FilePortfolio::PatienceAfter(begin - question.start, deadline));
  if (question.patience)
    *question.patience = std::max(FilePortfolio::Duration::zero(), *question.patience - (std::chrono::steady_clock::now() - begin));
  if (says.known && !question.decided) judged->verdict = policy_.ByVote(says.stores, says.guarded, open.on_disk, Uniform());
}

Scored Decider::Score(const Bundle& bundle, const Prediction& prediction, float fill) const {
  Scored scored{0.0, policy_.UnderPressure(bundle.admit, fill), bundle.evict, prediction.reason()};
  for (size_t i = 0; i < bundle.horizon_buckets; ++i) scored.score += prediction.outputs[i];
  scored.score = std::clamp(scored.score, 0.0, 1.0);  // float32 outputs add up to a little more than 1 too
  return scored;
}

void Decider::Shadow(const std::shared_ptr<const Bundle>& challenger, const Open& open, const float* features, Judgement* judged) {
  Prediction prediction;
  challenger_copy_.Predict(*challenger, features, {}, &prediction);
  if (!prediction.answered) return;
  const Scored scored = Score(*challenger, prediction, open.fill);
  judged->shadow = challenger;
  judged->shadow_verdict = policy_.ByScore(scored, open.on_disk, kNotExplored);
  judged->shadow_score = scored.score;
}

void Decider::Record(const Open& open, const Judgement& judged, DecisionRecord* record) {
  record->cache = cache_;
  record->boot_us = boot_us_;
  record->t_us = open.t_us;
  record->lfn = open.lfn;
  record->answer = judged.verdict.answer;
  record->reason = judged.verdict.reason;
  record->probability = judged.verdict.probability;
  record->has_score = judged.bundle != nullptr;
  if (judged.bundle) {
    record->score = judged.scored.score;
    record->threshold = judged.scored.admit;
    record->model = judged.bundle->name;
  }
  if (judged.shadow) {
    record->challenger_model = judged.shadow->name;
    record->challenger_answer = judged.shadow_verdict.answer;
    record->challenger_score = judged.shadow_score;
  }
  record->on_disk = open.on_disk;
  record->size = open.size;
  record->fill = open.fill;
  record->read_share = open.read_share;
  if (began_as_) {
    record->has_history = true;
    record->history_boot_us = began_as_->boot_us;
    record->history_seq = began_as_->seq;
  }
  if (trace_.On(Concern::kDecisions)) TraceDecision(*record);
  decision_log_.Send(*record);  // the last that may fail: who finds no memory before has sent nothing
}

void Decider::TraceDecision(const DecisionRecord& record) const {
  std::ostringstream text;
  std::string lfn;
  AppendQuoted(record.lfn, &lfn);  // a line break in an LFN must not begin a line of the log
  text.imbue(std::locale::classic());
  text << lfn << ' ' << Text(record.answer) << ' ' << Text(record.reason);
  if (record.has_score) text << " score " << record.score << " threshold " << record.threshold << " model " << record.model;
  text << " probability " << record.probability << (record.on_disk ? " on_disk" : "") << " size " << record.size << " fill " << record.fill
       << ' ' << record.latency_us << " us";
  trace_(Concern::kDecisions, text.str());
}

void Decider::TraceAsked(Role role, Reason result) {
  const Reason before = last_asked_[static_cast<size_t>(role)].exchange(result, std::memory_order_relaxed);
  const auto name = [](Reason reason) { return reason == Reason::kModel ? "answered" : Text(reason); };
  if (result != before) trace_(Concern::kModel, std::string(Text(role)) + " asked: " + name(result) + ", before: " + name(before));
}

// splitmix64 on a shared counter: no lock, and no state a thread would have to own.
double Decider::Uniform() {
  const uint64_t bits = Mix(random_.fetch_add(0x9e3779b97f4a7c15ull, std::memory_order_relaxed) + 0x9e3779b97f4a7c15ull);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

std::string Decider::model_name() const {
  const auto current = bundle();
  return current ? current->name : "";
}

bool Decider::Seed(std::string_view lfn, PastOpens past) {
  thread_local std::string scratch;
  ParsedLfn parsed;
  core_.Parse(ValidUtf8(lfn, &scratch), &parsed);
  const FeatureCore::Seed seed = core_.MakeSeed(std::move(past));
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool planted = core_.Plant(seed, parsed);
  scanned_ = scanned_ || planted;
  return planted;
}

bool Decider::scan_due() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return scan_due_;
}

void Decider::Scanned() {
  const std::lock_guard<std::mutex> lock(mutex_);
  scan_due_ = false;
}

bool Decider::Recall(std::string_view lfn, History::Forecast* out, double* base_rate) {
  thread_local std::string scratch;
  ParsedLfn parsed;
  core_.Parse(ValidUtf8(lfn, &scratch), &parsed);
  const std::lock_guard<std::mutex> lock(mutex_);
  *base_rate = core_.BaseRate(parsed);
  return core_.history().Recall(parsed.file, out);
}

void Decider::Room(int64_t bytes) {
  if (!portfolio_) return;
  portfolio_->Room(bytes);
  if (!portfolio_->state().ready) portfolio_keeper_->Wake();
}

std::optional<double> Decider::Worth(std::string_view lfn) {
  if (!portfolio_) return std::nullopt;
  thread_local std::string scratch;
  ParsedLfn parsed;
  core_.Parse(ValidUtf8(lfn, &scratch), &parsed);
  return portfolio_->Worth(parsed.file);
}

bool Decider::votes() { return portfolio_ && portfolio_->state().ready; }

void Decider::KeepHistory() {
  memory_ = std::make_unique<Periodic>(kBackEveryS, [this] { core_.history().Back(); });
  if (config_.history.file.empty()) return;
  keeper_ = std::make_unique<HistoryKeeper>(
      config_, &core_.history(), &mutex_, [this] { return HistoryNow(); }, &counters_, [this](const std::string& text) { Say(text); });
  began_as_ = keeper_->restored();
  if (began_as_) {
    last_t_us_ = began_as_->t_us;
    scanned_ = began_as_->scanned;
    scan_due_ = began_as_->scan_due;
  }
  keeper_->Start();
}

// A boot without an open leaves the history as it was restored, but for what is learnt from the disk.
HistoryState Decider::HistoryNow() const {
  HistoryState now = seq_ == 0 && began_as_ ? *began_as_ : HistoryState{boot_us_, seq_, last_t_us_};
  now.scanned = scanned_;
  now.scan_due = scan_due_;
  return now;
}

std::string Decider::CountersText() {
  Counters::Gauges gauges;
  gauges.model = model_name();
  if (const auto tried = challenger()) gauges.challenger = tried->name;
  gauges.budget = budget_.state();
  gauges.waiting = later_->waiting();
  if (const auto table = side_table()) {
    gauges.side_table_until_us = table->until_us();
    gauges.side_table_datasets = table->datasets();
  }
  if (portfolio_) gauges.portfolio = portfolio_->state();
  if (model_) gauges.breaker_open[static_cast<size_t>(Role::kChampion)] = model_->breaker_open();
  if (challenger_model_) gauges.breaker_open[static_cast<size_t>(Role::kChallenger)] = challenger_model_->breaker_open();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    gauges.files = core_.history().files();
    gauges.datasets = core_.history().datasets();
    gauges.history_bytes = core_.history().memory_bytes();
    gauges.forgotten_files = core_.history().forgotten_files();
    gauges.forgotten_datasets = core_.history().forgotten_datasets();
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

#include "smartcache/cache_replay.hh"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "smartcache/worth.hh"

namespace smartcache {
namespace {

// Of all predictions: there is one model, and none was restored.
constexpr uint32_t kModelId = 1;
// As a random number: never below the share of exploration.
constexpr double kNotExplored = 1.0;
constexpr int64_t kTidyEvery = 256;                  // opens
constexpr double kShortest = 1e-3, kLongest = 1e6;   // seconds
constexpr int64_t kLargestBlock = INT64_C(1) << 30;  // more than pfc takes
constexpr uint64_t kNobody = 0;                      // no file

std::optional<ReplayModel> Checked(std::optional<ReplayModel> model, size_t features) {
  if (!model) return model;
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("the model of a replay: " + what); };
  const size_t buckets = model->bucket_edges_s.size() + 1;
  if (model->network->inputs() != features || model->network->outputs() != buckets)
    refuse("must take " + std::to_string(features) + " features and give " + std::to_string(buckets) + " outputs, takes " +
           std::to_string(model->network->inputs()) + " and gives " + std::to_string(model->network->outputs()) +
           "; replay it under the configuration that it was trained under");
  if (model->horizon_buckets < 1 || model->horizon_buckets >= buckets)
    refuse("horizon_buckets must be 1 to " + std::to_string(buckets - 1) + ", is " + std::to_string(model->horizon_buckets));
  return model;
}

}  // namespace

CacheReplay::CacheReplay(const Config& config, int64_t capacity, std::optional<ReplayModel> model, const ReplayRules& rules)
    : config_(config),
      capacity_(capacity),
      model_(Checked(std::move(model), MakeSchema(config).names.size())),
      rules_(rules),
      policy_(config.policy),
      core_(config),
      features_(core_.schema().names.size()),
      outputs_(model_ ? model_->network->outputs() : 0),
      shares_(outputs_.size()) {
  if (capacity < 1) throw std::invalid_argument("the capacity of a replay must be above 0 bytes, is " + std::to_string(capacity));
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("the rules of a replay: " + what); };
  if (rules.block_bytes < 0 || rules.block_bytes > kLargestBlock)
    refuse("block_bytes must be 0 to " + std::to_string(kLargestBlock) + ", is " + std::to_string(rules.block_bytes));
  if (rules.admit_at < 1) refuse("admit_at must be 1 or more, is " + std::to_string(rules.admit_at));
  if (!(0 < rules.purge_low && rules.purge_low < rules.purge_high && rules.purge_high <= 1))
    refuse("0 < purge_low < purge_high <= 1 must hold, they are " + std::to_string(rules.purge_low) + " and " +
           std::to_string(rules.purge_high));
  const auto is_interval = [](double s) { return s >= kShortest && s <= kLongest; };
  if (!(is_interval(rules.purge_interval_s) && is_interval(rules.evictor_look_s) && rules.evict_delay_s >= 0 &&
        rules.evict_delay_s <= kLongest))
    refuse("purge_interval_s and evictor_look_s must be 0.001 to 1e6, evict_delay_s 0 to 1e6");
  if (!rules.portfolio) return;
  portfolio_ = std::make_unique<FilePortfolio>(config.portfolio, config.budget.unknown_size_bytes, config.evictor.benefit_per_open,
                                               model_.has_value());
  portfolio_->Room(static_cast<int64_t>(config.evictor.low * static_cast<double>(capacity)));
}

float CacheReplay::fill() const { return static_cast<float>(std::min(1.0, static_cast<double>(used_) / static_cast<double>(capacity_))); }

void CacheReplay::Open(const PastOpen& told) {
  ParsedLfn parsed;
  core_.Parse(told.lfn, &parsed);
  const int64_t t_us = last_t_us_ = std::max(told.t_us, last_t_us_ + 1);
  if (rules_.block_bytes > 0) {
    // The clocks of a server that has just started.
    if (counters_.opens == 0) purge_us_ = look_us_ = t_us;
    Meanwhile(t_us);
  }
  ++counters_.opens;
  const auto held = files_.find(parsed.file);
  const bool on_disk = held != files_.end();
  Answer answer = Answer::kBypass;
  if (told.asked) {
    const int64_t size = on_disk ? held->second.size : -1;
    const float read_share = on_disk ? held->second.read_share : -1.0f;
    answer = Ask(Sanitised(smartcache::Open{t_us, told.lfn, on_disk, size, fill(), read_share}), parsed).answer;
    if (!on_disk && !Wanted(answer, parsed.file)) answer = Answer::kBypass;
    counters_.bypassed += answer == Answer::kBypass;
    counters_.evicted += answer == Answer::kEvict;
  }
  rules_.block_bytes > 0 ? Blocks(told, parsed, t_us, answer) : WholeFile(told, parsed, t_us, answer);
}

// Whether a file that is absent is stored: it was answered so, and this is not one of its first opens.
bool CacheReplay::Wanted(Answer answer, uint64_t file) {
  if (rules_.admit_at == 1) return answer != Answer::kBypass;
  int& uses = uses_[file];
  if (uses < rules_.admit_at) ++uses;
  return answer != Answer::kBypass && uses >= rules_.admit_at;
}

void CacheReplay::WholeFile(const PastOpen& told, const ParsedLfn& parsed, int64_t t_us, Answer answer) {
  counters_.bytes += told.size;
  auto held = files_.find(parsed.file);
  if (held != files_.end()) {
    ++counters_.hits;
    used_ += told.size - held->second.stored;
  } else {
    counters_.missed_bytes += told.size;
    counters_.fetched_bytes += told.size;
    if (answer == Answer::kBypass || told.size > capacity_) return;
    used_ += told.size;
    counters_.written_bytes += told.size;
    held = files_.try_emplace(parsed.file).first;
    held->second.read_share = -1;
  }
  held->second.stored = told.size;
  Touch(&held->second, told, parsed, t_us);
  if (answer == Answer::kEvict && may_remove()) counters_.evicted_bytes += Remove(parsed.file);
  if (over(config_.evictor.high)) counters_.purged_bytes += Purge(parsed.file, t_us, config_.evictor.low, may_remove());
}

void CacheReplay::Blocks(const PastOpen& told, const ParsedLfn& parsed, int64_t t_us, Answer answer) {
  const int64_t read = told.b_read < 0 ? told.size : std::min(told.b_read, told.size);
  counters_.bytes += read;
  auto held = files_.find(parsed.file);
  const bool on_disk = held != files_.end();
  // A file that became smaller is another one: what was there of it is no good.
  if (on_disk && held->second.stored > told.size) {
    counters_.purged_bytes += held->second.stored - told.size;
    used_ -= held->second.stored - told.size;
    held->second.stored = told.size;
  }
  const int64_t there = on_disk ? held->second.stored : 0;
  const int64_t missed = std::max<int64_t>(0, read - there);
  counters_.missed_bytes += missed;
  counters_.hits += missed == 0 && (on_disk || read == 0);
  // Up to the end of the block that the last byte is in, or of the file.
  const int64_t whole = std::min(told.size, (read + rules_.block_bytes - 1) / rules_.block_bytes * rules_.block_bytes);
  const int64_t blocks = missed == 0 ? 0 : whole - there;
  const bool stores = on_disk || answer != Answer::kBypass;
  const bool fits = blocks <= capacity_ - used_;
  counters_.refused += stores && !fits;
  if (!stores || !fits) {
    counters_.fetched_bytes += missed;
    if (!on_disk) return;
  } else {
    counters_.fetched_bytes += blocks;
    counters_.written_bytes += blocks;
    used_ += blocks;
    if (!on_disk) {
      held = files_.try_emplace(parsed.file).first;
      held->second.read_share = -1;
      held->second.stored = 0;
    }
    held->second.stored += blocks;
  }
  Touch(&held->second, told, parsed, t_us);
  if (answer == Answer::kEvict && may_remove())
    leaving_.push_back({t_us + static_cast<int64_t>(rules_.evict_delay_s * 1e6), t_us, parsed.file});
}

void CacheReplay::Touch(File* file, const PastOpen& told, const ParsedLfn& parsed, int64_t t_us) {
  file->dataset = parsed.dataset;
  file->size = told.size;
  file->last_us = t_us;
  file->next_us = told.next_us;
  if (told.b_read >= 0)
    file->read_share = static_cast<float>(static_cast<double>(told.b_read) / static_cast<double>(std::max<int64_t>(told.size, 1)));
}

bool CacheReplay::Limit::Take(int64_t now_us, int64_t a_minute) {
  if (removed == 0 || now_us - began_us >= kMinute) {
    began_us = now_us;
    removed = 0;
  }
  if (removed >= a_minute) return false;
  ++removed;
  return true;
}

// Nothing grows between two opens, so what was due of those looks that find the cache below their mark is passed over at once.
void CacheReplay::Meanwhile(int64_t now_us) {
  for (; !leaving_.empty() && leaving_.front().due_us <= now_us; leaving_.pop_front()) {
    const Leaving& each = leaving_.front();
    const auto held = files_.find(each.file);
    // What is over the limit stays, for pfc's purge.
    if (held == files_.end() || held->second.last_us != each.opened_us) continue;
    if (answers_limit_.Take(each.due_us, config_.evictor.answers_per_minute)) counters_.evicted_bytes += Remove(each.file);
  }
  // The evictor's looks and pfc's purges, in the order of their times.
  for (;;) {
    if (needed_ == 0 && !over(config_.evictor.high)) Pass(&look_us_, rules_.evictor_look_s, now_us);
    if (!over(rules_.purge_high)) Pass(&purge_us_, rules_.purge_interval_s, now_us);
    const int64_t evictor_us = !may_remove() ? kNeverOpened : needed_ > 0 ? resume_us_ : look_us_;
    const int64_t next_us = std::min(evictor_us, purge_us_);
    if (next_us > now_us) return;
    if (evictor_us > purge_us_) {
      counters_.purged_bytes += Purge(kNobody, next_us, rules_.purge_low, false);
      Pass(&purge_us_, rules_.purge_interval_s, next_us);
    } else if (needed_ > 0) {
      GoOn(next_us);
    } else {
      BeginRun(next_us);
    }
  }
}

// To the first time after this moment.
void CacheReplay::Pass(int64_t* next_us, double every_s, int64_t now_us) {
  if (now_us < *next_us) return;
  const auto every_us = static_cast<int64_t>(every_s * 1e6);
  *next_us += ((now_us - *next_us) / every_us + 1) * every_us;
}

void CacheReplay::BeginRun(int64_t now_us) {
  needed_ = used_ - static_cast<int64_t>(config_.evictor.low * static_cast<double>(capacity_));
  RankAll(kNobody, now_us, true, &run_);
  GoOn(now_us);
}

void CacheReplay::GoOn(int64_t now_us) {
  while (needed_ > 0 && !run_.empty()) {
    const auto held = files_.find(run_.front().file);
    if (held == files_.end() || held->second.last_us != run_.front().opened_us) {
      Worst(&run_);
      continue;
    }
    if (!evictor_limit_.Take(now_us, config_.evictor.files_per_minute)) {
      resume_us_ = evictor_limit_.began_us + Limit::kMinute;
      return;
    }
    const int64_t bytes = Remove(Worst(&run_).file);
    needed_ -= bytes;
    counters_.purged_bytes += bytes;
  }
  needed_ = 0;
  run_.clear();
  Pass(&look_us_, rules_.evictor_look_s, now_us);
}

Verdict CacheReplay::Ask(const smartcache::Open& open, const ParsedLfn& parsed) {
  core_.Observe(open, parsed, features_.data());
  if (const auto rule = policy_.ByRule(open.lfn, open.on_disk)) {
    // As in the plugin: the portfolio knows of what is always stored, or it would be worth nothing to it.
    if (rule->reason == Reason::kRule && rule->answer == Answer::kAdmit) Vote(open, parsed, *rule, nullptr);
    return *rule;
  }
  if (!model_) {
    const Verdict admit{Answer::kAdmit, Reason::kNoModel, 1.0};
    return Vote(open, parsed, rules_.fallback ? policy_.Fallback(Reason::kNoModel, open.on_disk) : admit, nullptr);
  }
  if (!model_->network->Evaluate(features_.data(), outputs_.data()))
    return Vote(open, parsed, policy_.Fallback(Reason::kInvalidReply, open.on_disk), nullptr);
  std::copy(outputs_.begin(), outputs_.end(), shares_.begin());
  core_.history().Remember(parsed.file, open.t_us, kModelId, shares_.data(), shares_.size());
  Scored scored{0.0, policy_.UnderPressure(model_->admit, open.fill), model_->evict, Reason::kModel};
  for (size_t i = 0; i < model_->horizon_buckets; ++i) scored.score += shares_[i];
  scored.score = std::clamp(scored.score, 0.0, 1.0);
  return Vote(open, parsed, policy_.ByScore(scored, open.on_disk, kNotExplored), &scored);
}

Verdict CacheReplay::Vote(const smartcache::Open& open, const ParsedLfn& parsed, const Verdict& otherwise, const Scored* scored) {
  if (!portfolio_) return otherwise;
  // As the plugin does in the background.
  if (counters_.opens % kTidyEvery == 1) portfolio_->Tidy();
  std::optional<Forecast> forecast;
  if (scored)
    forecast = Forecast{model_->bucket_edges_s.data(),
                        model_->bucket_edges_s.size(),
                        kModelId,
                        model_->bucket_edges_s[model_->horizon_buckets - 1],
                        shares_.data(),
                        scored->score >= scored->admit};
  const double part = rules_.block_bytes > 0 ? core_.ExpectedPart(parsed) : 1.0;
  const FilePortfolio::Says says = portfolio_->Opened({parsed.file, parsed.dataset, open.t_us, open.size, part, core_.BaseRate(parsed)},
                                                      forecast ? &*forecast : nullptr);
  return says.known ? policy_.ByVote(says.stores, says.guarded, open.on_disk, kNotExplored) : otherwise;
}

int64_t CacheReplay::Remove(uint64_t file) {
  const auto held = files_.find(file);
  const int64_t stored = held->second.stored;
  used_ -= stored;
  files_.erase(held);
  ++counters_.removed_files;
  return stored;
}

CacheReplay::Ranked CacheReplay::Rank(uint64_t key, const File& file, int64_t now_us, bool by_worth) {
  if (rules_.foresight) return {-static_cast<double>(file.next_us), file.last_us, key, file.last_us};
  if (!by_worth) return {0.0, file.last_us, key, file.last_us};
  if (portfolio_) return {portfolio_->Worth(key).value_or(0.0), file.last_us, key, file.last_us};
  ParsedLfn parsed;
  parsed.dataset = file.dataset;
  History::Forecast forecast;
  const bool known = core_.history().Recall(key, &forecast);
  const int64_t last_us = known ? forecast.last_us : file.last_us;
  const Buckets buckets{model_->bucket_edges_s.data(), model_->bucket_edges_s.size(), kModelId,
                        model_->bucket_edges_s[model_->horizon_buckets - 1]};
  return {Worth(buckets, known ? &forecast : nullptr, core_.BaseRate(parsed), static_cast<double>(now_us - last_us) * 1e-6, file.stored,
                config_.evictor.benefit_per_open),
          last_us, key, file.last_us};
}

// Of equals the one opened longest ago is the worst.
bool CacheReplay::IsBetter(const Ranked& a, const Ranked& b) {
  return std::tie(a.worth, a.last_us, a.file) > std::tie(b.worth, b.last_us, b.file);
}

void CacheReplay::RankAll(uint64_t open, int64_t now_us, bool by_worth, std::vector<Ranked>* ranked) {
  ranked->clear();
  for (const auto& [key, file] : files_)
    if (key != open) ranked->push_back(Rank(key, file, now_us, by_worth));
  std::make_heap(ranked->begin(), ranked->end(), IsBetter);
}

CacheReplay::Ranked CacheReplay::Worst(std::vector<Ranked>* ranked) {
  std::pop_heap(ranked->begin(), ranked->end(), IsBetter);
  const Ranked worst = ranked->back();
  ranked->pop_back();
  return worst;
}

int64_t CacheReplay::Purge(uint64_t open, int64_t now_us, double low, bool by_worth) {
  RankAll(open, now_us, by_worth, &ranked_);
  int64_t bytes = 0;
  while (!ranked_.empty() && over(low)) bytes += Remove(Worst(&ranked_).file);
  return bytes;
}

}  // namespace smartcache

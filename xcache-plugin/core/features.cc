#include "smartcache/features.hh"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <new>

#include "smartcache/exact_math.hh"
#include "smartcache/hash.hh"

namespace smartcache {
namespace {

constexpr double kPriorReopens = 1.0, kPriorOpens = 4.0;
constexpr float kUnknown = -1.0f;
constexpr int64_t kDayUs = INT64_C(86400000000);

// Shortest text that reads back as the same double, whatever the locale.
std::string Number(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return std::string(buffer, end);
}

float LogSeconds(int64_t us) { return static_cast<float>(Log1p(static_cast<double>(us) * 1e-6)); }
int64_t Elapsed(int64_t from_us, int64_t to_us) { return std::max<int64_t>(0, to_us - from_us); }

// The features from a side table, as MakeSchema names them.
void PutFederation(const Federation& federation, int64_t t_us, float* out) {
  const bool there = federation.until_us >= 0, known = there && federation.known;
  *out++ = there ? (known ? 1.0f : 0.0f) : kUnknown;
  *out++ = there ? LogSeconds(Elapsed(federation.until_us, t_us)) : kUnknown;
  *out++ = known ? federation.opens_shortest : kUnknown;
  *out++ = known ? federation.opens : kUnknown;
  *out++ = known ? federation.files : kUnknown;
  *out++ = known ? federation.caches : kUnknown;
  *out++ = known ? federation.reopen_share : kUnknown;
  *out++ = known ? federation.part_read : kUnknown;
  *out = known ? LogSeconds(Elapsed(federation.last_open_us, t_us)) : kUnknown;
}

History MakeHistory(const Config& config) {
  try {
    return {config.history, config.features.half_lives_s};
  } catch (const std::bad_alloc&) {
    throw ConfigError(config.source + ": [history] memory_bytes must be memory that this process may have, but is " +
                      std::to_string(config.history.memory_bytes) + "; choose less, or raise the limit on its address space (ulimit -v)");
  }
}

}  // namespace

float LogCount(double n) { return static_cast<float>(Log1p(n)); }
float ShrunkShare(double reopens, double opens) { return static_cast<float>((reopens + kPriorReopens) / (opens + kPriorOpens)); }

Schema MakeSchema(const Config& config) {
  Schema schema;
  auto& names = schema.names;
  names = {"file_seen", "file_opens"};
  for (const double h : config.features.half_lives_s) names.push_back("file_opens_decayed_" + Number(h) + "s");
  for (const char* name : {"file_gap", "file_previous_gap", "file_age", "file_size", "file_read_share", "on_disk", "dataset_opens",
                           "dataset_files", "dataset_reopen_share", "dataset_opens_per_file", "dataset_read_share"})
    names.emplace_back(name);
  for (const double h : config.features.half_lives_s) names.push_back("dataset_opens_decayed_" + Number(h) + "s");
  for (const double h : config.features.half_lives_s) names.push_back("dataset_reopen_share_decayed_" + Number(h) + "s");
  for (const char* name : {"dataset_gap", "dataset_age", "dataset_reopen_gap"}) names.emplace_back(name);
  for (int i = 0; i < config.features.token_buckets; ++i) names.push_back("token_" + std::to_string(i));
  for (const char* name : {"day_sin", "day_cos", "week_sin", "week_cos", "fill"}) names.emplace_back(name);
  for (const char* name : {"known", "table_age", "opens_shortest", "opens", "files", "caches", "reopen_share", "part_read", "gap"})
    names.push_back(std::string("federation_") + name);

  std::string& text = schema.text;
  text = "smartcache features " + std::to_string(kSchemaVersion) + "\n";
  text += "prior " + Number(kPriorReopens) + " " + Number(kPriorOpens) + "\n";
  text += "dataset_levels " + std::to_string(config.dataset.levels) + "\n";
  for (const DatasetRule& rule : config.dataset.rules) text += "dataset_rule " + std::to_string(rule.levels) + " " + rule.prefix + "\n";
  for (const double h : config.features.half_lives_s) text += "half_life_s " + Number(h) + "\n";
  text += "token_buckets " + std::to_string(config.features.token_buckets) + "\n";
  for (const std::string& name : names) text += "feature " + name + "\n";

  const uint64_t hash = Fnv(text);
  for (int shift = 60; shift >= 0; shift -= 4) schema.hash += "0123456789abcdef"[(hash >> shift) & 15];
  return schema;
}

Open Sanitised(const Open& open) {
  Open clean = open;
  clean.t_us = std::clamp<int64_t>(open.t_us, 0, kLastMicrosecond);
  clean.size = std::max<int64_t>(open.size, -1);
  clean.fill = open.fill >= 0 ? std::min(open.fill, 1.0f) : kUnknown;  // a NaN is unknown too
  clean.read_share = open.read_share >= 0 ? std::min(open.read_share, kMaxReadShare) : kUnknown;
  return clean;
}

FeatureCore::FeatureCore(const Config& config)
    : schema_(MakeSchema(config)),
      token_buckets_(config.features.token_buckets),
      parser_(config.dataset, config.features.token_buckets),
      history_(MakeHistory(config)) {
  for (const double seconds : config.features.half_lives_s) per_half_life_.push_back(1.0 / (seconds * 1e6));
}

// Brings the counters to t_us; the caller sets last_us.
void FeatureCore::Decay(History::Entry* entry, int64_t t_us, bool reopens) {
  const auto elapsed = static_cast<double>(Elapsed(entry->last_us, t_us));
  double* opens = history_.Opens(entry);
  double* again = history_.Reopens(entry);
  for (size_t i = 0; i < per_half_life_.size(); ++i) {
    const double factor = HalfPower(elapsed * per_half_life_[i]);
    opens[i] *= factor;
    if (reopens) again[i] *= factor;
  }
}

void FeatureCore::Observe(const Open& open, const ParsedLfn& parsed, float* out, const Federation& federation) {
  using Kind = History::Kind;
  const size_t half_lives = per_half_life_.size();
  History::Entry* file = history_.Find(parsed.file, Kind::kFile);
  History::Entry* dataset = history_.Find(parsed.dataset, Kind::kDataset);
  const bool file_seen = file != nullptr, dataset_seen = dataset != nullptr;
  // Before anything is changed or forgotten: what this open uses is then the newest, and is not forgotten.
  if (file) history_.Touch(file);
  if (dataset) history_.Touch(dataset);
  if (!file) {
    file = history_.Insert(parsed.file, Kind::kFile, open.t_us);
    file->first_us = file->last_us = open.t_us;
  }
  if (!dataset) {
    dataset = history_.Insert(parsed.dataset, Kind::kDataset, open.t_us);
    dataset->first_us = dataset->last_us = open.t_us;
  }
  Decay(file, open.t_us, false);
  Decay(dataset, open.t_us, true);
  const int64_t gap_us = Elapsed(file->last_us, open.t_us);
  const float log_gap = LogSeconds(gap_us);

  // Before: the features.
  double* file_opens = history_.Opens(file);
  double* dataset_opens = history_.Opens(dataset);
  double* dataset_reopens = history_.Reopens(dataset);
  *out++ = file_seen ? 1.0f : 0.0f;
  *out++ = LogCount(static_cast<double>(file->opens));
  for (size_t i = 0; i < half_lives; ++i) *out++ = LogCount(file_opens[i]);
  *out++ = file_seen ? log_gap : kUnknown;
  *out++ = file->file.previous_gap_us >= 0 ? LogSeconds(file->file.previous_gap_us) : kUnknown;
  *out++ = file_seen ? LogSeconds(Elapsed(file->first_us, open.t_us)) : kUnknown;
  *out++ = open.size >= 0 ? LogCount(static_cast<double>(open.size)) : kUnknown;
  *out++ = open.read_share >= 0 ? open.read_share : file->file.read_share;
  *out++ = open.on_disk ? 1.0f : 0.0f;

  History::DatasetFields& siblings = dataset->dataset;
  const auto opens = static_cast<double>(dataset->opens), reopens = static_cast<double>(siblings.reopens);
  *out++ = LogCount(opens);
  *out++ = LogCount(static_cast<double>(siblings.files));
  *out++ = ShrunkShare(reopens, opens);
  *out++ = siblings.files > 0 ? LogCount(opens / static_cast<double>(siblings.files)) : kUnknown;
  *out++ = siblings.told > 0 ? static_cast<float>(siblings.read_shares / static_cast<double>(siblings.told)) : kUnknown;
  for (size_t i = 0; i < half_lives; ++i) *out++ = LogCount(dataset_opens[i]);
  for (size_t i = 0; i < half_lives; ++i) *out++ = ShrunkShare(dataset_reopens[i], dataset_opens[i]);
  *out++ = dataset_seen ? LogSeconds(Elapsed(dataset->last_us, open.t_us)) : kUnknown;
  *out++ = dataset_seen ? LogSeconds(Elapsed(dataset->first_us, open.t_us)) : kUnknown;
  *out++ = siblings.reopens > 0 ? static_cast<float>(siblings.reopen_log_gaps / reopens) : kUnknown;

  out = std::copy_n(parsed.tokens, token_buckets_, out);
  const SinCos day = SinCosTurn(static_cast<double>(open.t_us % kDayUs) / static_cast<double>(kDayUs));
  // 1 January 1970 was a Thursday; the week begins on Monday.
  const SinCos week = SinCosTurn(static_cast<double>((open.t_us + 3 * kDayUs) % (7 * kDayUs)) / static_cast<double>(7 * kDayUs));
  *out++ = static_cast<float>(day.sin);
  *out++ = static_cast<float>(day.cos);
  *out++ = static_cast<float>(week.sin);
  *out++ = static_cast<float>(week.cos);
  *out++ = open.fill;
  PutFederation(federation, open.t_us, out);

  // After: the record.
  if (file_seen) {
    file->file.previous_gap_us = gap_us;
    ++siblings.reopens;
    siblings.reopen_log_gaps += Log1p(static_cast<double>(gap_us) * 1e-6);
    for (size_t i = 0; i < half_lives; ++i) dataset_reopens[i] += 1.0;
  } else {
    History::Count(&siblings.files);
  }
  file->file.buckets = 0;  // what was predicted was of the open before
  if (open.read_share >= 0) {
    file->file.read_share = open.read_share;
    if (siblings.told < UINT32_MAX) {
      siblings.read_shares += static_cast<double>(open.read_share);
      ++siblings.told;
    }
  }
  History::Count(&file->opens);
  History::Count(&dataset->opens);
  for (size_t i = 0; i < half_lives; ++i) {
    file_opens[i] += 1.0;
    dataset_opens[i] += 1.0;
  }
  file->last_us = dataset->last_us = open.t_us;
}

FeatureCore::Seed FeatureCore::MakeSeed(PastOpens past) const {
  Seed seed{std::move(past), std::vector<double>(per_half_life_.size()), std::vector<double>(per_half_life_.size())};
  const auto& opens = seed.past.opens;
  for (size_t k = 0; k < opens.size(); ++k) {
    const auto elapsed = static_cast<double>(Elapsed(opens[k].t_us, opens.back().t_us));
    for (size_t i = 0; i < per_half_life_.size(); ++i) {
      const double factor = HalfPower(elapsed * per_half_life_[i]);
      seed.opens[i] += factor * opens[k].times;
      seed.reopens[i] += factor * (k == 0 ? std::max(0.0, opens[k].times - 1.0) : opens[k].times);
    }
  }
  return seed;
}

bool FeatureCore::Plant(const Seed& seed, const ParsedLfn& parsed) {
  using Kind = History::Kind;
  const PastOpens& past = seed.past;
  if (past.opens.empty() || past.count == 0 || history_.Find(parsed.file, Kind::kFile)) return false;
  History::Entry* dataset = history_.Find(parsed.dataset, Kind::kDataset);
  if (history_.files() + history_.datasets() + (dataset ? 1 : 2) > history_.capacity()) return false;
  const auto count = static_cast<uint32_t>(std::min<uint64_t>(past.count, UINT32_MAX));
  const int64_t first_us = past.opens.front().t_us, last_us = past.opens.back().t_us;

  History::Entry* file = history_.Insert(parsed.file, Kind::kFile, last_us);
  file->first_us = first_us;
  file->last_us = last_us;
  file->opens = count;
  file->file.previous_gap_us = past.previous_gap_us;
  file->file.read_share = past.read_share;
  std::copy(seed.opens.begin(), seed.opens.end(), history_.Opens(file));

  if (dataset) {
    history_.Touch(dataset);
  } else {
    dataset = history_.Insert(parsed.dataset, Kind::kDataset, last_us);
    dataset->first_us = first_us;
    dataset->last_us = last_us;
  }
  dataset->first_us = std::min(dataset->first_us, first_us);
  // Both sides as of the later of the two times.
  Decay(dataset, last_us, true);
  dataset->last_us = std::max(dataset->last_us, last_us);
  const auto elapsed = static_cast<double>(Elapsed(last_us, dataset->last_us));
  double* opens = history_.Opens(dataset);
  double* reopens = history_.Reopens(dataset);
  for (size_t i = 0; i < per_half_life_.size(); ++i) {
    const double factor = HalfPower(elapsed * per_half_life_[i]);
    opens[i] += factor * seed.opens[i];
    reopens[i] += factor * seed.reopens[i];
  }
  History::DatasetFields& siblings = dataset->dataset;
  dataset->opens += std::min(count, UINT32_MAX - dataset->opens);
  History::Count(&siblings.files);
  siblings.reopens += past.count - 1;
  siblings.reopen_log_gaps += past.log_gaps;
  if (past.read_share >= 0 && siblings.told < UINT32_MAX) {
    siblings.read_shares += static_cast<double>(past.read_share);
    ++siblings.told;
  }
  return true;
}

double FeatureCore::ExpectedPart(const ParsedLfn& parsed) {
  const History::Entry* file = history_.Find(parsed.file, History::Kind::kFile);
  if (file && file->file.read_share >= 0) return std::min(1.0, static_cast<double>(file->file.read_share));
  const History::Entry* dataset = history_.Find(parsed.dataset, History::Kind::kDataset);
  if (!dataset || dataset->dataset.told == 0) return 1.0;
  return std::min(1.0, dataset->dataset.read_shares / static_cast<double>(dataset->dataset.told));
}

double FeatureCore::BaseRate(const ParsedLfn& parsed) {
  const History::Entry* dataset = history_.Find(parsed.dataset, History::Kind::kDataset);
  return dataset ? static_cast<double>(ShrunkShare(static_cast<double>(dataset->dataset.reopens), static_cast<double>(dataset->opens)))
                 : static_cast<double>(ShrunkShare(0, 0));
}

}  // namespace smartcache

#include "smartcache/watermark.hh"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <utility>

#include "smartcache/decider.hh"
#include "smartcache/low_priority.hh"
#include "smartcache/utf8.hh"
#include "smartcache/worth.hh"

namespace smartcache {
namespace {

constexpr double kShareOfTimeToSum = 0.05;
constexpr double kSpare = 1.25;  // of the bytes needed: some files will be open
constexpr size_t kTraced = 10;

std::chrono::steady_clock::duration Seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(s));
}

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", share * 100);
  return text;
}

std::string Quoted(const std::string& lfn) {
  std::string text;
  AppendQuoted(lfn, &text);
  return text;
}

std::string FilesAndBytes(uint64_t files, uint64_t bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "%llu files, %.3f GB", static_cast<unsigned long long>(files), static_cast<double>(bytes) * 1e-9);
  return text;
}

}  // namespace

Watermark::Watermark(const EvictorConfig& config, bool count_objects, Disk* disk, Decider* decider, Unlink unlink, Clock clock, Log log,
                     Trace trace, WatermarkOptions options)
    : config_(config),
      count_objects_(count_objects),
      disk_(disk),
      decider_(decider),
      unlink_(std::move(unlink)),
      clock_(std::move(clock)),
      log_(std::move(log)),
      trace_(std::move(trace)),
      options_(options),
      thread_(std::make_unique<Periodic>(std::min(options.look_every_s, config.scan_s), [this] { Look(); })) {}

Watermark::~Watermark() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  thread_.reset();
}

void Watermark::Look() noexcept {
  try {
    if (!std::exchange(lowered_, true)) LowerPriority();
    DiskUsage usage;
    if (!Measure(&usage)) {
      fill_ = -1.0f;
      return;
    }
    Publish(usage);
    if (fill() < 0 || static_cast<double>(fill()) < config_.high) {
      pause_s_ = 0;
      return;
    }
    if (!config_.enabled || (!unlink_ && !config_.dry_run) || decider_->off() || Steady::now() < next_run_) return;
    Run(usage);
  } catch (...) {
    // No memory: the next look tries again.
  }
}

bool Watermark::Measure(DiskUsage* usage) {
  const bool sums = config_.capacity_bytes > 0;
  if ((sums || count_objects_) && Steady::now() >= next_sum_) summed_ = Sum(&sum_);
  if (!sums) return disk_->FileSystem(usage) && usage->total > 0;
  *usage = sum_;
  return summed_;
}

bool Watermark::Sum(DiskUsage* usage) {
  const auto began = Steady::now();
  int64_t files = 0, bytes = 0;
  const bool whole = disk_->Walk([&](const DiskFile& file) {
    ++files;
    bytes += file.bytes;
    return !stopped();
  });
  const auto ended = Steady::now();
  next_sum_ = ended + std::max(Seconds(config_.scan_s), std::chrono::duration_cast<Steady::duration>((ended - began) / kShareOfTimeToSum));
  if (!whole) return false;
  decider_->budget()->Found(files);
  *usage = {bytes, config_.capacity_bytes};
  return true;
}

void Watermark::Publish(const DiskUsage& usage) {
  const double share = static_cast<double>(usage.used) / static_cast<double>(usage.total);
  fill_ = static_cast<float>(std::clamp(share, 0.0, 1.0));
  decider_->counters()->CacheUsed(usage.used, usage.total);
  decider_->Room(static_cast<int64_t>(config_.low * static_cast<double>(usage.total)));
}

// The worth of a file: by the vote, where there is no bundle. `last_us` becomes that of its last open, where the history knows it.
double Watermark::Value(const DiskFile& file, const Bundle* bundle, int64_t now_us, int64_t* last_us) {
  History::Forecast forecast;
  double base_rate = 0;
  *last_us = file.last_us;
  const bool known = decider_->Recall(file.lfn, &forecast, &base_rate);
  if (known) *last_us = forecast.last_us;
  if (!bundle) return decider_->Worth(file.lfn).value_or(0.0);
  const double age_s = static_cast<double>(now_us - *last_us) * 1e-6;
  const Buckets buckets{bundle->bucket_edges_s.data(), bundle->bucket_edges_s.size(), bundle->edges_id,
                        bundle->bucket_edges_s[bundle->horizon_buckets - 1]};
  return Worth(buckets, known ? &forecast : nullptr, base_rate, age_s, file.bytes, config_.benefit_per_open);
}

void Watermark::Run(const DiskUsage& usage) {
  Counters* counters = decider_->counters();
  const bool votes = decider_->votes();
  const auto bundle = votes ? nullptr : decider_->bundle();
  if (!bundle && !votes) {
    counters->EvictorRan(RunResult::kNoModel);
    return;
  }
  const auto began = Steady::now();
  const int64_t now_us = clock_();
  const int64_t needed = usage.used - static_cast<int64_t>(config_.low * static_cast<double>(usage.total));
  Worst worst(static_cast<int64_t>(static_cast<double>(needed) * kSpare), options_.most_files);
  uint64_t files = 0, bytes = 0;
  const bool whole = disk_->Walk([&](const DiskFile& file) {
    ++files;
    bytes += static_cast<uint64_t>(file.bytes);
    int64_t last_us;
    const double value = Value(file, bundle.get(), now_us, &last_us);
    worst.Show(file.lfn, file.bytes, value, last_us);
    return !stopped();
  });
  if (!whole) {
    counters->EvictorRan(RunResult::kFailed);
    Pause(false);
    return;
  }
  decider_->budget()->Found(static_cast<int64_t>(files));
  const std::string used = Percent(static_cast<double>(usage.used) / static_cast<double>(usage.total)) + " used";
  if (bytes < static_cast<uint64_t>(needed)) {
    counters->EvictorRan(RunResult::kOthers);
    if (!std::exchange(said_others_, true))
      log_("evictor: " + used + ", but the cache has only " + FilesAndBytes(files, bytes) +
           " of it: something else fills the disk; nothing is removed. Give the cache's own size as [evictor] capacity_bytes");
    Pause(false);
    return;
  }
  const std::vector<Candidate> candidates = worst.Take();
  const double ranking_s = std::chrono::duration<double>(Steady::now() - began).count();
  for (size_t i = 0; i < candidates.size() && i < kTraced && trace_.On(Concern::kEvictor); ++i)
    trace_(Concern::kEvictor, "worst " + std::to_string(i + 1) + ": " + Quoted(candidates[i].lfn) + ", " +
                                  std::to_string(candidates[i].bytes) + " bytes, " + (votes ? "vote " : "worth ") +
                                  std::to_string(candidates[i].value * (votes ? 1.0 : static_cast<double>(candidates[i].bytes))));
  if (config_.dry_run) {
    uint64_t would = 0, free = 0;
    while (would < candidates.size() && free < static_cast<uint64_t>(needed)) free += static_cast<uint64_t>(candidates[would++].bytes);
    counters->EvictorRan(RunResult::kDryRun);
    log_("evictor: " + used + "; would remove " + FilesAndBytes(would, free) + " of " + FilesAndBytes(files, bytes) + ", ranked in " +
         std::to_string(ranking_s) + " s (dry_run: nothing is removed)");
    Pause(false);
    return;
  }
  const Removal removal = Remove(candidates, needed);
  if (removal.interrupted) return;
  DiskUsage after;
  const bool measured = Measure(&after);
  if (measured) Publish(after);
  // By the count of what was removed, or as it is: others may have removed too, and a file system may free its blocks later.
  const bool reached = removal.low || (measured && static_cast<double>(after.used) <= config_.low * static_cast<double>(after.total));
  counters->EvictorRan(reached ? RunResult::kReached : RunResult::kShort);
  log_("evictor: " + used + "; removed " + FilesAndBytes(removal.files, removal.bytes) + " of " + FilesAndBytes(files, bytes) + " in " +
       std::to_string(std::chrono::duration<double>(Steady::now() - began).count()) + " s (ranking " + std::to_string(ranking_s) + " s), " +
       std::to_string(removal.busy) + " were open" + (reached ? "" : "; the low mark was not reached"));
  Pause(reached);
}

Watermark::Removal Watermark::Remove(const std::vector<Candidate>& worst, int64_t needed) {
  Counters* counters = decider_->counters();
  Removal removal;
  next_look_ = Steady::now() + Seconds(options_.look_every_s);
  for (const Candidate& each : worst) {
    if (removal.low || (removal.low = LookedLow())) break;
    while (!removal.low && !stopped() && !decider_->off() && !MayRemoveOne()) removal.low = LookedLow();
    if (removal.low) break;
    if (stopped() || decider_->off()) {
      removal.interrupted = true;
      break;
    }
    History::Forecast now;
    double base_rate;
    if (decider_->Recall(each.lfn, &now, &base_rate) && now.last_us > each.last_us) {
      counters->EvictorFile(FileResult::kOpenedAgain);
      continue;
    }
    const int result = unlink_(each.lfn);
    if (result == 0) {
      ++removed_;
      ++removal.files;
      removal.bytes += static_cast<uint64_t>(each.bytes);
      removal.low = static_cast<int64_t>(removal.bytes) >= needed;
      sum_.used -= std::min(sum_.used, each.bytes);
      counters->EvictorFile(FileResult::kRemoved, static_cast<uint64_t>(each.bytes));
    } else if (result == -EBUSY) {
      ++removal.busy;
      counters->EvictorFile(FileResult::kBusy);
    } else {
      counters->EvictorFile(result == -ENOENT ? FileResult::kAbsent : FileResult::kFailed);
    }
  }
  return removal;
}

// Looks at the disk, if it is time to: a run may take as long as its limit makes it, opens go by the fill, and others remove files too.
bool Watermark::LookedLow() {
  if (Steady::now() < next_look_) return false;
  next_look_ = Steady::now() + Seconds(options_.look_every_s);
  DiskUsage usage;
  if (!Measure(&usage)) return false;
  Publish(usage);
  return static_cast<double>(usage.used) <= config_.low * static_cast<double>(usage.total);
}

// Whether the limit allows one more; else waits until it does, or until it is time to look at the disk.
bool Watermark::MayRemoveOne() {
  const auto now = Steady::now();
  if (now - period_began_ >= Seconds(options_.limit_period_s)) {
    period_began_ = now;
    removed_ = 0;
  }
  if (removed_ < config_.files_per_minute) return true;
  std::unique_lock<std::mutex> lock(mutex_);
  stopping_.wait_until(lock, std::min(next_look_, period_began_ + Seconds(options_.limit_period_s)), [this] { return stopped(); });
  return false;
}

void Watermark::Pause(bool reached) {
  const double shortest = std::min(options_.look_every_s, config_.scan_s);
  pause_s_ = reached ? 0.0 : std::clamp(pause_s_ * 2, shortest, options_.longest_pause_s);
  next_run_ = Steady::now() + Seconds(pause_s_);
}

}  // namespace smartcache

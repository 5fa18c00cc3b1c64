#include "smartcache/evictor.hh"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace smartcache {
namespace {

std::chrono::steady_clock::duration Seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(s));
}

}  // namespace

Evictor::Evictor(Unlink unlink, Counters* counters, EvictorOptions options)
    : unlink_(std::move(unlink)), counters_(counters), options_(options), thread_(options.look_every_s, [this] { Run(); }) {}

void Evictor::Add(const std::string& lfn) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (waiting_.size() >= options_.max_pending && waiting_.count(lfn) == 0) {
    counters_->Evicted(EvictionResult::kDropped);
    return;
  }
  waiting_[lfn] = {Clock::now() + Seconds(options_.first_delay_s), options_.first_delay_s, 0, ++tickets_};
  pending_count_.store(waiting_.size(), std::memory_order_relaxed);
}

void Evictor::Cancel(const std::string& lfn) {
  if (pending() == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (waiting_.erase(lfn) != 0) counters_->Evicted(EvictionResult::kCancelled);
  pending_count_.store(waiting_.size(), std::memory_order_relaxed);
}

void Evictor::Run() noexcept {
  try {
    std::vector<std::pair<std::string, uint64_t>> due;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto now = Clock::now();
      for (const auto& [lfn, waiting] : waiting_) {
        if (waiting.due <= now) due.emplace_back(lfn, waiting.ticket);
      }
    }
    for (const auto& [lfn, ticket] : due) Try(lfn, ticket);
  } catch (...) {
    // No memory: what is due stays due.
  }
}

bool Evictor::WithinLimit() {
  const auto now = Clock::now();
  if (now - period_began_ >= Seconds(options_.limit_period_s)) {
    period_began_ = now;
    removed_ = 0;
  }
  return removed_ < options_.limit;
}

void Evictor::Try(const std::string& lfn, uint64_t ticket) {
  const bool allowed = WithinLimit();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = waiting_.find(lfn);
    if (it == waiting_.end() || it->second.ticket != ticket) return;  // cancelled, or wanted anew, since it was listed
    if (!allowed) {
      counters_->Evicted(EvictionResult::kLimited);
      waiting_.erase(it);
      pending_count_.store(waiting_.size(), std::memory_order_relaxed);
      return;
    }
  }
  const int result = unlink_(lfn);
  if (result == 0) ++removed_;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = waiting_.find(lfn);
  const bool ours = it != waiting_.end() && it->second.ticket == ticket;
  if (result == -EBUSY) {
    if (!ours) return;
    Waiting& waiting = it->second;
    if (++waiting.attempts < options_.max_attempts) {
      counters_->Evicted(EvictionResult::kBusy);
      waiting.delay_s = std::min(waiting.delay_s * 2, options_.max_delay_s);
      waiting.due = Clock::now() + Seconds(waiting.delay_s);
      return;
    }
  }
  counters_->Evicted(result == 0 ? EvictionResult::kDone : result == -ENOENT ? EvictionResult::kAbsent : EvictionResult::kGaveUp);
  if (ours) waiting_.erase(it);
  pending_count_.store(waiting_.size(), std::memory_order_relaxed);
}

}  // namespace smartcache

#include "smartcache/evictor.hh"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace smartcache {
namespace {

constexpr size_t kListedAtOnce = 64;

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
  const auto it = waiting_.try_emplace(lfn).first;
  Waiting& waiting = it->second;
  if (waiting.ticket != 0) due_.erase({waiting.due, waiting.ticket});
  waiting = {Clock::now() + Seconds(options_.first_delay_s), options_.first_delay_s, 0, ++tickets_};
  Enlist(it);
  pending_count_.store(waiting_.size(), std::memory_order_relaxed);
}

void Evictor::Cancel(const std::string& lfn) {
  if (pending() == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = waiting_.find(lfn);
  if (it == waiting_.end()) return;
  counters_->Evicted(EvictionResult::kCancelled);
  Erase(it);
}

void Evictor::Enlist(Queue::iterator it) {
  try {
    due_.emplace(std::pair(it->second.due, it->second.ticket), &it->first);
  } catch (...) {
    counters_->Evicted(EvictionResult::kDropped);
    Erase(it);
    throw;
  }
}

void Evictor::Erase(Queue::iterator it) {
  due_.erase({it->second.due, it->second.ticket});
  waiting_.erase(it);
  pending_count_.store(waiting_.size(), std::memory_order_relaxed);
}

void Evictor::Run() noexcept {
  try {
    // Those that are due now, some at a time: an open that cancels waits for no more than these to be listed.
    const auto now = Clock::now();
    std::pair<Clock::time_point, uint64_t> after{};
    std::vector<std::pair<std::string, uint64_t>> due;
    do {
      due.clear();
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto it = due_.upper_bound(after); it != due_.end() && it->first.first <= now && due.size() < kListedAtOnce; ++it) {
          due.emplace_back(*it->second, it->first.second);
          after = it->first;
        }
      }
      for (const auto& [lfn, ticket] : due) Try(lfn, ticket);
    } while (!due.empty());
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
      Erase(it);
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
      due_.erase({waiting.due, waiting.ticket});
      waiting.delay_s = std::min(waiting.delay_s * 2, options_.max_delay_s);
      waiting.due = Clock::now() + Seconds(waiting.delay_s);
      Enlist(it);
      return;
    }
  }
  counters_->Evicted(result == 0 ? EvictionResult::kDone : result == -ENOENT ? EvictionResult::kAbsent : EvictionResult::kGaveUp);
  if (ours) Erase(it);
}

}  // namespace smartcache

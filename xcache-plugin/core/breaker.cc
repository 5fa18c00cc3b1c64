#include "smartcache/breaker.hh"

namespace smartcache {

void Breaker::Failed(Time now) {
  if (in_a_row_.fetch_add(1, std::memory_order_relaxed) + 1 < limit_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (open_.load(std::memory_order_relaxed)) return;  // requests that were under way when it opened change nothing
  probe_at_ = now + open_for_;
  probing_ = false;
  open_.store(true, std::memory_order_relaxed);
}

bool Breaker::TakeProbe(Time now) {
  if (Allow()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (probing_ || now < probe_at_) return false;
  probing_ = true;
  return true;
}

void Breaker::Probed(bool success, Time now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  probing_ = false;
  if (success) {
    in_a_row_.store(0, std::memory_order_relaxed);
    open_.store(false, std::memory_order_relaxed);
  } else {
    probe_at_ = now + open_for_;
  }
}

}  // namespace smartcache

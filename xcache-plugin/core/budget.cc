#include "smartcache/budget.hh"

#include <algorithm>
#include <chrono>
#include <utility>

namespace smartcache {
namespace {

double SteadySeconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

Budget::Budget(const BudgetConfig& config, Clock clock)
    : config_(config),
      clock_(clock ? std::move(clock) : SteadySeconds),
      rate_(static_cast<double>(config.write_bytes_per_s)),
      capacity_(rate_ * config.burst_s),
      level_(capacity_),
      filled_at_(clock_()),
      sizes_(config.unknown_size_bytes) {}

void Budget::Refill() {
  const double now = clock_();
  level_ = std::min(capacity_, level_ + rate_ * std::max(0.0, now - filled_at_));
  filled_at_ = now;
}

bool Budget::Allows() {
  if (idle()) return true;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (config_.objects > 0 && objects_ >= config_.objects) return false;
  if (config_.write_bytes_per_s == 0) return true;
  Refill();
  return level_ > 0;
}

void Budget::Charge(uint64_t dataset, int64_t size) {
  if (idle()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t cost = size >= 0 ? size : sizes_.Expected(dataset);
  charged_bytes_ += static_cast<uint64_t>(cost);
  if (config_.write_bytes_per_s > 0) {
    Refill();
    level_ -= static_cast<double>(cost);
  }
  if (objects_ >= 0) ++objects_;
}

void Budget::Learn(uint64_t dataset, int64_t size) {
  if (idle() || size < 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  sizes_.Learn(dataset, size);
}

void Budget::Found(int64_t objects) {
  const std::lock_guard<std::mutex> lock(mutex_);
  objects_ = objects;
}

void Budget::Removed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (objects_ > 0) --objects_;
}

Budget::State Budget::state() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (config_.write_bytes_per_s > 0) Refill();
  return {level_, objects_, charged_bytes_};
}

}  // namespace smartcache

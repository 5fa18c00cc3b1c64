#include "smartcache/later.hh"

#include <utility>

#include "smartcache/without_signals.hh"

namespace smartcache {

Later::Later(Task task, size_t threads, size_t capacity, std::function<size_t()> at_once)
    : task_(std::move(task)), at_once_(std::move(at_once)), capacity_(capacity) {
  const WithoutSignals blocked;
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back(&Later::Run, this);
}

Later::~Later() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  called_.notify_all();
  for (std::thread& each : threads_) each.join();
}

bool Later::Add(const Open& open) {
  bool call;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (queue_.size() >= capacity_) return false;
    queue_.push_back({std::string(open.lfn), open});
    const size_t at_once = AtOnce();
    call = asleep_ > 0 && !looking_ && (busy_ == 0 || (at_once == 1 ? long_ : queue_.size() >= at_once));
  }
  if (call) called_.notify_one();
  return true;
}

size_t Later::waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queue_.size() + busy_;
}

bool Later::Next(std::unique_lock<std::mutex>* lock, std::vector<KeptOpen>* out) {
  const auto sleep_at = std::chrono::steady_clock::now() + kAwake;
  while (queue_.empty()) {
    if (stop_) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!looking_ && now < sleep_at) {
      looking_ = true;
      called_.wait_until(*lock, now + kLookEvery);
      looking_ = false;
    } else {
      ++asleep_;
      called_.wait(*lock, [this] { return stop_ || !queue_.empty(); });
      --asleep_;
    }
  }
  out->clear();
  for (size_t left = AtOnce(); left > 0 && !queue_.empty(); --left) {
    out->push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return true;
}

void Later::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (std::vector<KeptOpen> next; Next(&lock, &next);) {
    busy_ += next.size();
    const bool call = asleep_ > 0 && !looking_ && long_ && !queue_.empty();
    lock.unlock();
    if (call) called_.notify_one();
    for (KeptOpen& each : next) each.open.lfn = each.lfn;
    const auto start = std::chrono::steady_clock::now();
    task_(next);
    const bool took_long = std::chrono::steady_clock::now() - start > kLong;
    lock.lock();
    long_ = took_long;
    busy_ -= next.size();
  }
}

}  // namespace smartcache

#include "smartcache/periodic.hh"

#include <algorithm>
#include <utility>

#include "smartcache/without_signals.hh"

namespace smartcache {

Periodic::Periodic(double interval_s, std::function<void()> task) : interval_(std::clamp(interval_s, 0.001, 1e6)), task_(std::move(task)) {
  const WithoutSignals blocked;
  thread_ = std::thread(&Periodic::Run, this);
}

Periodic::~Periodic() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Periodic::Wake() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    wake_ = true;
  }
  changed_.notify_all();
}

void Periodic::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    wake_ = false;
    lock.unlock();
    task_();
    lock.lock();
    // By the steady clock: under the system's, setting it back by an hour would stop all background work for an hour.
    changed_.wait_until(lock, std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(interval_),
                        [this] { return stop_ || wake_; });
  }
}

}  // namespace smartcache

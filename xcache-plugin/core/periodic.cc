#include "smartcache/periodic.hh"

#include <signal.h>

#include <algorithm>
#include <utility>

namespace smartcache {

Periodic::Periodic(double interval_s, std::function<void()> task) : interval_(std::clamp(interval_s, 0.001, 1e6)), task_(std::move(task)) {
  // The server's signals are for the server's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread(&Periodic::Run, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
    // Waiting by the system clock keeps this to calls that thread sanitizers know; a step of the clock only shifts one run.
    changed_.wait_until(lock, std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::milliseconds>(interval_),
                        [this] { return stop_ || wake_; });
  }
}

}  // namespace smartcache

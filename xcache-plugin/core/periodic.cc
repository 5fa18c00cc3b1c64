#include "smartcache/periodic.hh"

#include <signal.h>

#include <algorithm>
#include <utility>

namespace smartcache {

namespace {

// Blocks all signals in this thread, and in threads that it starts, as long as it lives.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Periodic::Periodic(double interval_s, std::function<void()> task) : interval_(std::clamp(interval_s, 0.001, 1e6)), task_(std::move(task)) {
  const WithoutSignals blocked;  // the server's signals are for the server's own threads
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

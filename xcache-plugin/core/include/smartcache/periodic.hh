// A thread that runs a task at once and then every `interval`, until it is destroyed. Wake brings the next run forward.
// The task must not throw. Setting the system's clock changes nothing. Thread-safe. Failure: the constructor throws std::system_error where
// the system gives no thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace smartcache {

class Periodic {
 public:
  Periodic(double interval_s, std::function<void()> task);
  ~Periodic();
  Periodic(const Periodic&) = delete;
  Periodic& operator=(const Periodic&) = delete;

  void Wake();

 private:
  void Run();

  const std::chrono::duration<double> interval_;
  const std::function<void()> task_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false, wake_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace smartcache

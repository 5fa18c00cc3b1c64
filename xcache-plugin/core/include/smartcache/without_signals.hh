// As long as it lives, blocks all signals in this thread and in threads that it starts: the server's signals are for the server's own
// threads. Thread-safe. Failure: none.
#pragma once

#include <csignal>

namespace smartcache {

class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace smartcache

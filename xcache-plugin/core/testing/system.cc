#include "testing/system.hh"

#include <dlfcn.h>
#include <netdb.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>

namespace smartcache::testing {

std::atomic<int> lookups{0}, lookup_ms{0}, clock_offset_s{0};
std::atomic<bool> no_threads{false};
std::atomic<size_t> environment_reads{0}, bundles_loaded{0};
thread_local size_t bundles_loaded_here = 0;

namespace {

std::mutex mutex;  // guards hosts
std::map<std::string, std::string> hosts;

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

void SetHost(const std::string& name, const std::string& address) {
  const std::lock_guard<std::mutex> lock(mutex);
  hosts[name] = address;
}

}  // namespace smartcache::testing

#pragma GCC visibility push(default)
extern "C" {

int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  namespace testing = smartcache::testing;
  std::string name = node ? node : "";
  const std::string end = ".invalid";
  if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0) {
    const std::lock_guard<std::mutex> lock(testing::mutex);
    name = testing::hosts[name];
  }
  ++testing::lookups;
  ::usleep(static_cast<useconds_t>(testing::lookup_ms) * 1000);
  if (name.empty()) return EAI_NONAME;
  static const auto real = testing::Real<decltype(&getaddrinfo)>("getaddrinfo");
  return real(name.c_str(), service, hints, found);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME) time->tv_sec += smartcache::testing::clock_offset_s;
  return result;
}

char* getenv(const char* name) noexcept {
  ++smartcache::testing::environment_reads;
  static const auto real = smartcache::testing::Real<decltype(&getenv)>("getenv");
  return real(name);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) noexcept {
  if (smartcache::testing::no_threads) return EAGAIN;
  static const auto real = smartcache::testing::Real<decltype(&pthread_create)>("pthread_create");
  return real(thread, attributes, run, argument);
}

int X509_STORE_load_file(X509_STORE* store, const char* file) {
  ++smartcache::testing::bundles_loaded;
  ++smartcache::testing::bundles_loaded_here;
  static const auto real = smartcache::testing::Real<decltype(&X509_STORE_load_file)>("X509_STORE_load_file");
  return real(store, file);
}

}  // extern "C"
#pragma GCC visibility pop

// A system that fails to order: this test program's own getaddrinfo, clock_gettime, getenv, pthread_create
// and X509_STORE_load_file, which the code under test, or libcurl for it, calls.
#pragma once

#include <atomic>
#include <string>

namespace smartcache::testing {

// The address of a host name; empty: none. Names in .invalid have none else, and no name server is asked for them.
void SetHost(const std::string& name, const std::string& address);
// Names looked up so far.
extern std::atomic<int> lookups;
// How long each takes.
extern std::atomic<int> lookup_ms;
// What is added to the time of day. The time since boot is as ever.
extern std::atomic<int> clock_offset_s;
// Whether the system refuses to start threads.
extern std::atomic<bool> no_threads;
// How often anything but the C library has read the environment.
extern std::atomic<size_t> environment_reads;
// Files of certificates that OpenSSL was asked to load: by anybody, and by this thread.
extern std::atomic<size_t> bundles_loaded;
extern thread_local size_t bundles_loaded_here;

}  // namespace smartcache::testing

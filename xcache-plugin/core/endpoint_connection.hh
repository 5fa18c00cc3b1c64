// One connection to the endpoint, kept alive between requests, and the connections that opens share.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "endpoint_address.hh"
#include "smartcache/answer.hh"
#include "smartcache/config.hh"

struct curl_slist;

namespace smartcache {

// The file with the CAs that are believed: the configured one, else libcurl's own; empty where that has a folder of them only, which is
// searched as it is needed.
std::string CaFile(const ModelConfig& config);

// Where requests go, as of now. Immutable.
struct EndpointRoute {
  std::string resolve;  // "host:port:address,..."; empty for a literal address
  std::string token;
};

// One libcurl handle, which keeps its TCP connection alive, and the buffers of its requests. Held by one thread at a time.
class EndpointConnection {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws std::runtime_error where libcurl gives no handle, as Renew does.
  EndpointConnection(const ModelConfig& config, const std::string& url, const EndpointAddress& address);
  ~EndpointConnection();
  EndpointConnection(const EndpointConnection&) = delete;
  EndpointConnection& operator=(const EndpointConnection&) = delete;

  std::string& body() { return body_; }
  const std::string& reply() const { return reply_; }
  Clock::time_point last_used() const { return last_used_; }
  // Whether an open may use it: should it have to connect, the CA bundle is in memory. OpenSSL parses one for tens of milliseconds, which
  // no timeout of libcurl's interrupts; libcurl then keeps it for as long as the handle lives. Any thread may ask.
  bool loaded() const { return loaded_.load(std::memory_order_relaxed); }
  // Which state of the CA bundle it has, or will load: as given to Renew, at first 0.
  unsigned ca() const { return ca_; }

  // Begins anew where the CA bundle has changed: disconnected, with nothing loaded. What there was is kept for Settle.
  void Renew(unsigned ca);
  // After the first Perform behind Renew: false where the new bundle was not loaded, and what there was is in use again. The next Renew
  // tries anew, unless the bundle `is_none`: then not before it changes.
  bool Settle(bool is_none);
  // Whether the last Perform failed because the CA bundle is none.
  bool bad_bundle() const { return bad_bundle_; }
  // Follows a change of address or token.
  void Use(const std::shared_ptr<const EndpointRoute>& route);
  // Sends body(): kModel where there is a reply of `status` with at most `max_reply` bytes, else why there is none.
  Reason Perform(long timeout_ms, size_t max_reply, long* status);

 private:
  template <typename T>
  void Set(int option, T value);
  struct Before {
    void* handle = nullptr;
    curl_slist* resolve = nullptr;
    unsigned ca = 0;
    std::shared_ptr<const EndpointRoute> route;
  };
  void SetUp();
  void Forget();
  static size_t Receive(const char* data, size_t, size_t size, void* self) noexcept;

  const std::string host_and_port_, url_, ca_file_;
  const bool secure_;
  void* handle_ = nullptr;  // CURL*
  unsigned ca_ = 0;
  std::atomic<bool> loaded_;
  curl_slist* headers_ = nullptr;
  curl_slist* resolve_ = nullptr;
  std::shared_ptr<const EndpointRoute> route_;
  Before before_;  // with a handle between Renew and Settle
  bool bad_bundle_ = false;
  Clock::time_point last_used_{};
  std::string body_, reply_;
  size_t max_reply_ = 0;
};

// The connections, each lent to one thread at a time. Thread-safe; nothing throws but the constructor.
class EndpointPool {
 public:
  using Clock = EndpointConnection::Clock;

  // A connection for as long as this lives; none where it was not to be had.
  class Lease {
   public:
    Lease() = default;
    Lease(EndpointPool* pool, EndpointConnection* connection, bool warmest) : pool_(pool), connection_(connection), warmest_(warmest) {}
    Lease(Lease&& other) noexcept : pool_(other.pool_), connection_(other.connection_), warmest_(other.warmest_) {
      other.connection_ = nullptr;
    }
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (connection_) pool_->GiveBack(connection_, warmest_);
    }

    explicit operator bool() const { return connection_ != nullptr; }
    EndpointConnection* get() const { return connection_; }

   private:
    EndpointPool* pool_ = nullptr;
    EndpointConnection* connection_ = nullptr;
    bool warmest_ = true;
  };

  EndpointPool(const ModelConfig& config, const std::string& url, const EndpointAddress& address);

  size_t size() const { return all_.size(); }
  // Whether there is one that is loaded, idle or not.
  bool loaded() const;
  // Of the loaded ones that used last, which has the warmest connection; waits for one until `deadline`, where there is any.
  Lease Take(Clock::time_point deadline);
  // The idle one that was not used for longest of those that `wanted` says yes to, if there is one: who comes again after a failure gets
  // another. Given back, it is the last to be taken: opens go on with the one they used last.
  Lease TakeIdle(const std::function<bool(const EndpointConnection&)>& wanted);

 private:
  void GiveBack(EndpointConnection* connection, bool warmest) noexcept;

  std::vector<std::unique_ptr<EndpointConnection>> all_;
  std::mutex mutex_;  // guards idle_
  std::condition_variable came_free_;
  std::vector<EndpointConnection*> idle_;  // the one used last at the end
};

}  // namespace smartcache

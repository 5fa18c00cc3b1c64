#include "endpoint_connection.hh"

#include <curl/curl.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace smartcache {
namespace {

constexpr long kMaxIdleS = 3600;  // libcurl's own limit would close what is kept warm

Reason ReasonOf(CURLcode code) {
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return Reason::kDeadline;
    case CURLE_PARTIAL_FILE:  // half an answer
    case CURLE_WRITE_ERROR:   // more than max_reply
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:  // not HTTP
    case CURLE_HTTP2:
    case CURLE_BAD_CONTENT_ENCODING:
      return Reason::kInvalidReply;
    default:
      return Reason::kUnreachable;
  }
}

}  // namespace

std::string CaFile(const ModelConfig& config) {
  if (!config.ca_file.empty()) return config.ca_file;
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle(curl_easy_init(), &curl_easy_cleanup);
  const char* own = nullptr;
  if (handle) curl_easy_getinfo(handle.get(), CURLINFO_CAINFO, &own);
  return own ? own : "";
}

template <typename T>
void EndpointConnection::Set(int option, T value) {
  curl_easy_setopt(handle_, static_cast<CURLoption>(option), value);
}

EndpointConnection::EndpointConnection(const ModelConfig& config, const std::string& url, const EndpointAddress& address)
    : host_and_port_(address.host_and_port()), url_(url), ca_file_(CaFile(config)), secure_(address.secure), loaded_(!address.secure) {
  for (const char* header : {"Content-Type: application/json", "Accept: application/json", "Expect:"})
    headers_ = curl_slist_append(headers_, header);
  SetUp();
}

void EndpointConnection::SetUp() {
  handle_ = curl_easy_init();
  if (!handle_) throw std::runtime_error("libcurl gives no handle; is there memory?");
  Set(CURLOPT_URL, url_.c_str());
  Set(CURLOPT_NOSIGNAL, 1L);
  Set(CURLOPT_TCP_NODELAY, 1L);
  Set(CURLOPT_TCP_KEEPALIVE, 1L);
  Set(CURLOPT_MAXAGE_CONN, kMaxIdleS);
  Set(CURLOPT_FOLLOWLOCATION, 0L);
  Set(CURLOPT_PROXY, "");
  Set(CURLOPT_NOPROXY, "*");  // else each request reads the environment, which a server that starts is still writing to
  Set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  Set(CURLOPT_PROTOCOLS_STR, "http,https");
  Set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  Set(CURLOPT_HTTP09_ALLOWED, 0L);
  Set(CURLOPT_HTTPHEADER, headers_);
  Set(CURLOPT_POST, 1L);
  Set(CURLOPT_USERAGENT, "smartcache");
  Set(CURLOPT_WRITEFUNCTION, &EndpointConnection::Receive);
  Set(CURLOPT_WRITEDATA, this);
  if (ca_file_.empty()) return;
  Set(CURLOPT_CAINFO, ca_file_.c_str());
  // What is loaded is kept only where it comes from a file alone, and many a libcurl has a folder as its default.
  Set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
#if LIBCURL_VERSION_NUM >= 0x075700
  Set(CURLOPT_CA_CACHE_TIMEOUT, -1L);
#endif
}

void EndpointConnection::Renew(unsigned ca) {
  if (ca == ca_) return;
  Before now{handle_, resolve_, ca_, route_};
  try {
    SetUp();
  } catch (...) {
    handle_ = now.handle;
    throw;
  }
  Forget();
  before_ = std::move(now);
  ca_ = ca;
  resolve_ = nullptr;
  route_.reset();
  if (loaded_.exchange(!secure_)) return;
  Forget();  // it had nothing loaded either
}

bool EndpointConnection::Settle(bool is_none) {
  if (!before_.handle) return true;
  if (!loaded_) {
    std::swap(handle_, before_.handle);
    std::swap(resolve_, before_.resolve);
    route_ = std::move(before_.route);
    if (!is_none) ca_ = before_.ca;
    loaded_ = true;
    Forget();
    return false;
  }
  Forget();
  return true;
}

void EndpointConnection::Forget() {
  curl_easy_cleanup(before_.handle);
  curl_slist_free_all(before_.resolve);
  before_ = {};
}

EndpointConnection::~EndpointConnection() {
  Forget();
  curl_easy_cleanup(handle_);
  curl_slist_free_all(headers_);
  curl_slist_free_all(resolve_);
}

void EndpointConnection::Use(const std::shared_ptr<const EndpointRoute>& route) {
  if (route == route_) return;
  if (!route->resolve.empty()) {
    curl_slist_free_all(resolve_);
    resolve_ = curl_slist_append(nullptr, ("-" + host_and_port_).c_str());
    resolve_ = curl_slist_append(resolve_, route->resolve.c_str());
    Set(CURLOPT_RESOLVE, resolve_);
  }
  Set(CURLOPT_XOAUTH2_BEARER, route->token.empty() ? nullptr : route->token.c_str());
  Set(CURLOPT_HTTPAUTH, route->token.empty() ? static_cast<long>(CURLAUTH_NONE) : static_cast<long>(CURLAUTH_BEARER));
  route_ = route;
}

Reason EndpointConnection::Perform(long timeout_ms, size_t max_reply, long* status) {
  reply_.clear();
  max_reply_ = max_reply;
  Set(CURLOPT_TIMEOUT_MS, timeout_ms);
  Set(CURLOPT_CONNECTTIMEOUT_MS, timeout_ms);
  Set(CURLOPT_POSTFIELDS, body_.data());
  Set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body_.size()));
  const CURLcode code = curl_easy_perform(handle_);
  last_used_ = Clock::now();
  bad_bundle_ = code == CURLE_SSL_CACERT_BADFILE;
  if (!loaded_) {
    curl_off_t handshake_us = 0;
    curl_easy_getinfo(handle_, CURLINFO_APPCONNECT_TIME_T, &handshake_us);
    loaded_ = handshake_us > 0 || code == CURLE_PEER_FAILED_VERIFICATION;
  }
  curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, status);
  return code == CURLE_OK ? Reason::kModel : ReasonOf(code);
}

size_t EndpointConnection::Receive(const char* data, size_t, size_t size, void* self) noexcept {
  std::string& reply = static_cast<EndpointConnection*>(self)->reply_;
  if (reply.size() + size > static_cast<EndpointConnection*>(self)->max_reply_) return 0;
  try {
    reply.append(data, size);
  } catch (...) {
    return 0;  // an exception must not pass through libcurl
  }
  return size;
}

EndpointPool::EndpointPool(const ModelConfig& config, const std::string& url, const EndpointAddress& address) {
  for (int i = 0; i < config.connections; ++i) {
    all_.push_back(std::make_unique<EndpointConnection>(config, url, address));
    idle_.push_back(all_.back().get());
  }
}

EndpointPool::Lease EndpointPool::Take(Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto found = idle_.rend();
  came_free_.wait_until(lock, deadline, [&] {
    found = std::find_if(idle_.rbegin(), idle_.rend(), [](const EndpointConnection* each) { return each->loaded(); });
    return found != idle_.rend() || !loaded();
  });
  if (found == idle_.rend()) return {};
  EndpointConnection* connection = *found;
  idle_.erase(std::next(found).base());
  return {this, connection, true};
}

bool EndpointPool::loaded() const {
  return std::any_of(all_.begin(), all_.end(), [](const auto& each) { return each->loaded(); });
}

EndpointPool::Lease EndpointPool::TakeIdle(const std::function<bool(const EndpointConnection&)>& wanted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = idle_.end();
  for (auto each = idle_.begin(); each != idle_.end(); ++each)
    if (wanted(**each) && (found == idle_.end() || (*each)->last_used() < (*found)->last_used())) found = each;
  if (found == idle_.end()) return {};
  EndpointConnection* connection = *found;
  idle_.erase(found);
  return {this, connection, false};
}

void EndpointPool::GiveBack(EndpointConnection* connection, bool warmest) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.insert(warmest ? idle_.end() : idle_.begin(), connection);  // has capacity for all: does not allocate
  }
  came_free_.notify_one();
}

}  // namespace smartcache

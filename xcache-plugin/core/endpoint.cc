#include "smartcache/endpoint.hh"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

#include "smartcache/distribution.hh"

namespace smartcache {
namespace {

constexpr size_t kMaxReply = 8192;  // for a row: 64 numbers need 2 kB
constexpr size_t kMaxRows = 64;     // at once
constexpr auto kWarmDeadline = std::chrono::seconds(2);
constexpr double kGoldenTolerance = 1e-3;
constexpr double kMaintenanceS = 0.1;
constexpr int kProbes = 3;
constexpr long kMaxIdleS = 3600;  // libcurl's own limit would close what is kept warm
constexpr auto kResolveEvery = std::chrono::seconds(30);
constexpr auto kReadFilesEvery = std::chrono::seconds(1);
constexpr auto kResolveAgain = std::chrono::seconds(1);

void AppendFloat(std::string* out, float value) {
  char buffer[32];
  out->append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, 9).ptr);
}

struct UrlParts {
  std::string host, port;
};

UrlParts SplitUrl(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parts(curl_url(), &curl_url_cleanup);
  char *host = nullptr, *port = nullptr;
  if (!parts || curl_url_set(parts.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl_url_get(parts.get(), CURLUPART_HOST, &host, 0) != CURLUE_OK ||
      curl_url_get(parts.get(), CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK) {
    curl_free(host);
    throw ConfigError("[model] endpoint_url must be a URL with a host, but is \"" + url + "\"; write it as \"http://127.0.0.1:8083\"");
  }
  UrlParts result{host, port};
  curl_free(host);
  curl_free(port);
  return result;
}

bool IsLiteral(const std::string& host) {
  in6_addr scratch;
  return host.front() == '[' || inet_pton(AF_INET, host.c_str(), &scratch) == 1;
}

// All addresses of a host, comma-separated as CURLOPT_RESOLVE wants them; empty where there are none. May take seconds.
std::string LookUp(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return "";
  std::string addresses;
  for (const addrinfo* each = found; each; each = each->ai_next) {
    char text[INET6_ADDRSTRLEN + 16];
    if (getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    const std::string address = each->ai_family == AF_INET6 ? "[" + std::string(text) + "]" : text;
    addresses += (addresses.empty() ? "" : ",") + address;
  }
  freeaddrinfo(found);
  return addresses;
}

Reason ReasonOf(CURLcode code) {
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return Reason::kDeadline;
    case CURLE_PARTIAL_FILE:  // half an answer
    case CURLE_WRITE_ERROR:   // more than kMaxReply
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

// Where requests go, as of now. Immutable.
struct EndpointModel::Route {
  std::string resolve;  // "host:port:address,..."; empty for a literal address
  std::string token;
};

// One libcurl handle, which keeps its TCP connection alive, and the buffers of its requests. Held by one thread at a time.
class EndpointModel::Connection {
 public:
  Connection(const ModelConfig& config, const std::string& url, const std::string& host_and_port) : host_and_port_(host_and_port) {
    handle_ = curl_easy_init();
    if (!handle_) throw std::runtime_error("libcurl gives no handle; is there memory?");
    for (const char* header : {"Content-Type: application/json", "Accept: application/json", "Expect:"})
      headers_ = curl_slist_append(headers_, header);
    Set(CURLOPT_URL, url.c_str());
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_TCP_NODELAY, 1L);
    Set(CURLOPT_TCP_KEEPALIVE, 1L);
    Set(CURLOPT_MAXAGE_CONN, kMaxIdleS);
    Set(CURLOPT_FOLLOWLOCATION, 0L);
    Set(CURLOPT_PROXY, "");
    Set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
    Set(CURLOPT_PROTOCOLS_STR, "http,https");
    Set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    Set(CURLOPT_HTTP09_ALLOWED, 0L);
    Set(CURLOPT_HTTPHEADER, headers_);
    Set(CURLOPT_POST, 1L);
    Set(CURLOPT_USERAGENT, "smartcache");
    Set(CURLOPT_WRITEFUNCTION, &Connection::Receive);
    Set(CURLOPT_WRITEDATA, this);
    if (!config.ca_file.empty()) Set(CURLOPT_CAINFO, config.ca_file.c_str());
  }

  ~Connection() {
    curl_easy_cleanup(handle_);
    curl_slist_free_all(headers_);
    curl_slist_free_all(resolve_);
  }

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::string& body() { return body_; }
  const std::string& reply() const { return reply_; }

  Clock::time_point last_used() const { return last_used_; }

  // Follows a change of address or token.
  void Use(const std::shared_ptr<const Route>& route) {
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

  // A reply of more than `max_reply` bytes is refused.
  CURLcode Perform(long timeout_ms, size_t max_reply, long* status) {
    reply_.clear();
    max_reply_ = max_reply;
    Set(CURLOPT_TIMEOUT_MS, timeout_ms);
    Set(CURLOPT_CONNECTTIMEOUT_MS, timeout_ms);
    Set(CURLOPT_POSTFIELDS, body_.data());
    Set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body_.size()));
    const CURLcode code = curl_easy_perform(handle_);
    last_used_ = Clock::now();
    curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, status);
    return code;
  }

 private:
  template <typename T>
  void Set(CURLoption option, T value) {
    curl_easy_setopt(handle_, option, value);
  }

  static size_t Receive(const char* data, size_t, size_t size, void* self) noexcept {
    std::string& reply = static_cast<Connection*>(self)->reply_;
    if (reply.size() + size > static_cast<Connection*>(self)->max_reply_) return 0;
    try {
      reply.append(data, size);
    } catch (...) {
      return 0;  // an exception must not pass through libcurl
    }
    return size;
  }

  const std::string host_and_port_;
  CURL* handle_;
  curl_slist* headers_ = nullptr;
  curl_slist* resolve_ = nullptr;
  std::shared_ptr<const Route> route_;
  Clock::time_point last_used_{};
  std::string body_, reply_;
  size_t max_reply_ = kMaxReply;
};

EndpointModel::EndpointModel(const ModelConfig& config, size_t features, Log log, EndpointOptions options)
    : config_(config),
      features_(features),
      log_(std::move(log)),
      refresh_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.refresh_s))),
      breaker_(config.breaker_failures,
               std::chrono::duration_cast<Breaker::Duration>(std::chrono::duration<double>(std::min(config.breaker_open_s, 1e6)))) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK) throw std::runtime_error("libcurl cannot be initialised");
  std::string base = config.endpoint_url;
  while (!base.empty() && base.back() == '/') base.pop_back();
  url_ = base + "/json";
  const UrlParts parts = SplitUrl(url_);
  host_ = parts.host;
  port_ = parts.port;
  literal_address_ = IsLiteral(host_);
  for (int i = 0; i < config.connections; ++i) {
    connections_.push_back(std::make_unique<Connection>(config_, url_, host_ + ":" + port_));
    idle_.push_back(connections_.back().get());
  }
  ReadFiles();
  if (literal_address_) std::atomic_store(&route_, std::make_shared<const Route>(Route{"", token_}));
  maintenance_ = std::make_unique<Periodic>(kMaintenanceS, [this] { Maintain(); });
}

EndpointModel::~EndpointModel() { maintenance_.reset(); }

EndpointModel::Connection* EndpointModel::Take(Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!came_free_.wait_until(lock, deadline, [this] { return !idle_.empty(); })) return nullptr;
  // The one used last has the warmest connection.
  Connection* connection = idle_.back();
  idle_.pop_back();
  return connection;
}

void EndpointModel::GiveBack(Connection* connection) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(connection);  // has capacity for all: does not allocate
  }
  came_free_.notify_one();
}

EndpointModel::Clock::time_point EndpointModel::DeadlineFrom(Clock::time_point now) const {
  return now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(config_.deadline_ms));
}

void EndpointModel::Predict(const Bundle& bundle, const float* features, Prediction* out) noexcept {
  PredictOnce(bundle, {&features, out, 1});
}

size_t EndpointModel::rows_at_once() const noexcept { return takes_rows_.load(std::memory_order_relaxed) ? kMaxRows : 1; }

void EndpointModel::PredictRows(const Bundle& bundle, const std::vector<const float*>& rows, Prediction* out) noexcept {
  for (size_t first = 0; first < rows.size();) {
    const size_t count = std::min(rows_at_once(), rows.size() - first);
    PredictOnce(bundle, {rows.data() + first, out + first, count});
    if (count > 1 && out[first].result(Source::kEndpoint) == Reason::kInvalidReply) takes_rows_.store(false, std::memory_order_relaxed);
    first += count;
  }
}

void EndpointModel::Rows::Say(Reason reason) const {
  for (size_t i = 0; i < count; ++i) {
    out[i].answered = reason == Reason::kModel;
    out[i].result(Source::kEndpoint) = reason;
  }
}

void EndpointModel::PredictOnce(const Bundle& bundle, const Rows& rows) noexcept {
  const auto deadline = DeadlineFrom(Clock::now());
  if (!breaker_.Allow()) return rows.Say(Reason::kBreakerOpen);
  Connection* connection = Take(deadline);
  // All connections wait for replies: the endpoint is too slow for this load, and the requests that wait report that themselves.
  if (!connection) return rows.Say(Reason::kDeadline);
  try {
    Ask(connection, bundle, rows, deadline);
  } catch (...) {
    rows.Say(Reason::kError);
  }
  GiveBack(connection);
  if (rows.out->answered)
    breaker_.Succeeded();
  else
    breaker_.Failed(Clock::now());
}

void EndpointModel::Ask(Connection* connection, const Bundle& bundle, const float* features, Clock::time_point deadline, Prediction* out) {
  Ask(connection, bundle, {&features, out, 1}, deadline);
}

void EndpointModel::Ask(Connection* connection, const Bundle& bundle, const Rows& rows, Clock::time_point deadline) {
  const auto route = std::atomic_load(&route_);
  if (!route) return rows.Say(Reason::kUnreachable);  // the name has no address (yet)
  connection->Use(route);
  std::string& body = connection->body();
  body = bundle.request_head;
  body += rows.count == 1 ? "\"values\":[" : "\"rows\":[[";
  for (size_t row = 0; row < rows.count; ++row) {
    if (row > 0) body += "],[";
    for (size_t i = 0; i < features_; ++i) {
      if (i > 0) body += ',';
      AppendFloat(&body, rows.features[row][i]);
    }
  }
  body += rows.count == 1 ? "]}" : "]]}";

  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  long status = 0;
  const CURLcode code = connection->Perform(std::max<long>(1, left), kMaxReply * rows.count, &status);
  if (code != CURLE_OK) return rows.Say(ReasonOf(code));
  double* outputs[kMaxRows];
  for (size_t row = 0; row < rows.count; ++row) {
    outputs[row] = rows.out[row].outputs;
    rows.out[row].buckets = bundle.buckets;
  }
  const bool good = status == 200 && (rows.count == 1 ? ParseDistribution(connection->reply(), bundle.buckets, outputs[0])
                                                      : ParseDistributions(connection->reply(), rows.count, bundle.buckets, outputs));
  rows.Say(good ? Reason::kModel : Reason::kInvalidReply);
}

Model::Warmth EndpointModel::Warm(const Bundle& bundle, Finding* finding) {
  const Warmth warmth = AskGoldenRows(bundle, finding);
  if (warmth == Warmth::kReady) takes_rows_.store(AnswersRows(bundle), std::memory_order_relaxed);
  // A probe asks for what is in use: never for a bundle that was refused.
  if (warmth == Warmth::kReady || (warmth == Warmth::kLater && !std::atomic_load(&probe_bundle_)))
    std::atomic_store(&probe_bundle_, std::make_shared<const Bundle>(bundle));
  return warmth;
}

void EndpointModel::Forget() noexcept { std::atomic_store(&probe_bundle_, std::shared_ptr<const Bundle>()); }

Model::Warmth EndpointModel::AskGoldenRows(const Bundle& bundle, Finding* finding) {
  const std::vector<float> zeros(features_, 0.0f);
  const size_t rows = std::max<size_t>(1, bundle.golden_inputs.size());
  const size_t requests = std::max(rows, connections_.size());
  // Every connection that is free, so that all are open before the first open needs one; those in use are warm already.
  std::set<Connection*> warmed;
  for (size_t i = 0; i < requests; ++i) {
    Connection* connection = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (auto it = idle_.begin(); it != idle_.end() && !connection; ++it) {
        if (warmed.count(*it) != 0) continue;
        connection = *it;
        idle_.erase(it);
      }
    }
    if (!connection) {
      if (i >= rows) break;
      connection = Take(Clock::now() + std::chrono::seconds(1));
      if (!connection) {
        finding->why = "all connections to the endpoint are busy";
        return Warmth::kLater;
      }
    }
    warmed.insert(connection);
    Prediction prediction;
    const bool golden = !bundle.golden_inputs.empty();
    const float* input = golden ? bundle.golden_inputs[i % rows].data() : zeros.data();
    try {
      Ask(connection, bundle, input, Clock::now() + kWarmDeadline, &prediction);
    } catch (...) {
      GiveBack(connection);
      throw;
    }
    GiveBack(connection);
    if (!prediction.answered) {
      finding->reason = prediction.reason();
      finding->why = config_.endpoint_url + " does not answer for " + bundle.name + " (" + Text(prediction.reason()) + ")";
      return Warmth::kLater;
    }
    for (size_t k = 0; golden && k < bundle.buckets; ++k) {
      const double expected = static_cast<double>(bundle.golden_outputs[i % rows][k]);
      if (std::fabs(prediction.outputs[k] - expected) <= kGoldenTolerance) continue;
      finding->reason = Reason::kInvalidReply;
      finding->why = config_.endpoint_url + " answers " + bundle.name + "'s golden row " + std::to_string(i % rows) + " with " +
                     std::to_string(prediction.outputs[k]) + " in bucket " + std::to_string(k) + " where " + std::to_string(expected) +
                     " is expected: another model is served under that name";
      return Warmth::kWrong;
    }
  }
  return Warmth::kReady;
}

bool EndpointModel::AnswersRows(const Bundle& bundle) {
  const std::vector<float> zeros(features_, 0.0f);
  const size_t golden = std::min(bundle.golden_inputs.size(), kMaxRows);
  std::vector<const float*> features;
  for (size_t i = 0; i < golden; ++i) features.push_back(bundle.golden_inputs[i].data());
  while (features.size() < 2) features.push_back(zeros.data());
  std::vector<Prediction> predictions(features.size());

  Connection* connection = Take(Clock::now() + std::chrono::seconds(1));
  if (!connection) return false;
  try {
    Ask(connection, bundle, {features.data(), predictions.data(), features.size()}, Clock::now() + kWarmDeadline);
  } catch (...) {
    GiveBack(connection);
    throw;
  }
  GiveBack(connection);
  if (!predictions[0].answered) return false;
  for (size_t i = 0; i < golden; ++i)
    for (size_t k = 0; k < bundle.buckets; ++k)
      if (std::fabs(predictions[i].outputs[k] - static_cast<double>(bundle.golden_outputs[i][k])) > kGoldenTolerance) return false;
  return true;
}

void EndpointModel::Maintain() noexcept {
  try {
    ReadFiles();
    if (!literal_address_ && Clock::now() >= resolve_at_) {
      const std::string found = LookUp(host_, port_);
      if (!found.empty()) addresses_ = found;  // an address that worked is better than none
      resolve_at_ = Clock::now() + (found.empty() ? std::chrono::seconds(kResolveAgain) : std::chrono::seconds(kResolveEvery));
    }
    const std::string resolve = literal_address_ || addresses_.empty() ? "" : host_ + ":" + port_ + ":" + addresses_;
    const auto before = std::atomic_load(&route_);
    if ((literal_address_ || !resolve.empty()) && (!before || before->resolve != resolve || before->token != token_)) {
      auto route = std::make_shared<Route>();
      route->resolve = resolve;
      route->token = token_;
      std::atomic_store(&route_, std::shared_ptr<const Route>(std::move(route)));
    }
    const auto bundle = std::atomic_load(&probe_bundle_);
    if (bundle && breaker_.Allow()) Refresh(*bundle);
    if (!breaker_.TakeProbe(Clock::now())) return;
    Finding finding;
    const bool success = bundle && AskGoldenRows(*bundle, &finding) == Warmth::kReady && AnswersInTime(*bundle);
    if (success) takes_rows_.store(AnswersRows(*bundle), std::memory_order_relaxed);
    breaker_.Probed(success, Clock::now());
  } catch (...) {
    breaker_.Probed(false, Clock::now());
  }
}

bool EndpointModel::AnswersInTime(const Bundle& bundle) {
  const std::vector<float> zeros(features_, 0.0f);
  for (int i = 0; i < kProbes; ++i) {
    Connection* connection = Take(Clock::now() + std::chrono::seconds(1));
    if (!connection) continue;
    Prediction prediction;
    try {
      Ask(connection, bundle, zeros.data(), DeadlineFrom(Clock::now()), &prediction);
    } catch (...) {
      GiveBack(connection);
      throw;
    }
    GiveBack(connection);
    if (prediction.answered) return true;
  }
  return false;
}

void EndpointModel::Refresh(const Bundle& bundle) {
  const std::vector<float> zeros(features_, 0.0f);
  // Back to the front: opens go on taking the one that an open used last.
  const auto give_back = [this](Connection* connection) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      idle_.insert(idle_.begin(), connection);
    }
    came_free_.notify_one();
  };
  while (true) {
    Connection* connection = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto before = Clock::now() - refresh_;
      const auto stale = std::find_if(idle_.begin(), idle_.end(), [&](const Connection* each) { return each->last_used() <= before; });
      if (stale == idle_.end()) return;
      connection = *stale;
      idle_.erase(stale);
    }
    Prediction prediction;
    try {
      Ask(connection, bundle, zeros.data(), Clock::now() + kWarmDeadline, &prediction);
    } catch (...) {
      give_back(connection);
      throw;
    }
    give_back(connection);
    if (!prediction.answered) return;
  }
}

void EndpointModel::ReadFiles() {
  if (Clock::now() < read_files_at_) return;
  read_files_at_ = Clock::now() + kReadFilesEvery;
  std::string token;
  if (!config_.token_file.empty()) {
    errno = 0;
    const bool readable = static_cast<bool>(std::ifstream(config_.token_file) >> token);
    Complain("token_file", config_.token_file, readable, &said_token_);
    if (readable) token_ = token;
  }
  if (!config_.ca_file.empty()) {
    errno = 0;
    Complain("ca_file", config_.ca_file, std::ifstream(config_.ca_file).get() != std::ifstream::traits_type::eof(), &said_ca_);
  }
}

void EndpointModel::Complain(const char* field, const std::string& path, bool readable, bool* said) {
  const std::string why = errno == 0 ? "nothing in it" : std::strerror(errno);
  if (!readable && !*said && log_)
    log_(std::string("[model] ") + field + " must be a file that the server's user can read, but is \"" + path + "\" (" + why +
         "); put it there, or leave the line out: it is looked for every second");
  *said = !readable;
}

}  // namespace smartcache

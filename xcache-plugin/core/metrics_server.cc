#include "smartcache/metrics_server.hh"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "smartcache/without_signals.hh"

namespace smartcache {
namespace {

constexpr unsigned kConnections = 16, kTimeoutS = 10;
constexpr size_t kMemory = 16384;

union Address {
  sockaddr any;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;
};

// `bind` is an IP address: the configuration has been checked.
Address AddressOf(const std::string& bind, int port) {
  Address address{};
  if (::inet_pton(AF_INET, bind.c_str(), &address.ipv4.sin_addr) == 1) {
    address.ipv4.sin_family = AF_INET;
    address.ipv4.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }
  address = Address{};
  ::inet_pton(AF_INET6, bind.c_str(), &address.ipv6.sin6_addr);
  address.ipv6.sin6_family = AF_INET6;
  address.ipv6.sin6_port = htons(static_cast<uint16_t>(port));
  return address;
}

MHD_Result Reply(MHD_Connection* connection, unsigned status, std::string_view body) {
  MHD_Response* response =
      MHD_create_response_from_buffer(body.size(), const_cast<char*>(body.data()), MHD_RESPMEM_MUST_COPY);  // NOLINT: it only copies
  if (!response) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  const MHD_Result queued = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace

struct MetricsServer::Handler {
  static MHD_Result Handle(void* self, MHD_Connection* connection, const char* url, const char* method, const char*, const char*, size_t*,
                           void**) {
    const std::string_view path = url, verb = method;
    if (verb != MHD_HTTP_METHOD_GET && verb != MHD_HTTP_METHOD_HEAD)
      return Reply(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    if (path == "/healthz") return Reply(connection, MHD_HTTP_OK, "ok\n");
    if (path != "/metrics") return Reply(connection, MHD_HTTP_NOT_FOUND, "there are /metrics and /healthz\n");
    try {
      return Reply(connection, MHD_HTTP_OK, static_cast<MetricsServer*>(self)->page_());
    } catch (...) {
      return Reply(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "not now\n");
    }
  }
};

MetricsServer::MetricsServer(const PluginMetricsConfig& config, std::function<std::string()> page, const Log& log)
    : page_(std::move(page)) {
  const Address address = AddressOf(config.bind, config.port);
  const unsigned family = address.any.sa_family == AF_INET6 ? static_cast<unsigned>(MHD_USE_IPv6) : 0u;
  const WithoutSignals blocked;
  errno = 0;
  daemon_ = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | family, static_cast<uint16_t>(config.port), nullptr, nullptr, &Handler::Handle,
                             this, MHD_OPTION_SOCK_ADDR, &address.any, MHD_OPTION_CONNECTION_LIMIT, kConnections,
                             MHD_OPTION_CONNECTION_TIMEOUT, kTimeoutS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kMemory, MHD_OPTION_END);
  if (!daemon_ && log)
    log("[plugin_metrics] port must be one that is free at " + config.bind + ", but " + std::to_string(config.port) + " cannot be had (" +
        (errno != 0 ? std::strerror(errno) : "no thread or memory") +
        "); counters are not served over HTTP until the server is restarted " + "with another");
}

MetricsServer::~MetricsServer() {
  if (daemon_) MHD_stop_daemon(daemon_);
}

}  // namespace smartcache

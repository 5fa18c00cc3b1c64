// The counters over HTTP, for a Prometheus server: GET /metrics, and /healthz, which says "ok" as long as the process lives.
//
// One thread for all connections, none of them the server's own: at most 16 at once, each closed after 10 s without a byte; requests are
// read into 16 KiB at most and have no effect. Whoever may connect may read: bind to loopback, or to an address that only Prometheus
// reaches. Thread-safe. Failure: a port or address that cannot be had is said once, and nothing is served; a page that cannot be made is a
// 503.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "smartcache/config.hh"
#include "smartcache/log.hh"

struct MHD_Daemon;

namespace smartcache {

class MetricsServer {
 public:
  // `page` makes the text of /metrics, in the server's thread; it may throw.
  MetricsServer(const PluginMetricsConfig& config, std::function<std::string()> page, const Log& log);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  bool serving() const { return daemon_ != nullptr; }

 private:
  struct Handler;

  const std::function<std::string()> page_;
  MHD_Daemon* daemon_ = nullptr;
};

}  // namespace smartcache

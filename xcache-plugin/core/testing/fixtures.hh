// What several tests need: a folder of their own, waiting for a condition, a bundle on disk, a server that misbehaves to order.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "smartcache/features.hh"

namespace smartcache::testing {

// A folder that is removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void WriteFile(const std::filesystem::path& path, const std::string& text);
std::string ReadFile(const std::filesystem::path& path);

// Polls until `condition` holds; false when `timeout_s` has passed.
bool WaitUntil(const std::function<bool()>& condition, double timeout_s = 60);

// Collects log lines from any thread.
class LogLines {
 public:
  std::function<void(const std::string&)> sink() {
    return [this](const std::string& line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      lines_.push_back(line);
    };
  }
  size_t Count(const std::string& part) const;
  bool Has(const std::string& part) const { return Count(part) > 0; }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

// bundle.json of a model with the buckets <= 1 h, <= 1 d, later; thresholds admit 0.5, evict 0.1; horizon 1 h, or 1 d with 2 buckets.
std::string BundleJson(const std::string& name, const std::string& schema_hash, int horizon_buckets = 1);
// weights.json of a network of these widths (features, hidden..., outputs) with random weights.
std::string RandomWeights(const std::vector<size_t>& widths, unsigned seed = 1);
// The same of a network that answers `outputs` whatever the features are.
std::string ConstantWeights(size_t features, const std::vector<double>& outputs);
// Installs them as `dir`/`name` and moves `dir`/current there, as promotion does; no file where a text is empty.
void Install(const std::filesystem::path& dir, const std::string& name, const std::string& bundle_json, const std::string& golden_json = "",
             const std::string& weights_json = "");

// A side table of these rows, each the text of a JSON object, with a foot that fits. Of the windows of an hour and a day.
std::string SideTableText(int64_t version, int64_t until_us, const std::vector<std::string>& rows);
// Such a row: opened `opens` times in a day at two caches, half of them in the last hour.
std::string SideTableRow(const std::string& dataset, int64_t opens, int64_t last_open_us);

// A TCP socket that listens on loopback, and its port.
std::pair<int, int> ListenOnLoopback();

// A TCP server on loopback that answers every HTTP request with what `respond` returns, byte for byte, and then keeps the connection or,
// where `close_after` is set, closes it. An empty reply is never sent: the client waits.
class Server {
 public:
  Server();
  ~Server();
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }

  void Respond(const std::string& raw, bool close_after = false);
  // 200 with what `answer` makes of a request's body; called with a lock held.
  void RespondTo(std::function<std::string(const std::string& body)> answer);
  // How long each reply takes from now on.
  void Delay(int ms) { delay_ms_ = ms; }
  // Closes all connections, as a server does with those that are idle for long.
  void Drop();
  // 200 with this body.
  void RespondJson(const std::string& body);

  size_t requests() const { return requests_; }
  size_t connections() const { return connections_; }
  std::string last_request() const;

 private:
  void Accept();
  void Serve(int client);

  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> delay_ms_{0};
  std::atomic<size_t> requests_{0}, connections_{0};
  mutable std::mutex mutex_;  // guards the members below
  std::string response_, last_request_;
  std::function<std::string(const std::string&)> answer_;
  bool close_after_ = false;
  std::vector<std::thread> threads_;
  std::set<int> clients_;
  std::thread acceptor_;
};

}  // namespace smartcache::testing

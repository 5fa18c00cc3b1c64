#include "testing/fixtures.hh"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <tuple>

#include "smartcache/sha256.hh"

namespace smartcache::testing {

namespace fs = std::filesystem;

TempFolder::TempFolder() {
  std::string name = (fs::temp_directory_path() / "smartcache-test-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
  path_ = name;
}

void WriteFile(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool WaitUntil(const std::function<bool()>& condition, double timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

size_t LogLines::Count(const std::string& part) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t count = 0;
  for (const std::string& line : lines_) count += line.find(part) != std::string::npos;
  return count;
}

std::string BundleJson(const std::string& name, const std::string& schema_hash, int horizon_buckets) {
  return R"({"format":1,"name":")" + name + R"(","schema":{"hash":")" + schema_hash + R"("},"bucket_edges_s":[3600,86400],"horizon_s":)" +
         (horizon_buckets == 1 ? "3600" : "86400") + R"(,"horizon_buckets":)" + std::to_string(horizon_buckets) +
         R"(,"thresholds":{"admit":0.5,"evict":0.1},"metrics":{},"provenance":{}})";
}

std::string RandomWeights(const std::vector<size_t>& widths, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto floats = [&](size_t count, float spread) {
    nlohmann::json list = nlohmann::json::array();
    for (size_t i = 0; i < count; ++i) list.push_back(spread * normal(random));
    return list;
  };
  nlohmann::json layers = nlohmann::json::array(), scale = nlohmann::json::array();
  for (size_t layer = 0; layer + 1 < widths.size(); ++layer) {
    nlohmann::json kernel = nlohmann::json::array();
    for (size_t i = 0; i < widths[layer]; ++i)
      kernel.push_back(floats(widths[layer + 1], std::sqrt(2.0f / static_cast<float>(widths[layer]))));
    layers.push_back(
        {{"kernel", kernel}, {"bias", floats(widths[layer + 1], 0.1f)}, {"activation", layer + 2 == widths.size() ? "softmax" : "relu"}});
  }
  for (size_t i = 0; i < widths[0]; ++i) scale.push_back(std::exp(normal(random)));
  return nlohmann::json{{"layers", layers}, {"normalization", {{"mean", floats(widths[0], 3)}, {"scale", scale}}}}.dump();
}

std::string SideTableText(int64_t version, int64_t until_us, const std::vector<std::string>& rows) {
  const nlohmann::json head = {{"format", 1},
                               {"kind", "smartcache-datasets"},
                               {"version", version},
                               {"until_us", until_us},
                               {"windows_s", std::vector<double>{3600, 86400}},
                               {"left_out", 0}};
  std::string text = head.dump() + "\n";
  for (const std::string& row : rows) text += row + "\n";
  Sha256 hash;
  hash.Add(text);
  return text + R"({"rows":)" + std::to_string(rows.size()) + R"(,"sha256":")" + hash.Hex() + "\"}\n";
}

std::string SideTableRow(const std::string& dataset, int64_t opens, int64_t last_open_us) {
  const nlohmann::json row = {{"dataset", dataset},
                              {"opens", {opens / 2, opens}},
                              {"read_bytes", {opens * 100, opens * 300}},
                              {"files", std::min<int64_t>(2, opens)},
                              {"caches", std::min<int64_t>(2, opens)},
                              {"reopened", 0.5},
                              {"part_read", 0.25},
                              {"last_open_us", last_open_us}};
  return row.dump();
}

std::string ConstantWeights(size_t features, const std::vector<double>& outputs) {
  nlohmann::json bias = nlohmann::json::array();
  for (const double each : outputs) bias.push_back(std::log(each));
  const nlohmann::json layer = {
      {"kernel", std::vector<std::vector<float>>(features, std::vector<float>(outputs.size()))}, {"bias", bias}, {"activation", "softmax"}};
  const std::vector<float> zeros(features), ones(features, 1);
  return nlohmann::json{{"layers", {layer}}, {"normalization", {{"mean", zeros}, {"scale", ones}}}}.dump();
}

void Install(const fs::path& dir, const std::string& name, const std::string& bundle_json, const std::string& golden_json,
             const std::string& weights_json) {
  WriteFile(dir / name / "bundle.json", bundle_json);
  if (!golden_json.empty()) WriteFile(dir / name / "golden.json", golden_json);
  if (!weights_json.empty()) WriteFile(dir / name / "weights.json", weights_json);
  fs::create_symlink(name, dir / "next");
  fs::rename(dir / "next", dir / "current");
}

namespace {

std::string JsonReply(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace

std::pair<int, int> ListenOnLoopback() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(listener, 64) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw std::runtime_error("the test server cannot listen");
  return {listener, ntohs(address.sin_port)};
}

Server::Server() {
  std::tie(listener_, port_) = ListenOnLoopback();
  acceptor_ = std::thread(&Server::Accept, this);
}

Server::~Server() {
  stop_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  Drop();
  for (std::thread& each : threads_) each.join();
  ::close(listener_);
}

void Server::Drop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const int client : clients_) ::shutdown(client, SHUT_RDWR);
}

void Server::Respond(const std::string& raw, bool close_after) {
  const std::lock_guard<std::mutex> lock(mutex_);
  response_ = raw;
  answer_ = nullptr;
  close_after_ = close_after;
}

void Server::RespondTo(std::function<std::string(const std::string& body)> answer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  answer_ = std::move(answer);
  close_after_ = false;
}

void Server::RespondJson(const std::string& body) { Respond(JsonReply(body)); }

std::string Server::last_request() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_request_;
}

void Server::Accept() {
  while (!stop_) {
    const int client = ::accept(listener_, nullptr, nullptr);
    if (client < 0) break;
    ++connections_;
    const std::lock_guard<std::mutex> lock(mutex_);
    clients_.insert(client);
    threads_.emplace_back(&Server::Serve, this, client);
  }
}

void Server::Serve(int client) {
  std::string input;
  char buffer[4096];
  bool open = true;
  while (open) {
    const size_t head = input.find("\r\n\r\n");
    const size_t length_at = input.find("Content-Length: ");
    size_t whole = std::string::npos;
    if (head != std::string::npos) whole = head + 4 + (length_at < head ? std::stoul(input.substr(length_at + 16)) : 0);
    if (whole == std::string::npos || input.size() < whole) {
      const ssize_t got = ::recv(client, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      input.append(buffer, static_cast<size_t>(got));
      continue;
    }
    std::string response;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      last_request_ = input.substr(0, whole);
      response = answer_ ? JsonReply(answer_(last_request_.substr(head + 4))) : response_;
      open = !close_after_;
    }
    input.erase(0, whole);
    ++requests_;
    if (delay_ms_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms_));
    if (!response.empty()) ::send(client, response.data(), response.size(), MSG_NOSIGNAL);
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    clients_.erase(client);
  }
  ::close(client);
}

}  // namespace smartcache::testing

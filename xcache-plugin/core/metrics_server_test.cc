#include "smartcache/metrics_server.hh"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

struct Answer {
  long status = 0;  // 0: none
  std::string body, type;
};

size_t Append(const char* data, size_t size, size_t count, void* body) {
  static_cast<std::string*>(body)->append(data, size * count);
  return size * count;
}

Answer Get(int port, const std::string& path, const char* method = "GET", const std::string& header = "") {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), &curl_easy_cleanup);
  Answer answer;
  curl_slist* headers = header.empty() ? nullptr : curl_slist_append(nullptr, header.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_URL, ("http://127.0.0.1:" + std::to_string(port) + path).c_str());
  curl_easy_setopt(curl.get(), CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &Append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer.body);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, 10L);
  curl_easy_setopt(curl.get(), CURLOPT_NOPROXY, "*");
  if (curl_easy_perform(curl.get()) == CURLE_OK) {
    curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &answer.status);
    const char* type = nullptr;
    curl_easy_getinfo(curl.get(), CURLINFO_CONTENT_TYPE, &type);
    answer.type = type ? type : "";
  }
  curl_slist_free_all(headers);
  return answer;
}

// A socket that is bound and, until it is closed, keeps the port from others.
class Port {
 public:
  Port() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    number_ = ntohs(address.sin_port);
  }
  ~Port() { Free(); }
  int number() const { return number_; }
  int Free() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
    return number_;
  }

 private:
  int socket_, number_;
};

PluginMetricsConfig At(int port, const char* bind = "127.0.0.1") { return {"", 10, bind, port}; }

TEST(MetricsServer, ServesThePageAsItIsNow) {
  const int port = Port().Free();
  testing::LogLines log;
  std::atomic<int> made{0};
  const MetricsServer server(
      At(port), [&] { return "made " + std::to_string(++made) + "\n"; }, log.sink());
  ASSERT_TRUE(server.serving());
  const Answer first = Get(port, "/metrics");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "made 1\n");
  EXPECT_EQ(first.type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(Get(port, "/metrics?a=b").body, "made 2\n");
  EXPECT_EQ(Get(port, "/healthz").body, "ok\n");
  EXPECT_EQ(Get(port, "/").status, 404);
  EXPECT_EQ(Get(port, "/metrics", "POST").status, 405);
  EXPECT_EQ(Get(port, "/metrics", "GET", "X: " + std::string(100000, 'x')).status / 100, 4);
  EXPECT_EQ(made, 2);
  EXPECT_FALSE(log.Has(""));
}

TEST(MetricsServer, APageThatCannotBeMadeIsNoCrash) {
  const int port = Port().Free();
  const MetricsServer server(At(port), []() -> std::string { throw std::runtime_error("no"); }, {});
  EXPECT_EQ(Get(port, "/metrics").status, 503);
  EXPECT_EQ(Get(port, "/healthz").status, 200);
}

TEST(MetricsServer, APortInUseIsSaidOnceAndNothingElse) {
  const Port taken;
  testing::LogLines log;
  const MetricsServer server(
      At(taken.number()), [] { return std::string(); }, log.sink());
  EXPECT_FALSE(server.serving());
  EXPECT_EQ(log.Count("[plugin_metrics] port must be"), 1u);
  EXPECT_TRUE(log.Has(std::to_string(taken.number())));
  EXPECT_TRUE(log.Has("in use"));
  EXPECT_EQ(log.Count(""), 1u);
}

TEST(MetricsServer, AnAddressThatIsNotOursIsSaid) {
  testing::LogLines log;
  const MetricsServer server(
      At(Port().Free(), "192.0.2.1"), [] { return std::string(); }, log.sink());
  EXPECT_FALSE(server.serving());
  EXPECT_TRUE(log.Has("192.0.2.1"));
}

// Clients that connect and say nothing hold no thread: others are answered beside them.
TEST(MetricsServer, SilentClientsHoldNobodyUp) {
  const int port = Port().Free();
  const MetricsServer server(At(port), [] { return std::string("x 1\n"); }, {});
  std::vector<int> silent;
  for (int i = 0; i < 10; ++i) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    silent.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(silent.back(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_GT(::send(silent.back(), "GET /metr", 9, MSG_NOSIGNAL), 0);
  }
  EXPECT_EQ(Get(port, "/metrics").body, "x 1\n");
  for (const int each : silent) ::close(each);
}

}  // namespace
}  // namespace smartcache

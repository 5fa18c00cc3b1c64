#include "smartcache/decision_log.hh"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "testing/fixtures.hh"
#include "testing/system.hh"

namespace smartcache {
namespace {

using nlohmann::json;

DecisionRecord Record(std::string_view lfn) {
  DecisionRecord record{};
  record.cache = "host:1094";
  record.boot_us = 5;
  record.seq = 7;
  record.t_us = 1760000000000001;
  record.lfn = lfn;
  record.answer = Answer::kBypass;
  record.reason = Reason::kExplore;
  record.has_score = true;
  record.score = 0.125;
  record.threshold = 0.25;
  record.probability = 0.005;
  record.model = "reuse_v3";
  record.latency_us = 42;
  record.size = -1;
  record.fill = 0.1f;
  record.read_share = 0.25f;
  return record;
}

json Written(const DecisionRecord& record) {
  std::string text;
  WriteRecord(record, &text);
  return json::parse(text);
}

TEST(DecisionLog, RecordIsTheContracts) {
  const json expected = {{"v", 1},
                         {"cache", "host:1094"},
                         {"boot_us", 5},
                         {"seq", 7},
                         {"t_us", 1760000000000001},
                         {"lfn", "/a/b"},
                         {"answer", "bypass"},
                         {"reason", "explore"},
                         {"score", 0.125},
                         {"threshold", 0.25},
                         {"probability", 0.005},
                         {"model", "reuse_v3"},
                         {"latency_us", 42},
                         {"on_disk", false},
                         {"size", -1},
                         {"fill", 0.100000001},
                         {"read_share", 0.25},
                         {"history_scanned", false},
                         {"history_boot_us", nullptr},
                         {"history_seq", nullptr}};
  EXPECT_EQ(Written(Record("/a/b")), expected);
}

TEST(DecisionLog, NoScoreIsNull) {
  DecisionRecord record = Record("/a");
  record.has_score = false;
  EXPECT_TRUE(Written(record)["score"].is_null());
  EXPECT_TRUE(Written(record)["threshold"].is_null());
}

TEST(DecisionLog, AnyLfnIsValidJson) {
  EXPECT_EQ(Written(Record("/a\"b\\c\n\t\x01\x7f"))["lfn"], "/a\"b\\c\n\t\x01\x7f");
  EXPECT_EQ(Written(Record("/\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"))["lfn"], "/\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(Written(Record("/\xff\xfe"))["lfn"], "/\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(Written(Record("/\xe2\x82"))["lfn"], "/\xef\xbf\xbd\xef\xbf\xbd");           // cut off
  EXPECT_EQ(Written(Record("/\xc0\xaf"))["lfn"], "/\xef\xbf\xbd\xef\xbf\xbd");           // overlong
  EXPECT_EQ(Written(Record("/\xed\xa0\x80"))["lfn"].get<std::string>().size(), 1u + 9);  // a surrogate
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const char bytes[] = {'/', static_cast<char>(a), static_cast<char>(b), 'x'};
      EXPECT_NO_THROW(Written(Record({bytes, 4}))) << a << " " << b;
    }
  }
}

TEST(DecisionLog, FloatsReadBackAsTheSameBits) {
  const std::vector<float> features = {0.1f, 1.0f / 3, 16777217.0f, 1e-30f, -1.0f, 3.4e38f};
  DecisionRecord record = Record("/a");
  record.features = features.data();
  record.feature_count = features.size();
  const json written = Written(record);
  for (size_t i = 0; i < features.size(); ++i) EXPECT_EQ(static_cast<float>(written["features"][i].get<double>()), features[i]);
}

class LogSocketTest : public ::testing::Test {
 protected:
  LogSocketTest() {
    socket_ = Bound("127.0.0.1", 0);
    sockaddr_in address{};
    socklen_t length = sizeof address;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  ~LogSocketTest() override { Close(); }
  static int Bound(const char* host, int port) {
    const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    ::inet_pton(AF_INET, host, &address.sin_addr);
    EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  void Close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  int socket_, port_;
  Counters counters_;
};

TEST_F(LogSocketTest, OneDatagramAnAnswer) {
  DecisionLog log({"127.0.0.1", port_, false}, &counters_);
  log.Send(Record("/a"));
  char buffer[2048];
  const ssize_t got = ::recv(socket_, buffer, sizeof buffer, 0);
  ASSERT_GT(got, 0);
  EXPECT_EQ(json::parse(std::string(buffer, static_cast<size_t>(got)))["seq"], 7);
  EXPECT_EQ(counters_.log_sent(), 1u);
}

// The longest LFN that XRootD takes, where each byte needs six, with features of the widest kind.
TEST_F(LogSocketTest, AnLfnOf4KilobytesThatIsAllEscapesIsSent) {
  DecisionLog log({"127.0.0.1", port_, true}, &counters_);
  const std::string lfn = "/" + std::string(4095, '\x01');
  const std::vector<float> features(112, -1.23456789e-38f);
  DecisionRecord record = Record(lfn);
  record.features = features.data();
  record.feature_count = features.size();
  log.Send(record);
  std::vector<char> buffer(65536);
  const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  ASSERT_GT(got, 0);
  const json sent = json::parse(std::string(buffer.data(), static_cast<size_t>(got)));
  EXPECT_EQ(sent["lfn"], lfn);
  EXPECT_EQ(sent["features"].size(), features.size());
  EXPECT_EQ(counters_.log_sent(), 1u);
}

TEST_F(LogSocketTest, WhatIsTooLargeIsDroppedAndCounted) {
  DecisionLog log({"127.0.0.1", port_, false}, &counters_);
  log.Send(Record(std::string(70000, 'x')));
  EXPECT_EQ(counters_.log_dropped(), 1u);
}

TEST_F(LogSocketTest, NobodyListeningIsCountedAndNeverBlocks) {
  Close();
  DecisionLog log({"127.0.0.1", port_, false}, &counters_);
  for (int i = 0; i < 100; ++i) log.Send(Record("/a"));
  EXPECT_EQ(counters_.log_sent() + counters_.log_dropped(), 100u);
  EXPECT_EQ(counters_.log_dropped(), 99u);  // that nobody got the last one is not known yet
}

TEST_F(LogSocketTest, PortZeroIsNoLog) {
  DecisionLog log({"nowhere.invalid", 0, false}, &counters_);
  log.Send(Record("/a"));
  EXPECT_EQ(counters_.log_sent() + counters_.log_dropped(), 0u);
}

TEST_F(LogSocketTest, AHostWithoutAddressIsSaidOnceAndItsDatagramsAreDropped) {
  testing::LogLines lines;
  DecisionLog log({"nowhere.invalid", 9933, false}, &counters_, lines.sink(), 0.005);
  log.Send(Record("/a"));
  EXPECT_EQ(counters_.log_dropped(), 1u);
  const int looked_up = testing::lookups;
  ASSERT_TRUE(testing::WaitUntil([&] { return testing::lookups >= looked_up + 3; }));
  EXPECT_EQ(lines.Count("[decision_log] host must be"), 1u);
  EXPECT_TRUE(lines.Has("nowhere.invalid"));
}

TEST_F(LogSocketTest, NobodyWaitsForTheResolver) {
  testing::lookup_ms = 5000;
  const int looked_up = testing::lookups;
  const auto start = std::chrono::steady_clock::now();
  {
    DecisionLog log({"slow.invalid", port_, false}, &counters_);
    log.Send(Record("/a"));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(4000));
    ASSERT_TRUE(testing::WaitUntil([&] { return testing::lookups > looked_up; }));
  }
  testing::lookup_ms = 0;
  EXPECT_EQ(counters_.log_dropped(), 1u);
}

// The name of a collector that starts after the cache does, or moves, as in Kubernetes.
TEST_F(LogSocketTest, AHostThatGetsItsAddressLateOrAnotherOneIsFollowed) {
  testing::LogLines lines;
  DecisionLog log({"collector.invalid", port_, false}, &counters_, lines.sink(), 0.005);
  log.Send(Record("/a"));
  EXPECT_EQ(counters_.log_sent(), 0u);
  ASSERT_TRUE(testing::WaitUntil([&] { return lines.Has("[decision_log]"); }));
  testing::SetHost("collector.invalid", "127.0.0.1");
  ASSERT_TRUE(testing::WaitUntil([&] {
    log.Send(Record("/a"));
    return counters_.log_sent() > 0;
  }));
  char buffer[2048];
  EXPECT_GT(::recv(socket_, buffer, sizeof buffer, 0), 0);
  EXPECT_TRUE(testing::WaitUntil([&] { return lines.Count("[decision_log]") == 2; }));  // away, there

  const int moved = Bound("127.0.0.9", port_);
  const uint64_t dropped = counters_.log_dropped();
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    while (!stop) {
      log.Send(Record("/a"));
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  testing::SetHost("collector.invalid", "127.0.0.9");
  EXPECT_TRUE(testing::WaitUntil([&] { return ::recv(moved, buffer, sizeof buffer, MSG_DONTWAIT) > 0; }));
  testing::SetHost("collector.invalid", "");
  stop = true;
  sender.join();
  EXPECT_EQ(counters_.log_dropped(), dropped);  // no send found the socket closed
  ::close(moved);
}

}  // namespace
}  // namespace smartcache

#include "smartcache/decider.hh"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using nlohmann::json;
using testing::WaitUntil;

constexpr int64_t kT0 = INT64_C(1760000000000000);

using Order = std::pair<int64_t, uint64_t>;  // boot_us, seq

// Receives while the records are still being sent, so that the socket's buffer need not hold all of them. A sender calls Allow before each.
class Reader {
 public:
  Reader(int socket, int count)
      : thread_([this, socket, count] {
          char buffer[65536];
          for (int i = 0; i < count; ++i) {
            const ssize_t got = ::recv(socket, buffer, sizeof buffer, 0);
            if (got <= 0) {  // none came for 10 s
              received_ = count;
              return;
            }
            ++received_;
            json record = json::parse(std::string(buffer, static_cast<size_t>(got)));
            const Order order{record["boot_us"], record["seq"]};
            records_[order] = std::move(record);
          }
        }) {}
  ~Reader() {
    if (thread_.joinable()) thread_.join();
  }
  void Allow() {
    constexpr int kUnderWay = 40;
    const int sent = sent_++;
    while (sent - received_ > kUnderWay) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  std::map<Order, json> Wait() {
    thread_.join();
    return records_;
  }

 private:
  std::atomic<int> sent_{0}, received_{0};
  std::map<Order, json> records_;
  std::thread thread_;  // last: it uses the above
};

class DeciderTest : public ::testing::Test {
 protected:
  DeciderTest() {
    socket_ = ::socket(AF_INET, SOCK_DGRAM, 0);
    const timeval patience{10, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), length), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    config_ = ParseConfig("[policy]\nexplore = 0\nnever_admit = [\"/never/\"]\n", "test");
    config_.decision_log.port = ntohs(address.sin_port);
    config_.decision_log.features = true;
  }
  ~DeciderTest() override { ::close(socket_); }

  void UseModel(testing::Server* server) {
    config_.model.bundle_dir = folder_.path().string();
    config_.model.endpoint_url = server->url();
    config_.model.poll_s = 0.01;
    config_.model.deadline_ms = 500;
    testing::Install(folder_.path(), "reuse_v1", testing::BundleJson("reuse_v1", MakeSchema(config_).hash));
  }
  std::unique_ptr<Decider> Make() { return std::make_unique<Decider>(config_, "host:1094", 5, 1, log_.sink()); }

  json NextRecord() {
    char buffer[65536];
    const ssize_t got = ::recv(socket_, buffer, sizeof buffer, 0);
    return json::parse(std::string(buffer, static_cast<size_t>(std::max<ssize_t>(0, got))));
  }

  static void Expect(const Decision& decision, Answer answer, Reason reason) {
    EXPECT_EQ(decision.answer, answer) << Text(decision.answer);
    EXPECT_EQ(decision.reason, reason) << Text(decision.reason);
  }

  int socket_;
  testing::TempFolder folder_;
  testing::LogLines log_;
  Config config_;
};

TEST_F(DeciderTest, WithoutAModelTheFallbackAnswersAndSaysWhy) {
  auto decider = Make();
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kNoModel);
  const json record = NextRecord();
  EXPECT_EQ(record["answer"], "admit");
  EXPECT_EQ(record["reason"], "no_model");
  EXPECT_EQ(record["seq"], 1);
  EXPECT_EQ(record["boot_us"], 5);
  EXPECT_TRUE(record["score"].is_null());
  Expect(decider->Decide(kT0, "/never/f", false, -1, -1), Answer::kBypass, Reason::kRule);
  Expect(decider->Decide(kT0, "/never/f", true, -1, -1), Answer::kAdmit, Reason::kCached);
}

TEST_F(DeciderTest, TheModelAnswersByItsScore) {
  testing::Server server;
  server.RespondJson("[0.7,0.2,0.1]");
  UseModel(&server);
  auto decider = Make();
  ASSERT_TRUE(WaitUntil([&] { return decider->model_name() == "reuse_v1"; }));
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kModel);
  const json record = NextRecord();
  EXPECT_NEAR(record["score"].get<double>(), 0.7, 1e-9);
  EXPECT_EQ(record["model"], "reuse_v1");
  EXPECT_EQ(record["features"].size(), MakeSchema(config_).names.size());
  server.RespondJson("[0.3,0.6,0.1]");
  Expect(decider->Decide(kT0, "/a/g", false, -1, -1), Answer::kBypass, Reason::kModel);
  Expect(decider->Decide(kT0, "/a/g", true, -1, -1), Answer::kAdmit, Reason::kCached);
  server.RespondJson("[0.05,0.9,0.05]");
  Expect(decider->Decide(kT0, "/a/g", true, -1, -1), Answer::kEvict, Reason::kModel);
  Expect(decider->Decide(kT0, "/a/h", false, -1, -1), Answer::kBypass, Reason::kModel);
  EXPECT_NE(decider->CountersText().find("smartcache_model_info{model=\"reuse_v1\"} 1"), std::string::npos);
}

// Outputs that a server computed in float32 may add up to 1.0000001; a probability in the log may not.
TEST_F(DeciderTest, AScoreIsAtMostOne) {
  testing::Server server;
  server.RespondJson("[1,0.0000001,0]");
  UseModel(&server);
  testing::Install(folder_.path(), "reuse_v2", testing::BundleJson("reuse_v2", MakeSchema(config_).hash, 2));
  auto decider = Make();
  ASSERT_TRUE(WaitUntil([&] { return decider->model_name() == "reuse_v2"; }));
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kModel);
  EXPECT_EQ(NextRecord()["score"].get<double>(), 1.0);
}

TEST_F(DeciderTest, ALogHostThatIsNotThereYetTurnsNothingOff) {
  config_.decision_log.host = "nowhere.invalid";
  auto decider = Make();
  Expect(decider->Decide(kT0, "/never/f", false, -1, -1), Answer::kBypass, Reason::kRule);
  EXPECT_TRUE(log_.Has("test: [decision_log] host"));
  EXPECT_NE(decider->CountersText().find("datagrams_total{result=\"dropped\"} 1"), std::string::npos);
}

TEST_F(DeciderTest, AFailingEndpointIsAReasonNotAFailure) {
  testing::Server server;
  server.RespondJson("[0.7,0.2,0.1]");
  UseModel(&server);
  config_.model.breaker_failures = 2;
  config_.model.breaker_open_s = 1000;
  auto decider = Make();
  ASSERT_TRUE(WaitUntil([&] { return decider->model_name() == "reuse_v1"; }));
  server.Respond("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kInvalidReply);
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kInvalidReply);
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kBreakerOpen);
}

TEST_F(DeciderTest, ExplorationHasTheFrequencyThatIsLogged) {
  testing::Server server;
  server.RespondJson("[0.7,0.2,0.1]");
  UseModel(&server);
  config_.policy.explore = 0.4;
  config_.decision_log.port = 0;
  auto decider = Make();
  ASSERT_TRUE(WaitUntil([&] { return decider->model_name() == "reuse_v1"; }));
  const int n = 3000;
  int bypassed = 0;
  for (int i = 0; i < n; ++i) bypassed += decider->Decide(kT0 + i, "/a/f", false, -1, -1).answer == Answer::kBypass;
  EXPECT_NEAR(static_cast<double>(bypassed) / n, 0.2, 0.04);
}

TEST_F(DeciderTest, TooLittleMemoryIsAMessage) {
  config_.history.memory_bytes = INT64_C(1) << 40;
  rlimit before;
  ::getrlimit(RLIMIT_AS, &before);
  const rlimit little{rlim_t{1} << 36, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &little), 0);
  std::string why;
  try {
    Make();
  } catch (const ConfigError& error) {
    why = error.what();
  } catch (const std::exception& other) {
    why = other.what();
  }
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(why.rfind("test: [history] memory_bytes must be", 0), 0u) << why;
  EXPECT_NE(why.find("1099511627776"), std::string::npos) << why;
}

// What makes a training set equal to what the plugin computed: replaying the log, in its order, gives the logged features. The order is
// (boot_us, seq), not time.
TEST_F(DeciderTest, ReplayingTheLogGivesTheLoggedFeaturesToTheLastBit) {
  auto decider = Make();
  constexpr int kThreads = 8, kEach = 150;
  Reader reader(socket_, kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        // Threads disagree about the time a little, as threads do, and one call in the middle finds the clock set back by an hour.
        const int64_t back = t == 0 && i == kEach / 2 ? INT64_C(3600000000) : 0;
        reader.Allow();
        // Some LFNs are no UTF-8, differently: what is logged of them is the same.
        const std::string odd = i % 5 == 2 ? std::string(1, static_cast<char>(0xE0 + i % 3)) : "";
        decider->Decide(kT0 + i * 1000 - t * 300 - back, "/s" + odd + "/" + std::to_string(i % 5) + "/f" + std::to_string((i * 7 + t) % 40),
                        i % 3 == 0, i % 4 ? -1 : i, static_cast<float>(i) / kEach);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  const std::map<Order, json> records = reader.Wait();
  ASSERT_EQ(records.size(), static_cast<size_t>(kThreads * kEach));
  const auto by_time = [](const auto& a, const auto& b) { return a.second["t_us"] < b.second["t_us"]; };
  ASSERT_FALSE(std::is_sorted(records.begin(), records.end(), by_time)) << "the clock was set back: the two orders differ";
  FeatureCore core(config_);
  std::vector<float> row(core.schema().names.size());
  for (const auto& [order, record] : records) {
    const std::string lfn = record["lfn"];
    const Open open{record["t_us"], lfn, record["on_disk"], record["size"], static_cast<float>(record["fill"].get<double>())};
    ParsedLfn parsed;
    core.Parse(lfn, &parsed);
    core.Observe(Sanitised(open), parsed, row.data());
    for (size_t i = 0; i < row.size(); ++i)
      ASSERT_EQ(static_cast<float>(record["features"][i].get<double>()), row[i]) << order.second << " " << core.schema().names[i];
  }
}

TEST_F(DeciderTest, SmallStepsBackOfTheClockAreStraightened) {
  auto decider = Make();
  decider->Decide(kT0, "/a/f", false, -1, -1);
  decider->Decide(kT0 - 1000, "/a/f", false, -1, -1);
  decider->Decide(kT0 - INT64_C(3600000000), "/a/f", false, -1, -1);
  EXPECT_EQ(NextRecord()["t_us"], kT0);
  EXPECT_EQ(NextRecord()["t_us"], kT0 + 1);
  EXPECT_EQ(NextRecord()["t_us"], kT0 - INT64_C(3600000000));
}

TEST_F(DeciderTest, CountersGoToTheTextfile) {
  config_.plugin_metrics.textfile = folder_ / "smartcache.prom";
  config_.plugin_metrics.interval_s = 0.01;
  auto decider = Make();
  decider->Decide(kT0, "/a/f", false, -1, -1);
  EXPECT_TRUE(WaitUntil([&] {
    return testing::ReadFile(folder_ / "smartcache.prom").find("smartcache_answers_total{answer=\"admit\",reason=\"no_model\"} 1") !=
           std::string::npos;
  }));
}

TEST_F(DeciderTest, ATextfileThatCannotBeWrittenIsSaidOnce) {
  config_.plugin_metrics.textfile = folder_ / "missing/smartcache.prom";
  config_.plugin_metrics.interval_s = 0.005;
  auto decider = Make();
  EXPECT_TRUE(WaitUntil([&] { return log_.Has("[plugin_metrics] textfile"); }));
  EXPECT_EQ(log_.Count("textfile"), 1u);
}

}  // namespace
}  // namespace smartcache

#include "smartcache/endpoint.hh"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "endpoint_connection.hh"
#include "testing/fixtures.hh"
#include "testing/system.hh"

namespace smartcache {
namespace {

using Millis = std::chrono::duration<double, std::milli>;
using std::chrono::steady_clock;
using testing::Server;
using testing::WaitUntil;

constexpr char kGood[] = "[0.25, 2.5e-1,0.5]";

class EndpointTest : public ::testing::Test {
 protected:
  EndpointTest() {
    config_.endpoint_url = server_.url();
    config_.deadline_ms = 5000;
    config_.breaker_failures = 1000;
    config_.breaker_open_s = 0.05;
    config_.connections = 4;
    testing::WriteFile(folder_ / "bundle.json", testing::BundleJson("reuse_v3", schema_.hash));
    bundle_ = ReadBundle(folder_.path().string(), schema_);
  }

  Prediction Ask(EndpointModel& model) {
    Prediction prediction;
    model.Predict(bundle_, features_.data(), Model::Clock::now(), &prediction);
    return prediction;
  }
  // The reason for no answer to one request, or kModel for an answer.
  Reason Result(EndpointModel& model) {
    const Prediction prediction = Ask(model);
    EXPECT_EQ(prediction.answered, prediction.reason() == Reason::kModel);
    return prediction.reason();
  }
  Reason ResultOf(const std::string& raw, bool close_after = false) {
    server_.Respond(raw, close_after);
    EndpointModel model(config_, features_.size());
    return Result(model);
  }
  Reason ResultOfJson(const std::string& body) {
    server_.RespondJson(body);
    EndpointModel model(config_, features_.size());
    return Result(model);
  }

  Server server_;
  testing::TempFolder folder_;
  const Schema schema_ = MakeSchema(ParseConfig("", "test"));
  ModelConfig config_ = ParseConfig("", "test").model;
  Bundle bundle_;
  std::vector<float> features_ = std::vector<float>(schema_.names.size(), 0.1f);
};

TEST_F(EndpointTest, AsksAsTheApiWantsAndReadsTheDistribution) {
  server_.RespondJson(kGood);
  EndpointModel model(config_, features_.size());
  features_[1] = 1.0f / 3;
  const Prediction prediction = Ask(model);
  ASSERT_TRUE(prediction.answered) << Text(prediction.reason());
  EXPECT_EQ(prediction.buckets, 3u);
  EXPECT_EQ(prediction.outputs[1], 0.25);
  const std::string request = server_.last_request();
  EXPECT_EQ(request.rfind("POST /json HTTP/1.1\r\n", 0), 0u);
  const auto body = nlohmann::json::parse(request.substr(request.find("\r\n\r\n") + 4));
  EXPECT_EQ(body["keys"], nlohmann::json(schema_.names));
  EXPECT_EQ(body["model"], "reuse_v3");
  EXPECT_EQ(body["values"].size(), features_.size());
  EXPECT_EQ(body["values"][1].get<float>(), features_[1]);
}

TEST_F(EndpointTest, KeepsItsConnection) {
  server_.RespondJson(kGood);
  EndpointModel model(config_, features_.size());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Result(model), Reason::kModel);
  EXPECT_EQ(server_.connections(), 1u);
}

// A server that starts writes to its environment, from another thread; whoever reads it then may end both.
TEST_F(EndpointTest, NoRequestReadsTheEnvironment) {
  EndpointModel model(config_, features_.size());
  Finding finding;
  const size_t before = testing::environment_reads;
  ::getenv("counted");
  ASSERT_EQ(testing::environment_reads, before + 1);
  server_.RespondJson(kGood);
  model.Warm(bundle_, &finding);
  EXPECT_EQ(Result(model), Reason::kModel);
  EXPECT_EQ(Result(model), Reason::kModel);
  EXPECT_EQ(testing::environment_reads, before + 1);
}

TEST_F(EndpointTest, AConnectionThatTheServerClosedIsOpenedAgain) {
  const std::string body = kGood;
  EndpointModel model(config_, features_.size());
  server_.Respond("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body, true);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Result(model), Reason::kModel);
}

TEST_F(EndpointTest, RefusesEveryReplyThatIsNotADistribution) {
  for (const char* body : {"",
                           "[]",
                           "[0.5,0.5]",
                           "[0.25,0.25,0.25,0.25]",
                           "[0.5,0.5,0.5]",
                           "[0.1,0.1,0.1]",
                           "[NaN,0.5,0.5]",
                           "[nan,0.5,0.5]",
                           "[Infinity,0,0]",
                           "[inf,0,0]",
                           "[-0.5,0.75,0.75]",
                           "[1.5,-0.25,-0.25]",
                           "[\"0.25\",0.25,0.5]",
                           "[0.25,0.25,0.5",
                           "[0.25,0.25,0.5]]",
                           "[0.25,0.25,0.5] x",
                           "[0.25 0.25 0.5]",
                           "[[0.25,0.25,0.5]]",
                           "{\"a\":1}",
                           "null",
                           "[null,0.5,0.5]",
                           "[,0.5,0.5]",
                           "[0.25,0.25,0.5,]",
                           "<html>",
                           "[1e400,0,0]"}) {
    EXPECT_EQ(ResultOfJson(body), Reason::kInvalidReply) << body;
  }
  EXPECT_EQ(ResultOfJson(" [ 0.25 ,\n0.25,0.5 ]\r\n"), Reason::kModel);
  EXPECT_EQ(ResultOfJson("[0,1,0]"), Reason::kModel);
  EXPECT_EQ(ResultOfJson("[0.2504,0.2503,0.5]"), Reason::kModel);  // float rounding of the server
  EXPECT_EQ(ResultOfJson(std::string(200000, ' ') + kGood), Reason::kInvalidReply);
}

TEST_F(EndpointTest, RefusesEveryStatusBut200) {
  for (const char* status : {"500 Internal Server Error", "404 Not Found", "429 Too Many Requests", "204 No Content", "201 Created"})
    EXPECT_EQ(ResultOf("HTTP/1.1 " + std::string(status) + "\r\nContent-Length: 18\r\n\r\n" + kGood, true), Reason::kInvalidReply)
        << status;
  const size_t before = server_.requests();
  EXPECT_EQ(ResultOf("HTTP/1.1 302 Found\r\nLocation: " + server_.url() + "/json\r\nContent-Length: 0\r\n\r\n"), Reason::kInvalidReply);
  EXPECT_EQ(server_.requests(), before + 1);
}

TEST_F(EndpointTest, HalfAnAnswerIsNone) {
  EXPECT_EQ(ResultOf("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[0.25,", true), Reason::kInvalidReply);
  EXPECT_NE(ResultOf("garbage\r\n\r\n", true), Reason::kModel);
  EXPECT_NE(ResultOf("HTTP/1.1 200 OK\r\nConte", true), Reason::kModel);
}

TEST_F(EndpointTest, NobodyThere) {
  int port;
  {
    const Server gone;
    port = gone.port();
  }
  config_.endpoint_url = "http://127.0.0.1:" + std::to_string(port);
  EndpointModel model(config_, features_.size());
  EXPECT_EQ(Result(model), Reason::kUnreachable);
}

TEST_F(EndpointTest, ANameWithoutAddressIsUnreachableAtOnce) {
  config_.endpoint_url = "http://no-such-host.invalid:8083";
  testing::lookup_ms = 300;
  double fastest = 1e9;
  {
    EndpointModel model(config_, features_.size());
    for (int i = 0; i < 3; ++i) {
      const auto start = steady_clock::now();
      EXPECT_EQ(Result(model), Reason::kUnreachable);
      fastest = std::min(fastest, Millis(steady_clock::now() - start).count());
    }
  }
  testing::lookup_ms = 0;
  EXPECT_LT(fastest, 250);
}

TEST_F(EndpointTest, ANameIsResolvedOffThePath) {
  server_.RespondJson(kGood);
  config_.endpoint_url = "http://localhost:" + std::to_string(server_.port());
  EndpointModel model(config_, features_.size());
  EXPECT_TRUE(WaitUntil([&] { return Result(model) == Reason::kModel; }));
}

// The deadline counts for every way of being slow.
class SlowEndpointTest : public EndpointTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(SlowEndpointTest, DeadlineHolds) {
  server_.Respond(GetParam());
  config_.deadline_ms = 10;
  EndpointModel model(config_, features_.size());
  double fastest = 1e9;
  // The fastest, since a loaded machine may deschedule any one of them.
  for (int i = 0; i < 20 || (i < 300 && fastest >= 11.0); ++i) {
    const auto start = steady_clock::now();
    EXPECT_EQ(Result(model), Reason::kDeadline);
    fastest = std::min(fastest, Millis(steady_clock::now() - start).count());
  }
  EXPECT_LT(fastest, 11.0);
  EXPECT_GT(fastest, 8.0);
}

INSTANTIATE_TEST_SUITE_P(All, SlowEndpointTest,
                         ::testing::Values("", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n[0.25,"));

TEST_F(EndpointTest, WhatTheOpenHasWaitedForBeforeCountsToo) {
  server_.Respond("");
  EndpointModel model(config_, features_.size());
  Prediction prediction;
  const auto start = steady_clock::now();
  model.Predict(bundle_, features_.data(), start - std::chrono::milliseconds(5000), &prediction);
  EXPECT_EQ(prediction.reason(), Reason::kDeadline);
  EXPECT_LT(Millis(steady_clock::now() - start).count(), 2500);
  EXPECT_EQ(server_.requests(), 0u);  // nothing was asked that nobody would wait for
}

// In the background one that cannot connect must not keep the others from their turn.
TEST_F(EndpointTest, OfTheIdleConnectionsThatWhichWaitedLongestIsNext) {
  const EndpointAddress address = AddressOf(server_.url());
  EndpointPool pool(config_, server_.url(), address);
  std::set<const EndpointConnection*> seen;
  for (size_t i = 0; i < pool.size(); ++i) {
    const EndpointPool::Lease lease = pool.TakeIdle([](const EndpointConnection&) { return true; });
    ASSERT_TRUE(lease);
    long status = 0;
    server_.Drop();
    lease.get()->Perform(1, 100, &status);
    EXPECT_TRUE(seen.insert(lease.get()).second) << "the same again";
  }
}

TEST_F(EndpointTest, WaitingForAConnectionCountsToo) {
  server_.Respond("");
  config_.connections = 1;
  config_.deadline_ms = 200;
  EndpointModel model(config_, features_.size());
  // Waiting for the connection takes most of the deadline; were it not counted, each of these would take nearly twice as long.
  double fastest = 1e9;
  for (size_t i = 0; i < 5; ++i) {
    std::thread busy([&] { Ask(model); });
    EXPECT_TRUE(WaitUntil([&] { return server_.requests() > 2 * i; }));
    const auto start = steady_clock::now();
    EXPECT_EQ(Result(model), Reason::kDeadline);
    fastest = std::min(fastest, Millis(steady_clock::now() - start).count());
    busy.join();
    EXPECT_EQ(Result(model), Reason::kDeadline);  // it is in order: this one is sent
    EXPECT_TRUE(WaitUntil([&] { return server_.requests() >= 2 * (i + 1); }));
  }
  EXPECT_LT(fastest, 300);
}

TEST_F(EndpointTest, BreakerSparesADeadEndpointAndComesBackByItself) {
  server_.Respond("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
  config_.breaker_failures = 3;
  EndpointModel model(config_, features_.size());
  Finding finding;
  EXPECT_EQ(model.Warm(bundle_, &finding), Model::Warmth::kLater);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Result(model), Reason::kInvalidReply);
  EXPECT_EQ(Result(model), Reason::kBreakerOpen);
  // Only probes reach it now.
  const size_t before = server_.requests();
  ASSERT_TRUE(WaitUntil([&] { return server_.requests() >= before + 2; }));
  EXPECT_EQ(Result(model), Reason::kBreakerOpen);
  server_.RespondJson(kGood);
  EXPECT_TRUE(WaitUntil([&] { return Result(model) == Reason::kModel; }));
}

// A reply that is too late for an open closes no breaker, or every few seconds the next opens would wait for nothing.
TEST_F(EndpointTest, AProbeThatIsTooLateForAnOpenDoesNotCloseTheBreaker) {
  server_.RespondJson(kGood);
  config_.breaker_failures = 1;
  config_.deadline_ms = 50;
  EndpointModel model(config_, features_.size());
  Finding finding;
  ASSERT_EQ(model.Warm(bundle_, &finding), Model::Warmth::kReady);
  server_.Delay(100);
  ASSERT_TRUE(WaitUntil([&] { return Result(model) == Reason::kBreakerOpen; }));
  const size_t before = server_.requests();
  while (server_.requests() < before + 3 * 7) ASSERT_EQ(Result(model), Reason::kBreakerOpen);  // 3 probes: 4 connections, 3 tries
  server_.Delay(0);
  EXPECT_TRUE(WaitUntil([&] { return Result(model) == Reason::kModel; }));
}

// Connecting is not for an open to wait for: TLS alone may take longer than the deadline.
TEST_F(EndpointTest, ConnectionsThatTheServerClosedAreOpenedAgainInTheBackground) {
  server_.RespondJson(kGood);
  EndpointModel model(config_, features_.size(), {}, {0.05});
  Finding finding;
  ASSERT_EQ(model.Warm(bundle_, &finding), Model::Warmth::kReady);
  ASSERT_EQ(server_.connections(), 4u);
  server_.Drop();
  EXPECT_TRUE(WaitUntil([&] { return server_.connections() == 8; }));
  EXPECT_EQ(Result(model), Reason::kModel);
  EXPECT_EQ(server_.connections(), 8u);
}

TEST_F(EndpointTest, FilesThatCannotBeReadAreSaidOnce) {
  testing::LogLines log;
  server_.RespondJson(kGood);
  config_.token_file = folder_ / "token";
  config_.ca_file = folder_ / "ca.pem";
  testing::WriteFile(config_.ca_file, "");
  EndpointModel model(config_, features_.size(), log.sink());
  EXPECT_EQ(log.Count("[model] token_file must be a file"), 1u);  // at start
  EXPECT_TRUE(log.Has(config_.token_file + "\" (No such file or directory)"));
  EXPECT_TRUE(log.Has(config_.ca_file + "\" (nothing in it)"));
  testing::WriteFile(config_.token_file, "secret\n");
  ASSERT_TRUE(WaitUntil([&] {
    Ask(model);
    return server_.last_request().find("Bearer secret\r\n") != std::string::npos;
  }));
  EXPECT_EQ(log.Count("token_file"), 1u);
  std::filesystem::remove(config_.token_file);
  EXPECT_TRUE(WaitUntil([&] { return log.Count("token_file") == 2; }));  // and later
  EXPECT_EQ(log.Count("ca_file"), 1u);
}

TEST_F(EndpointTest, WarmingOpensEveryConnectionAndChecksTheGoldenRows) {
  server_.RespondJson(kGood);
  EndpointModel model(config_, features_.size());
  bundle_.golden_inputs = {features_};
  bundle_.golden_outputs = {{0.25, 0.25, 0.5}};
  Finding finding;
  EXPECT_EQ(model.Warm(bundle_, &finding), Model::Warmth::kReady) << finding.why;
  EXPECT_EQ(server_.connections(), 4u);
  bundle_.golden_outputs = {{0.35, 0.15, 0.5}};
  EXPECT_EQ(model.Warm(bundle_, &finding), Model::Warmth::kWrong);
  EXPECT_NE(finding.why.find("golden row 0"), std::string::npos) << finding.why;
}

// What a server that takes several rows answers: the first feature is the second bucket's part.
std::string AnswersRows(const std::string& body) {
  const auto request = nlohmann::json::parse(body);
  const auto answer = [](const nlohmann::json& row) { return nlohmann::json{0, row[0], 1 - row[0].get<double>()}; };
  if (!request.contains("rows")) return answer(request["values"]).dump();
  auto all = nlohmann::json::array();
  for (const auto& row : request["rows"]) all.push_back(answer(row));
  return all.dump();
}

class EndpointRowsTest : public EndpointTest {
 protected:
  EndpointRowsTest() {
    for (int i = 0; i < 100; ++i) {
      rows_.push_back(features_);
      rows_.back()[0] = static_cast<float>(i) / 100;
    }
    bundle_.golden_inputs = {rows_[25], rows_[50], rows_[75]};
    bundle_.golden_outputs = {{0, 0.25, 0.75}, {0, 0.5, 0.5}, {0, 0.75, 0.25}};
    config_.deadline_ms = 5000;
  }
  // How many are answered as they should be, and the requests this took.
  std::pair<int, size_t> AskAll(EndpointModel& model) {
    std::vector<const float*> rows;
    for (const auto& row : rows_) rows.push_back(row.data());
    std::vector<Prediction> predictions(rows.size());
    const size_t before = server_.requests();
    model.PredictRows(bundle_, rows, predictions.data());
    int answered = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!predictions[i].answered) continue;
      EXPECT_EQ(predictions[i].buckets, 3u);
      EXPECT_NEAR(predictions[i].outputs[1], static_cast<double>(rows_[i][0]), 1e-9);
      ++answered;
    }
    return {answered, server_.requests() - before};
  }

  std::vector<std::vector<float>> rows_;
  Finding finding_;
};

TEST_F(EndpointRowsTest, AServerThatTakesSeveralRowsIsAskedForThemAtOnce) {
  server_.RespondTo(AnswersRows);
  EndpointModel model(config_, features_.size());
  EXPECT_EQ(model.rows_at_once(), 1u);
  ASSERT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  EXPECT_EQ(model.rows_at_once(), 64u);
  EXPECT_EQ(AskAll(model), std::make_pair(100, size_t{2}));
}

TEST_F(EndpointRowsTest, AStockServerIsAskedForEach) {
  server_.RespondTo([](const std::string& body) {
    auto request = nlohmann::json::parse(body);
    request.erase("rows");  // which it does not know
    return request.contains("values") ? AnswersRows(request.dump()) : "";
  });
  EndpointModel model(config_, features_.size());
  ASSERT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  EXPECT_EQ(model.rows_at_once(), 1u);
  EXPECT_EQ(AskAll(model), std::make_pair(100, size_t{100}));
}

TEST_F(EndpointRowsTest, AServerThatMixesUpRowsIsAskedForEach) {
  server_.RespondTo([](const std::string& body) {
    auto reply = nlohmann::json::parse(AnswersRows(body));
    if (reply[0].is_array()) std::reverse(reply.begin(), reply.end());
    return reply.dump();
  });
  EndpointModel model(config_, features_.size());
  ASSERT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  EXPECT_EQ(model.rows_at_once(), 1u);
}

TEST_F(EndpointRowsTest, AfterAReplyThatIsNoneEachRowIsARequestUntilTheGoldenRowsWereAnswered) {
  server_.RespondTo(AnswersRows);
  EndpointModel model(config_, features_.size());
  ASSERT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  server_.RespondTo([](const std::string& body) { return nlohmann::json::parse(body).contains("rows") ? "[[0,0,1]]" : AnswersRows(body); });
  EXPECT_EQ(AskAll(model), std::make_pair(36, size_t{37}));  // the first 64 are lost with their request
  EXPECT_EQ(AskAll(model), std::make_pair(100, size_t{100}));
  server_.RespondTo(AnswersRows);
  ASSERT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  EXPECT_EQ(AskAll(model), std::make_pair(100, size_t{2}));
}

TEST_F(EndpointRowsTest, OneReasonForAll) {
  server_.RespondTo(AnswersRows);
  EndpointModel model(config_, features_.size());
  ASSERT_EQ(model.Warm(bundle_, &finding_), Model::Warmth::kReady) << finding_.why;
  server_.Respond("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
  const float* rows[] = {rows_[1].data(), rows_[2].data()};
  Prediction predictions[2];
  model.PredictRows(bundle_, {rows, rows + 2}, predictions);
  for (const Prediction& each : predictions) {
    EXPECT_FALSE(each.answered);
    EXPECT_EQ(each.reason(), Reason::kInvalidReply);
  }
}

TEST_F(EndpointTest, SendsTheTokenAndFollowsItsChange) {
  server_.RespondJson(kGood);
  config_.token_file = folder_ / "token";
  testing::WriteFile(config_.token_file, "first\n");
  EndpointModel model(config_, features_.size());
  const auto sent = [&](const std::string& token) {
    Ask(model);
    return server_.last_request().find("Authorization: Bearer " + token + "\r\n") != std::string::npos;
  };
  EXPECT_TRUE(WaitUntil([&] { return sent("first"); }));
  testing::WriteFile(config_.token_file, "second\n");
  EXPECT_TRUE(WaitUntil([&] { return sent("second"); }));
}

TEST_F(EndpointTest, ManyThreadsShareFewConnections) {
  server_.RespondJson(kGood);
  config_.deadline_ms = 20000;  // what is tested is that all are answered, however loaded the machine is
  EndpointModel model(config_, features_.size());
  std::atomic<int> answered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) answered += Result(model) == Reason::kModel;
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(answered, 16 * 50);
  EXPECT_LE(server_.connections(), 4u);
}

}  // namespace
}  // namespace smartcache

#include "smartcache/decider.hh"

#include <sys/resource.h>

#include <filesystem>
#include <mutex>
#include <new>

#include "testing/decider_fixture.hh"

namespace smartcache {
namespace {

using nlohmann::json;
using testing::kT0;
using testing::WaitUntil;

using DeciderTest = testing::DeciderTest;

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

TEST_F(DeciderTest, ThePortfolioDecidesOnceTheRoomIsKnown) {
  config_.portfolio.enabled = true;
  config_.budget.unknown_size_bytes = 100;
  auto decider = Make();
  Expect(decider->Decide(kT0, "/a/1", false, -1, -1), Answer::kAdmit, Reason::kNoModel);
  EXPECT_FALSE(decider->votes());
  EXPECT_EQ(decider->Worth("/a/1"), std::nullopt);
  decider->Room(250);
  ASSERT_TRUE(WaitUntil([&] { return decider->votes(); }));
  EXPECT_TRUE(WaitUntil([&] { return log_.Has("portfolio: in use"); }));
  ASSERT_TRUE(WaitUntil([&] { return decider->Worth("/a/1").value_or(-1) > 0; }));  // what came before is told
  Expect(decider->Decide(kT0 + 1, "/a/1", true, 100, -1), Answer::kAdmit, Reason::kVote);
  Expect(decider->Decide(kT0 + 2, "/a/large", true, 1000, -1), Answer::kAdmit, Reason::kCached);  // there is no room for it
  Expect(decider->Decide(kT0 + 3, "/a/large", false, -1, -1), Answer::kBypass, Reason::kVote);
  // Rules come first, and what is never stored takes no room there.
  Expect(decider->Decide(kT0 + 4, "/never/f", false, -1, -1), Answer::kBypass, Reason::kRule);
  EXPECT_EQ(decider->Worth("/never/f"), -1.0);
  const std::string page = decider->CountersText();
  EXPECT_NE(page.find("smartcache_portfolio_ready 1\n"), std::string::npos);
  EXPECT_NE(page.find("smartcache_portfolio_weight{cache=\"lru\"}"), std::string::npos);
  EXPECT_NE(page.find("smartcache_portfolio_files 2\n"), std::string::npos);
  EXPECT_NE(page.find("smartcache_portfolio_room_bytes 250\n"), std::string::npos);
  EXPECT_NE(page.find("smartcache_portfolio_unsaid_opens_total 1\n"), std::string::npos);
  EXPECT_NE(page.find("smartcache_portfolio_lost_opens_total 0\n"), std::string::npos);
}

TEST_F(DeciderTest, TheModelIsOneOfThePortfolioAndItsScoreIsLogged) {
  testing::Server server;
  server.RespondJson("[0.7,0.2,0.1]");
  UseModel(&server);
  config_.portfolio.enabled = true;
  auto decider = Make();
  decider->Room(1000);
  ASSERT_TRUE(WaitUntil([&] { return decider->model_name() == "reuse_v1" && decider->votes(); }));
  Expect(decider->Decide(kT0, "/a/f", true, 100, -1), Answer::kAdmit, Reason::kVote);
  const json record = NextRecord();
  EXPECT_EQ(record["reason"], "vote");
  EXPECT_NEAR(record["score"].get<double>(), 0.7, 1e-9);
  EXPECT_EQ(record["model"], "reuse_v1");
  EXPECT_NE(decider->CountersText().find("smartcache_portfolio_weight{cache=\"model\"}"), std::string::npos);
}

TEST_F(DeciderTest, ThePredictionIsRememberedUntilTheNextOpen) {
  testing::Server server;
  server.RespondJson("[0.7,0.2,0.1]");
  UseModel(&server);
  auto decider = Make();
  ASSERT_TRUE(WaitUntil([&] { return decider->model_name() == "reuse_v1"; }));
  History::Forecast forecast;
  double base_rate;
  EXPECT_FALSE(decider->Recall("/a/f", &forecast, &base_rate));
  decider->Decide(kT0, "/a/f", false, -1, -1);
  ASSERT_TRUE(decider->Recall("/a/f", &forecast, &base_rate));
  EXPECT_EQ(forecast.last_us, kT0);
  ASSERT_EQ(forecast.buckets, 3u);
  EXPECT_NEAR(forecast.outputs[0], 0.7, 2e-5);
  EXPECT_EQ(forecast.model_id, decider->bundle()->edges_id);
  EXPECT_EQ(decider->bundle()->bucket_edges_s, (std::vector<double>{3600, 86400}));
  // This open is not answered by the model: what it said of the one before no longer holds.
  server.Respond("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
  decider->Decide(kT0 + 10, "/a/f", false, -1, -1);
  ASSERT_TRUE(decider->Recall("/a/f", &forecast, &base_rate));
  EXPECT_EQ(forecast.last_us, kT0 + 10);
  EXPECT_EQ(forecast.buckets, 0u);
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

TEST_F(DeciderTest, OverTheBudgetNothingIsStoredAndNoModelAsked) {
  testing::Server server;
  server.RespondJson("[0.7,0.2,0.1]");
  UseModel(&server);
  config_.policy.always_admit = {"/always/"};
  config_.policy.explore = 1;
  config_.budget = {1, 1, 0, 1000};
  auto decider = Make();
  ASSERT_TRUE(WaitUntil([&] { return decider->model_name() == "reuse_v1"; }));
  Expect(decider->Decide(kT0, "/always/f", false, -1, -1), Answer::kAdmit, Reason::kRule);  // costs 1000: the budget is spent
  const size_t asked = server.requests();
  for (int i = 0; i < 20; ++i) Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kBypass, Reason::kBudget);
  EXPECT_EQ(server.requests(), asked);
  Expect(decider->Decide(kT0, "/always/f", false, -1, -1), Answer::kAdmit, Reason::kRule);
  Expect(decider->Decide(kT0, "/a/f", true, 10, -1), Answer::kAdmit, Reason::kModel);  // on disk: never bypassed
  EXPECT_EQ(decider->budget()->state().charged_bytes, 2000u);
  NextRecord();
  const json record = NextRecord();
  EXPECT_EQ(record["reason"], "budget");
  EXPECT_EQ(record["probability"], 1);
  EXPECT_TRUE(record["score"].is_null());
}

TEST_F(DeciderTest, AFullCacheAsksForMore) {
  testing::Server server;
  server.RespondJson("[0.55,0.35,0.1]");  // admit is 0.5
  UseModel(&server);
  auto decider = Make();
  ASSERT_TRUE(WaitUntil([&] { return decider->model_name() == "reuse_v1"; }));
  Expect(decider->Decide(kT0, "/a/f", false, -1, 0.5f), Answer::kAdmit, Reason::kModel);
  Expect(decider->Decide(kT0, "/a/f", false, -1, 0.98f), Answer::kBypass, Reason::kModel);
  Expect(decider->Decide(kT0, "/a/f", true, -1, 0.98f), Answer::kAdmit, Reason::kCached);
  EXPECT_NEAR(NextRecord()["threshold"].get<double>(), 0.5, 1e-9);
  EXPECT_NEAR(NextRecord()["threshold"].get<double>(), 2.0 / 3, 1e-6);
}

TEST_F(DeciderTest, TracedIsOnlyWhatIsOn) {
  testing::LogLines lines;
  const Trace::Sink sink = [&, write = lines.sink()](Concern, const std::string& text) { write(text); };
  Decider quiet(config_, "host:1094", 5, 1, log_.sink(), Trace(static_cast<unsigned>(Concern::kModel), sink));
  for (int i = 0; i < 100; ++i) quiet.Decide(kT0 + i, "/a/f", false, -1, -1);
  EXPECT_FALSE(lines.Has(""));
  EXPECT_FALSE(log_.Has(""));
  Decider loud(config_, "host:1094", 5, 1, log_.sink(), Trace(static_cast<unsigned>(Concern::kDecisions), sink));
  loud.Decide(kT0, "/never/f\nadmit \"x\"", false, 17, 0.5f);
  EXPECT_EQ(lines.Count(""), 1u);
  EXPECT_TRUE(lines.Has(R"("/never/f\u000aadmit \"x\"" bypass rule probability 1 size 17 fill 0.5 )"));
}

// Whatever fails on the way, an open is answered, counted once, and a record that was not made is counted as dropped.
TEST_F(DeciderTest, WhatFailsIsAnsweredAndCountedOnce) {
  const Trace::Sink fails = [](Concern, const std::string&) { throw std::bad_alloc(); };
  Decider decider(config_, "host:1094", 5, 1, log_.sink(), Trace(static_cast<unsigned>(Concern::kDecisions), fails));
  Expect(decider.Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kError);
  const std::string counters = decider.CountersText();
  EXPECT_EQ(decider.counters()->answers(Answer::kAdmit, Reason::kError), 1u);
  EXPECT_EQ(decider.counters()->answers(Answer::kAdmit, Reason::kNoModel), 0u);
  EXPECT_NE(counters.find("datagrams_total{result=\"sent\"} 0"), std::string::npos);
  EXPECT_NE(counters.find("datagrams_total{result=\"dropped\"} 1"), std::string::npos);
}

TEST_F(DeciderTest, ALogHostThatIsNotThereYetTurnsNothingOff) {
  config_.decision_log.host = "nowhere.invalid";
  auto decider = Make();
  Expect(decider->Decide(kT0, "/never/f", false, -1, -1), Answer::kBypass, Reason::kRule);
  EXPECT_TRUE(WaitUntil([&] { return log_.Has("test: [decision_log] host"); }));
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

TEST_F(DeciderTest, TheEmbeddedCopyAnswersInPlaceOfTheEndpointAndSaysWhy) {
  testing::Server server;
  server.RespondJson("[0.7,0.2,0.1]");
  UseModel(&server);
  testing::Install(folder_.path(), "reuse_v2", testing::BundleJson("reuse_v2", MakeSchema(config_).hash), "",
                   testing::ConstantWeights(MakeSchema(config_).names.size(), {0.3, 0.6, 0.1}));
  config_.model.breaker_failures = 2;
  config_.model.breaker_open_s = 1000;
  auto decider = Make();
  ASSERT_TRUE(WaitUntil([&] { return decider->model_name() == "reuse_v2"; }));
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kModel);
  server.Respond("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
  for (const Reason why : {Reason::kInvalidReply, Reason::kInvalidReply, Reason::kBreakerOpen, Reason::kBreakerOpen}) {
    NextRecord();
    Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kBypass, why);
  }
  const json record = NextRecord();
  EXPECT_EQ(record["reason"], "breaker_open");
  EXPECT_NEAR(record["score"].get<double>(), 0.3, 1e-6);
  EXPECT_EQ(record["model"], "reuse_v2");
  const std::string page = decider->CountersText();
  for (const char* sample : {"{role=\"champion\",source=\"endpoint\",result=\"answered\"} 1\n",
                             "{role=\"champion\",source=\"endpoint\",result=\"invalid_reply\"} 2\n",
                             "{role=\"champion\",source=\"endpoint\",result=\"breaker_open\"} 2\n",
                             "{role=\"champion\",source=\"embedded\",result=\"answered\"} 4\n", "breaker_open{role=\"champion\"} 1\n"})
    EXPECT_NE(page.find(sample), std::string::npos) << sample << page;
}

TEST_F(DeciderTest, AModelNeedsNoEndpoint) {
  testing::Server server;  // nobody asks it
  for (const bool no_url : {true, false}) {
    UseModel(&server);
    config_.model.use = no_url ? ModelUse::kEndpointThenEmbedded : ModelUse::kEmbedded;
    if (no_url) config_.model.endpoint_url.clear();
    testing::Install(folder_.path(), "reuse_v2", testing::BundleJson("reuse_v2", MakeSchema(config_).hash), "",
                     testing::ConstantWeights(MakeSchema(config_).names.size(), {0.3, 0.6, 0.1}));
    auto decider = Make();
    ASSERT_TRUE(WaitUntil([&] { return decider->model_name() == "reuse_v2"; }));
    Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kBypass, Reason::kModel);
    EXPECT_EQ(decider->counters()->asked(Role::kChampion, Source::kEmbedded, Reason::kModel), 1u);
  }
  EXPECT_EQ(server.connections(), 0u);
}

// What waiting for the endpoint and then asking the copy take together.
TEST_F(DeciderTest, TheDeadlineHoldsWithTheCopyToo) {
  testing::Server server;
  server.RespondJson("[0.7,0.2,0.1]");
  UseModel(&server);
  config_.model.deadline_ms = 10;
  config_.model.breaker_failures = 1000000;
  testing::Install(folder_.path(), "reuse_v2", testing::BundleJson("reuse_v2", MakeSchema(config_).hash), "",
                   testing::ConstantWeights(MakeSchema(config_).names.size(), {0.3, 0.6, 0.1}));
  auto decider = Make();
  ASSERT_TRUE(WaitUntil([&] { return decider->Decide(kT0, "/a/f", false, -1, -1).reason == Reason::kModel; }));
  server.Respond("");
  double fastest = 1e9;
  // The fastest, since a loaded machine may deschedule any one of them.
  for (int i = 0; i < 20 || (i < 300 && fastest >= 11.0); ++i) {
    const auto start = std::chrono::steady_clock::now();
    Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kBypass, Reason::kDeadline);
    fastest = std::min(fastest, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  EXPECT_LT(fastest, 11.0);
  EXPECT_GT(fastest, 8.0);
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
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer itself needs more address space than this test leaves";
#endif
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
TEST_F(DeciderTest, TurnedOffEverythingIsAdmittedAndTheHistoryGoesOn) {
  config_.policy.off_file = folder_ / "off";
  config_.policy.never_admit = {"/a/"};
  testing::WriteFile(config_.policy.off_file, "");
  auto decider = Make();
  EXPECT_TRUE(decider->off());
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kOff);
  std::filesystem::remove(config_.policy.off_file);
  ASSERT_TRUE(WaitUntil([&] { return !decider->off(); }));
  Expect(decider->Decide(kT0 + 1, "/a/f", false, -1, -1), Answer::kBypass, Reason::kRule);
  EXPECT_EQ(NextRecord()["reason"], "off");
  EXPECT_EQ(NextRecord()["features"][0], 1.0);  // file_seen: the open before was recorded
}

TEST_F(DeciderTest, AFileOnDiskIsDecidedInTheBackground) {
  testing::Server server;
  server.RespondJson("[0.05,0.05,0.9]");
  UseModel(&server);
  std::mutex mutex;
  std::vector<std::string> told;
  Decider decider(config_, "host:1094", 5, 1, log_.sink(), {}, [&](const std::string& lfn, const Decision& decision) {
    const std::lock_guard<std::mutex> lock(mutex);
    told.push_back(lfn + " " + Text(decision.answer) + " " + Text(decision.reason));
  });
  ASSERT_TRUE(WaitUntil([&] { return decider.model_name() == "reuse_v1"; }));
  ASSERT_TRUE(decider.DecideLater(kT0, std::string("/a/f"), 1000, 0.5f, 0.25f));
  const json record = NextRecord();
  EXPECT_EQ(record["t_us"], kT0);
  EXPECT_EQ(record["lfn"], "/a/f");
  EXPECT_EQ(record["on_disk"], true);
  EXPECT_EQ(record["size"], 1000);
  EXPECT_EQ(record["answer"], "evict");
  ASSERT_TRUE(WaitUntil([&] {
    const std::lock_guard<std::mutex> lock(mutex);
    return told == std::vector<std::string>{"/a/f evict model"};
  }));
  EXPECT_TRUE(WaitUntil([&] { return decider.CountersText().find("smartcache_decisions_waiting 0\n") != std::string::npos; }));
}

TEST_F(DeciderTest, ManyInTheBackgroundAreAskedForAtOnceAndDecidedAsOneByOne) {
  testing::Server server;
  std::atomic<int> rows{0};
  server.RespondTo([&](const std::string& body) {
    const auto request = json::parse(body);
    const json answer = {0.05, 0.05, 0.9};
    if (!request.contains("rows")) return answer.dump();
    rows += static_cast<int>(request["rows"].size());
    return json(std::vector<json>(request["rows"].size(), answer)).dump();
  });
  UseModel(&server);
  config_.model.deadline_ms = 5000;
  config_.policy.never_admit = {"/never/"};
  std::atomic<int> told{0};
  Decider decider(config_, "host:1094", 5, 1, log_.sink(), {}, [&](const std::string&, const Decision&) { ++told; });
  ASSERT_TRUE(WaitUntil([&] { return decider.model_name() == "reuse_v1"; }));
  rows = 0;
  const size_t before = server.requests();
  constexpr int kOpens = 200, kRound = 40;  // a round's records are within what a socket keeps
  std::vector<json> records;
  for (int i = 0; i < kOpens; ++i) {
    ASSERT_TRUE(decider.DecideLater(kT0 + i, (i % 4 == 0 ? "/never/" : "/a/") + std::to_string(i % kRound), 1000, 0.5f, 0.25f));
    for (int k = 0; k < kRound && i % kRound == kRound - 1; ++k) records.push_back(NextRecord());
  }
  ASSERT_TRUE(WaitUntil([&] { return told == kOpens; }));
  EXPECT_LT(server.requests() - before, 40u);
  EXPECT_GT(rows, 100);
  EXPECT_LE(rows, kOpens * 3 / 4);
  std::sort(records.begin(), records.end(), [](const json& a, const json& b) { return a["seq"] < b["seq"]; });
  FeatureCore core(config_);
  ExpectReplayed(records, &core);
  for (const json& record : records) {
    const bool ruled = record["lfn"].get<std::string>().rfind("/never/", 0) == 0;
    EXPECT_EQ(record["reason"], ruled ? "cached" : "model");
    EXPECT_EQ(record["answer"], ruled ? "admit" : "evict");
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

TEST_F(DeciderTest, TheSideTableThatAnAnswerUsedIsLoggedAndGivesTheSameFeatures) {
  std::map<int64_t, std::unique_ptr<SideTable>> made;
  config_.side_table.file = folder_ / "side.json";
  config_.side_table.poll_s = 0.01;
  const auto publish = [&](int64_t version) {
    const std::string text = testing::SideTableText(version, kT0 + version,
                                                    {testing::SideTableRow("/s/0", 2 * version, kT0), testing::SideTableRow("/s/1", 4, 9)});
    made[version] = std::make_unique<SideTable>(text, "test");
    testing::WriteFile(folder_ / "next", text);
    std::filesystem::rename(folder_ / "next", folder_ / "side.json");
  };
  auto decider = Make();
  std::vector<json> records;
  Opens(decider.get(), 0, 12, &records);
  EXPECT_FALSE(records.back().contains("side_table"));
  EXPECT_NE(decider->CountersText().find("smartcache_side_table_datasets 0"), std::string::npos);
  for (const int64_t version : {3, 4}) {
    publish(version);
    ASSERT_TRUE(WaitUntil([&] { return decider->side_table() && decider->side_table()->version() == version; }));
    Opens(decider.get(), static_cast<int>(12 * version), 12, &records);
    EXPECT_EQ(records.back()["side_table"], version);
  }
  std::string counters;
  EXPECT_TRUE(WaitUntil([&] {
    counters = decider->CountersText();
    return counters.find("smartcache_side_table_loads_total{result=\"done\"} 2") != std::string::npos;
  }));
  for (const char* sample : {"smartcache_side_table_datasets 2", "smartcache_side_table_timestamp_seconds 1760000000"})
    EXPECT_NE(counters.find(sample), std::string::npos) << sample;
  const std::vector<std::string> names = MakeSchema(config_).names;
  const auto at = static_cast<size_t>(std::find(names.begin(), names.end(), "federation_known") - names.begin());
  std::vector<float> known;
  for (const json& record : records) known.push_back(record["features"][at].get<float>());
  EXPECT_EQ(std::count(known.begin(), known.end(), -1), 12);
  EXPECT_EQ(std::count(known.begin(), known.end(), 1), 16) << "of three datasets the table has two";
  FeatureCore core(config_);
  std::map<int64_t, const SideTable*> tables;
  for (const auto& [version, table] : made) tables[version] = table.get();
  ExpectReplayed(records, &core, tables);
}

}  // namespace
}  // namespace smartcache

// A challenger beside the champion: canary and shadow, by its copy and by the endpoint.
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "smartcache/decider.hh"
#include "testing/decider_fixture.hh"

namespace smartcache {
namespace {

using nlohmann::json;
using testing::kT0;
using testing::WaitUntil;

using DeciderTest = testing::DeciderTest;

// Beside a champion whose embedded copy wants everything, a challenger that wants nothing.
class ChallengerTest : public DeciderTest {
 protected:
  ChallengerTest() {
    config_.model.bundle_dir = folder_.path().string();
    config_.model.use = ModelUse::kEmbedded;
    config_.model.poll_s = 0.01;
    Put(folder_.path(), "reuse_v1", {0.7, 0.2, 0.1});
  }
  void Challenge(const std::string& name, const std::vector<double>& outputs) { Put(folder_.path() / "challenger", name, outputs); }
  void Put(const std::filesystem::path& folder, const std::string& name, const std::vector<double>& outputs) {
    const Schema schema = MakeSchema(config_);
    std::filesystem::create_directories(folder);
    testing::Install(folder, name, testing::BundleJson(name, schema.hash), "", testing::ConstantWeights(schema.names.size(), outputs));
  }
  std::unique_ptr<Decider> MakeWith(double canary_share, bool shadow) {
    config_.challenger = {canary_share, shadow};
    auto decider = Make();
    EXPECT_TRUE(WaitUntil([&] { return decider->model_name() == "reuse_v1"; }));
    return decider;
  }
  static bool Tries(const Decider& decider, const std::string& name) {
    return WaitUntil([&] { return decider.challenger() && decider.challenger()->name == name; });
  }
};

TEST_F(ChallengerTest, TheCanaryIsAShareOfTheFilesAndAlwaysTheSame) {
  Challenge("reuse_v2", {0.3, 0.3, 0.4});
  auto decider = MakeWith(0.25, false);
  ASSERT_TRUE(Tries(*decider, "reuse_v2"));
  constexpr int kFiles = 2000;
  std::set<int> canary;
  for (int i = 0; i < kFiles; ++i) {
    const Decision decision = decider->Decide(kT0 + i, "/a/" + std::to_string(i), false, -1, -1);
    const json record = NextRecord();
    const bool challenged = record["model"] == "reuse_v2";
    if (challenged) canary.insert(i);
    ASSERT_EQ(decision.answer, challenged ? Answer::kBypass : Answer::kAdmit);
    ASSERT_EQ(decision.reason, Reason::kModel);
    ASSERT_NEAR(record["score"].get<double>(), challenged ? 0.3 : 0.7, 1e-6);
    ASSERT_FALSE(record.contains("challenger_model"));
  }
  EXPECT_NEAR(static_cast<double>(canary.size()) / kFiles, 0.25, 0.04);
  auto another = MakeWith(0.25, false);
  ASSERT_TRUE(Tries(*another, "reuse_v2"));
  for (int i = 0; i < kFiles; ++i) {
    another->Decide(kT0 + i, "/a/" + std::to_string(i), false, -1, -1);
    ASSERT_EQ(NextRecord()["model"] == "reuse_v2", canary.count(i) == 1) << i;
  }
}

TEST_F(ChallengerTest, TheShadowAnswersWithoutEffect) {
  Challenge("reuse_v2", {0.05, 0.3, 0.65});
  auto decider = MakeWith(0, true);
  ASSERT_TRUE(Tries(*decider, "reuse_v2"));
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kModel);
  json record = NextRecord();
  EXPECT_EQ(record["model"], "reuse_v1");
  EXPECT_EQ(record["challenger_model"], "reuse_v2");
  EXPECT_EQ(record["challenger_answer"], "bypass");
  EXPECT_NEAR(record["challenger_score"].get<double>(), 0.05, 1e-6);
  Expect(decider->Decide(kT0 + 1, "/a/f", true, 10, -1), Answer::kAdmit, Reason::kModel);
  EXPECT_EQ(NextRecord()["challenger_answer"], "evict");
  // What is remembered for the ranking is the champion's.
  History::Forecast forecast;
  double base_rate;
  ASSERT_TRUE(decider->Recall("/a/f", &forecast, &base_rate));
  EXPECT_NEAR(forecast.outputs[0], 0.7, 1e-3);
  // No model is asked where a rule decides: not the challenger either.
  decider->Decide(kT0 + 2, "/never/f", false, -1, -1);
  EXPECT_FALSE(NextRecord().contains("challenger_model"));
  EXPECT_NE(decider->CountersText().find("smartcache_challenger_info{model=\"reuse_v2\"} 1"), std::string::npos);
}

TEST_F(ChallengerTest, ChallengersComeAndGo) {
  auto decider = MakeWith(1, false);
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kModel);
  Challenge("reuse_v2", {0.3, 0.3, 0.4});
  ASSERT_TRUE(Tries(*decider, "reuse_v2"));
  Expect(decider->Decide(kT0 + 1, "/a/f", false, -1, -1), Answer::kBypass, Reason::kModel);
  Challenge("reuse_v3", {0.6, 0.3, 0.1});
  ASSERT_TRUE(Tries(*decider, "reuse_v3"));
  Expect(decider->Decide(kT0 + 2, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kModel);
  std::filesystem::remove(folder_.path() / "challenger" / "current");
  ASSERT_TRUE(WaitUntil([&] { return !decider->challenger(); }));
  Expect(decider->Decide(kT0 + 3, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kModel);
  EXPECT_EQ(log_.Count("challenger reuse_v3 is tried"), 1u);
  EXPECT_EQ(log_.Count("challenger reuse_v3 is not tried any more"), 1u);
}

TEST_F(ChallengerTest, ADamagedChallengerIsSaidOnceAndNotTried) {
  Challenge("reuse_v2", {0.3, 0.3, 0.4});
  testing::WriteFile(folder_.path() / "challenger" / "reuse_v2" / "weights.json", "{");
  auto decider = MakeWith(1, true);
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("weights.json"); }));
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kModel);
  EXPECT_FALSE(NextRecord().contains("challenger_model"));
  EXPECT_EQ(log_.Count("weights.json"), 1u);
}

TEST_F(ChallengerTest, NobodyIsTriedUnlessAskedFor) {
  Challenge("reuse_v2", {0.3, 0.3, 0.4});
  auto decider = MakeWith(0, false);
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kModel);
  EXPECT_EQ(decider->challenger(), nullptr);
  EXPECT_FALSE(NextRecord().contains("challenger_model"));
}

// The same where an endpoint is asked first. It answers each model as it is told to, and the copies as above.
class ChallengerAtTheEndpointTest : public ChallengerTest {
 protected:
  ChallengerAtTheEndpointTest() {
    config_.model.use = ModelUse::kEndpointThenEmbedded;
    config_.model.endpoint_url = server_.url();
    config_.model.deadline_ms = 5000;
    answers_ = {{"reuse_v1", {0.8, 0.1, 0.1}}, {"reuse_v2", {0.2, 0.4, 0.4}}};
    Challenge("reuse_v2", {0.3, 0.3, 0.4});
    server_.RespondTo([this](const std::string& body) {
      const json request = json::parse(body);
      const std::string name = request["model"];
      const std::lock_guard<std::mutex> lock(mutex_);
      ++asked_[name];
      const json answer = answers_[name];
      return request.contains("rows") ? json(std::vector<json>(request["rows"].size(), answer)).dump() : answer.dump();
    });
  }
  void Answer(const std::string& name, const std::vector<double>& outputs) {
    const std::lock_guard<std::mutex> lock(mutex_);
    answers_[name] = outputs;
  }
  int asked(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return asked_[name];
  }
  // Both are checked: the endpoint is asked for either.
  std::unique_ptr<Decider> MakeReady(double canary_share, bool shadow) {
    auto decider = MakeWith(canary_share, shadow);
    EXPECT_TRUE(Tries(*decider, "reuse_v2"));
    EXPECT_TRUE(WaitUntil([&] { return log_.Has("model reuse_v1 is in use") && log_.Has("challenger reuse_v2 is tried"); }));
    return decider;
  }

  testing::Server server_;
  std::mutex mutex_;
  std::map<std::string, std::vector<double>> answers_;
  std::map<std::string, int> asked_;
};

TEST_F(ChallengerAtTheEndpointTest, TheCanaryIsAnsweredByTheEndpoint) {
  auto decider = MakeReady(0.5, false);
  std::set<std::string> models;
  for (int i = 0; i < 40; ++i) {
    const int champion = asked("reuse_v1"), challenger = asked("reuse_v2");
    const Decision decision = decider->Decide(kT0 + i, "/a/" + std::to_string(i), false, -1, -1);
    const json record = NextRecord();
    const bool canary = record["model"] == "reuse_v2";
    models.insert(record["model"]);
    Expect(decision, canary ? Answer::kBypass : Answer::kAdmit, Reason::kModel);
    EXPECT_NEAR(record["score"].get<double>(), canary ? 0.2 : 0.8, 1e-9);
    // One question an open.
    EXPECT_EQ(asked("reuse_v1") - champion, canary ? 0 : 1);
    EXPECT_EQ(asked("reuse_v2") - challenger, canary ? 1 : 0);
  }
  EXPECT_EQ(models, (std::set<std::string>{"reuse_v1", "reuse_v2"}));
}

TEST_F(ChallengerAtTheEndpointTest, AShadowCostsTheOpenNoSecondQuestion) {
  auto decider = MakeReady(0, true);
  const int before = asked("reuse_v2");
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kModel);
  EXPECT_NEAR(NextRecord()["challenger_score"].get<double>(), 0.3, 1e-6);
  EXPECT_EQ(asked("reuse_v2"), before);
  EXPECT_EQ(before, 0);
}

// What the challenger does at the endpoint opens no breaker of the champion's, and its files are answered by its copy.
TEST_F(ChallengerAtTheEndpointTest, AChallengerThatFailsThereIsAnsweredByItsCopyAndCostsTheChampionNothing) {
  config_.model.breaker_failures = 2;
  config_.model.breaker_open_s = 3600;
  auto decider = MakeReady(0.5, false);
  Answer("reuse_v2", {});  // no distribution
  std::map<std::string, uint64_t> said;
  for (int i = 0; i < 60; ++i) {
    decider->Decide(kT0 + i, "/a/" + std::to_string(i), false, -1, -1);
    const json record = NextRecord();
    ++said[record["model"].get<std::string>() + " " + record["reason"].get<std::string>()];
    EXPECT_NEAR(record["score"].get<double>(), record["model"] == "reuse_v2" ? 0.3 : 0.8, 1e-6);
  }
  // Each has counters of its own: the champion's say nothing of the challenger's troubles.
  const Counters& counters = *decider->counters();
  EXPECT_EQ(counters.asked(Role::kChampion, Source::kEndpoint, Reason::kModel), said["reuse_v1 model"]);
  EXPECT_EQ(counters.asked(Role::kChampion, Source::kEndpoint, Reason::kInvalidReply), 0u);
  EXPECT_EQ(counters.asked(Role::kChallenger, Source::kEndpoint, Reason::kInvalidReply), said["reuse_v2 invalid_reply"]);
  EXPECT_EQ(counters.asked(Role::kChallenger, Source::kEndpoint, Reason::kBreakerOpen), said["reuse_v2 breaker_open"]);
  EXPECT_EQ(counters.asked(Role::kChallenger, Source::kEmbedded, Reason::kModel),
            said["reuse_v2 invalid_reply"] + said["reuse_v2 breaker_open"]);
  EXPECT_TRUE(said["reuse_v1 model"] && said["reuse_v2 breaker_open"] && said["reuse_v2 invalid_reply"]);
  EXPECT_EQ(said.size(), 3u);
}

TEST_F(ChallengerAtTheEndpointTest, TheTraceSaysAChangeOfEitherOnce) {
  config_.challenger = {0.5, false};
  testing::LogLines trace;
  Decider decider(config_, "host:1094", 5, 1, log_.sink(),
                  {static_cast<unsigned>(Concern::kModel), [sink = trace.sink()](Concern, const std::string& text) { sink(text); }});
  ASSERT_TRUE(Tries(decider, "reuse_v2") && WaitUntil([&] { return decider.model_name() == "reuse_v1"; }));
  Answer("reuse_v2", {});
  for (int i = 0; i < 60; ++i) decider.Decide(kT0 + i, "/a/" + std::to_string(i), false, -1, -1);
  EXPECT_EQ(trace.Count("champion asked: answered"), 1u);
  EXPECT_EQ(trace.Count("challenger asked: invalid_reply"), 1u);
  EXPECT_EQ(trace.Count("asked"), 3u);  // and that the canary's breaker has opened
}

TEST_F(ChallengerAtTheEndpointTest, OneThatTheEndpointDoesNotHaveYetIsAnsweredByItsCopyUntilItHas) {
  Answer("reuse_v2", {});
  auto decider = MakeReady(1, false);
  EXPECT_TRUE(log_.Has("challenger reuse_v2 is tried, though " + server_.url()));
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kBypass, Reason::kInvalidReply);
  EXPECT_NEAR(NextRecord()["score"].get<double>(), 0.3, 1e-6);
  Answer("reuse_v2", {0.2, 0.4, 0.4});
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("challenger reuse_v2 is checked: its endpoint answers"); }));
  Expect(decider->Decide(kT0 + 1, "/a/f", false, -1, -1), Answer::kBypass, Reason::kModel);
  EXPECT_NEAR(NextRecord()["score"].get<double>(), 0.2, 1e-9);
}

TEST_F(ChallengerAtTheEndpointTest, InTheBackgroundEachOfTheTwoIsOneQuestion) {
  auto decider = MakeReady(0.5, false);
  const int champion = asked("reuse_v1"), challenger = asked("reuse_v2");
  constexpr int kOpens = 40;
  for (int i = 0; i < kOpens; ++i) ASSERT_TRUE(decider->DecideLater(kT0 + i, "/a/" + std::to_string(i), 1000, 0.5f, 0.25f));
  std::map<std::string, int> decided;
  for (int i = 0; i < kOpens; ++i) {
    const json record = NextRecord();
    ++decided[record["model"]];
    EXPECT_NEAR(record["score"].get<double>(), record["model"] == "reuse_v2" ? 0.2 : 0.8, 1e-9);
  }
  EXPECT_GT(decided["reuse_v1"], 5);
  EXPECT_GT(decided["reuse_v2"], 5);
  // Together: fewer questions than opens, of each.
  EXPECT_LT(asked("reuse_v1") - champion, decided["reuse_v1"]);
  EXPECT_LT(asked("reuse_v2") - challenger, decided["reuse_v2"]);
}

TEST_F(ChallengerAtTheEndpointTest, OneThatIsGoneIsNotAskedForAnyMore) {
  config_.model.breaker_failures = 1;
  config_.model.breaker_open_s = 0.01;
  auto decider = MakeReady(0.5, false);
  Answer("reuse_v1", {});
  Answer("reuse_v2", {});
  // Both breakers open: both are probed from now on.
  for (int i = 0; i < 20; ++i) decider->Decide(kT0 + i, "/a/" + std::to_string(i), false, -1, -1);
  const int probes = asked("reuse_v2");
  ASSERT_TRUE(WaitUntil([&] { return asked("reuse_v2") > probes; }));
  std::filesystem::remove(folder_.path() / "challenger" / "current");
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("challenger reuse_v2 is not tried any more"); }));
  const int champion = asked("reuse_v1"), challenger = asked("reuse_v2");
  ASSERT_TRUE(WaitUntil([&] { return asked("reuse_v1") >= champion + 5; }));
  EXPECT_LE(asked("reuse_v2"), challenger + 1);  // one may have been on its way
}

}  // namespace
}  // namespace smartcache

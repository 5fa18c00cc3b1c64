#include "smartcache/counters.hh"

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

TEST(Counters, PageIsPrometheusText) {
  Counters counters;
  counters.Answered(Answer::kAdmit, Reason::kModel, 0x1p-18);
  counters.Answered(Answer::kBypass, Reason::kModel, 5.0);
  counters.Asked(Role::kChampion, Source::kEndpoint, Reason::kDeadline);
  counters.Asked(Role::kChallenger, Source::kEmbedded, Reason::kModel);
  counters.Evicted(EvictionResult::kDone);
  counters.LogDropped();
  Counters::Gauges gauges{3, 2, 1000, "reuse_v3", {-5e6, 17, 42}};
  gauges.forgotten_files = 9;
  gauges.breaker_open[static_cast<size_t>(Role::kChallenger)] = false;
  const std::string page = counters.Text(gauges);
  for (const char* line : {"smartcache_answers_total{answer=\"admit\",reason=\"model\"} 1\n",
                           "# TYPE smartcache_decide_seconds histogram\n",
                           "smartcache_decide_seconds_bucket{le=\"5e-06\"} 1\n",
                           "smartcache_decide_seconds_bucket{le=\"0.1\"} 1\n",
                           "smartcache_decide_seconds_bucket{le=\"+Inf\"} 2\n",
                           "smartcache_decide_seconds_count 2\n",
                           "smartcache_decide_seconds_sum 5.00000",
                           "smartcache_model_requests_total{role=\"champion\",source=\"endpoint\",result=\"deadline\"} 1\n",
                           "smartcache_model_requests_total{role=\"champion\",source=\"embedded\",result=\"answered\"} 0\n",
                           "smartcache_model_requests_total{role=\"challenger\",source=\"endpoint\",result=\"deadline\"} 0\n",
                           "smartcache_model_requests_total{role=\"challenger\",source=\"embedded\",result=\"answered\"} 1\n",
                           "smartcache_evictions_total{result=\"done\"} 1\n",
                           "smartcache_decision_log_datagrams_total{result=\"dropped\"} 1\n",
                           "smartcache_history_files 3\n",
                           "smartcache_budget_charged_bytes_total 42\n",
                           "smartcache_budget_level_bytes -5e+06\n",
                           "smartcache_history_forgotten_total{kind=\"file\"} 9\n",
                           "smartcache_breaker_open{role=\"challenger\"} 0\n",
                           "smartcache_objects 17\n",
                           "smartcache_model_info{model=\"reuse_v3\"} 1\n"})
    EXPECT_NE(page.find(line), std::string::npos) << line << page;
  EXPECT_EQ(page.find("smartcache_breaker_open{role=\"champion\"}"), std::string::npos);
}

TEST(Counters, TextfileIsReplacedAsAWhole) {
  const testing::TempFolder folder;
  EXPECT_TRUE(WriteTextfile(folder / "a.prom", "one\n"));
  EXPECT_TRUE(WriteTextfile(folder / "a.prom", "two\n"));
  EXPECT_EQ(testing::ReadFile(folder / "a.prom"), "two\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.prom.tmp"));
  EXPECT_FALSE(WriteTextfile(folder / "missing/a.prom", "x"));
}

}  // namespace
}  // namespace smartcache

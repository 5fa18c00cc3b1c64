#include "smartcache/policy.hh"

#include <gtest/gtest.h>

#include <cmath>

namespace smartcache {
namespace {

PolicyConfig Base() {
  return {"", true, {"/store/keep/", "*/GOLD/*"}, {"/store/keep/not/", "/store/temp/"}, {{0.9, 1.0}, {0.98, 2.0}}, 0.1};
}

Scored Score(double score) { return {score, 0.5, 0.1, Reason::kModel}; }

void Expect(const Verdict& verdict, Answer answer, Reason reason, double probability = 1.0) {
  EXPECT_EQ(verdict.answer, answer) << Text(verdict.answer);
  EXPECT_EQ(verdict.reason, reason) << Text(verdict.reason);
  EXPECT_DOUBLE_EQ(verdict.probability, probability);
}

TEST(Policy, RulesComeFirstAndAlwaysWins) {
  const Policy policy(Base());
  Expect(*policy.ByRule("/store/keep/not/f", false), Answer::kAdmit, Reason::kRule);
  Expect(*policy.ByRule("/store/temp/f", false), Answer::kBypass, Reason::kRule);
  Expect(*policy.ByRule("/store/temp/f", true), Answer::kAdmit, Reason::kCached);
  Expect(*policy.ByRule("/store/temp/GOLD/f", false), Answer::kAdmit, Reason::kRule);
  EXPECT_FALSE(policy.ByRule("/store/other", false).has_value());
  EXPECT_FALSE(policy.ByRule("/store/tem", false).has_value());
}

TEST(Policy, ScoreAgainstThresholds) {
  const Policy policy(Base());
  Expect(policy.ByScore(Score(0.5), false, 0.9), Answer::kAdmit, Reason::kModel, 0.95);
  Expect(policy.ByScore(Score(0.49), false, 0.9), Answer::kBypass, Reason::kModel, 0.95);
  Expect(policy.ByScore(Score(0.05), false, 0.9), Answer::kBypass, Reason::kModel, 0.95);
}

TEST(Policy, AScoreOfTheCopyKeepsTheReasonWhyTheEndpointGaveNone) {
  const Policy policy(Base());
  const auto score = [](double value) { return Scored{value, 0.5, 0.1, Reason::kDeadline}; };
  Expect(policy.ByScore(score(0.5), false, 0.9), Answer::kAdmit, Reason::kDeadline, 0.95);
  Expect(policy.ByScore(score(0.4), false, 0.9), Answer::kBypass, Reason::kDeadline, 0.95);
  Expect(policy.ByScore(score(0.4), false, 0.0), Answer::kAdmit, Reason::kExplore, 0.05);
  Expect(policy.ByScore(score(0.05), true, 0.9), Answer::kEvict, Reason::kDeadline);
  Expect(policy.ByScore(score(0.7), true, 0.9), Answer::kAdmit, Reason::kDeadline);
  Expect(policy.ByScore(score(0.4), true, 0.9), Answer::kAdmit, Reason::kCached);
}

TEST(Policy, AFileOnDiskIsNeverBypassed) {
  const Policy policy(Base());
  for (double uniform = 0; uniform < 1; uniform += 0.01) {
    Expect(policy.ByScore(Score(0.7), true, uniform), Answer::kAdmit, Reason::kModel);
    Expect(policy.ByScore(Score(0.3), true, uniform), Answer::kAdmit, Reason::kCached);
    Expect(policy.ByScore(Score(0.05), true, uniform), Answer::kEvict, Reason::kModel);
  }
}

TEST(Policy, TheAdmitThresholdFollowsTheFill) {
  const Policy policy(Base());
  EXPECT_DOUBLE_EQ(policy.UnderPressure(0.2, -1.0f), 0.2);  // unknown
  EXPECT_DOUBLE_EQ(policy.UnderPressure(0.2, std::nanf("")), 0.2);
  EXPECT_DOUBLE_EQ(policy.UnderPressure(0.2, 0.0f), 0.2);
  EXPECT_DOUBLE_EQ(policy.UnderPressure(0.2, 0.5f), 0.2);
  EXPECT_NEAR(policy.UnderPressure(0.2, 0.94f), 1.5 / 5.5, 1e-6);  // odds 1/4 times 1.5
  EXPECT_NEAR(policy.UnderPressure(0.2, 0.98f), 2.0 / 6.0, 1e-6);
  EXPECT_DOUBLE_EQ(policy.UnderPressure(0.2, 1.0f), 2.0 / 6.0);
  EXPECT_DOUBLE_EQ(policy.UnderPressure(0.0, 1.0f), 0.0);
  EXPECT_DOUBLE_EQ(policy.UnderPressure(1.0, 1.0f), 1.0);
  for (float fill = 0, before = 0; fill <= 1; fill += 0.001f) {
    const auto threshold = static_cast<float>(policy.UnderPressure(0.2, fill));
    EXPECT_GE(threshold, before) << fill;
    before = threshold;
  }
  PolicyConfig config = Base();
  config.pressure.clear();
  EXPECT_DOUBLE_EQ(Policy(config).UnderPressure(0.2, 1.0f), 0.2);
  config.pressure = {{0.5, 0.25}};
  EXPECT_DOUBLE_EQ(Policy(config).UnderPressure(0.5, 0.1f), 0.2);  // odds 1 times 0.25
}

TEST(Policy, OverTheBudgetIsABypassForCertain) { Expect(Policy(Base()).OverBudget(), Answer::kBypass, Reason::kBudget); }

TEST(Policy, ExplorationIsLoggedWithTheProbabilityOfTheAnswer) {
  const Policy policy(Base());
  Expect(policy.ByScore(Score(0.9), false, 0.01), Answer::kAdmit, Reason::kExplore, 0.95);
  Expect(policy.ByScore(Score(0.9), false, 0.07), Answer::kBypass, Reason::kExplore, 0.05);
  Expect(policy.ByScore(Score(0.2), false, 0.01), Answer::kAdmit, Reason::kExplore, 0.05);
  Expect(policy.ByScore(Score(0.2), false, 0.07), Answer::kBypass, Reason::kExplore, 0.95);
}

// The logged probability is the frequency of that answer.
TEST(Policy, ProbabilitiesAreFrequencies) {
  const Policy policy(Base());
  int admits = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) admits += policy.ByScore(Score(0.2), false, (i + 0.5) / n).answer == Answer::kAdmit;
  EXPECT_NEAR(static_cast<double>(admits) / n, 0.05, 1e-6);
}

TEST(Policy, WithoutExplorationAllIsCertain) {
  PolicyConfig config = Base();
  config.explore = 0;
  Expect(Policy(config).ByScore(Score(0.9), false, 0.0), Answer::kAdmit, Reason::kModel);
}

TEST(Policy, ThePortfolioVotes) {
  const Policy policy(Base());
  Expect(policy.ByVote(true, false, false, 0.5), Answer::kAdmit, Reason::kVote, 0.95);
  Expect(policy.ByVote(false, false, false, 0.5), Answer::kBypass, Reason::kVote, 0.95);
  Expect(policy.ByVote(true, true, false, 0.5), Answer::kAdmit, Reason::kGuard, 0.95);
  Expect(policy.ByVote(false, false, false, 0.01), Answer::kAdmit, Reason::kExplore, 0.05);
  Expect(policy.ByVote(true, false, true, 0.01), Answer::kAdmit, Reason::kVote);
  Expect(policy.ByVote(false, false, true, 0.01), Answer::kAdmit, Reason::kCached);
}

TEST(Policy, FallbackKeepsTheReason) {
  Expect(Policy(Base()).Fallback(Reason::kDeadline, false), Answer::kAdmit, Reason::kDeadline);
  PolicyConfig config = Base();
  config.fallback_admit = false;
  Expect(Policy(config).Fallback(Reason::kNoModel, false), Answer::kBypass, Reason::kNoModel);
  Expect(Policy(config).Fallback(Reason::kNoModel, true), Answer::kAdmit, Reason::kCached);
}

}  // namespace
}  // namespace smartcache

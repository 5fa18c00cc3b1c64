#include "smartcache/policy.hh"

#include <gtest/gtest.h>

namespace smartcache {
namespace {

PolicyConfig Base() { return {true, {"/store/keep/"}, {"/store/keep/not/", "/store/temp/"}, 0.1, true}; }

Scored Score(double score) { return {score, 0.5, 0.1}; }

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
  EXPECT_FALSE(policy.ByRule("/store/other", false).has_value());
  EXPECT_FALSE(policy.ByRule("/store/tem", false).has_value());
}

TEST(Policy, ScoreAgainstThresholds) {
  const Policy policy(Base());
  Expect(policy.ByScore(Score(0.5), false, 0.9), Answer::kAdmit, Reason::kModel, 0.95);
  Expect(policy.ByScore(Score(0.49), false, 0.9), Answer::kBypass, Reason::kModel, 0.95);
  Expect(policy.ByScore(Score(0.05), false, 0.9), Answer::kBypass, Reason::kModel, 0.95);
}

TEST(Policy, AFileOnDiskIsNeverBypassed) {
  const Policy policy(Base());
  for (double uniform = 0; uniform < 1; uniform += 0.01) {
    Expect(policy.ByScore(Score(0.7), true, uniform), Answer::kAdmit, Reason::kModel);
    Expect(policy.ByScore(Score(0.3), true, uniform), Answer::kAdmit, Reason::kCached);
    Expect(policy.ByScore(Score(0.05), true, uniform), Answer::kEvict, Reason::kModel);
  }
}

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

TEST(Policy, FallbackKeepsTheReason) {
  Expect(Policy(Base()).Fallback(Reason::kDeadline, false), Answer::kAdmit, Reason::kDeadline);
  PolicyConfig config = Base();
  config.fallback_admit = false;
  Expect(Policy(config).Fallback(Reason::kNoModel, false), Answer::kBypass, Reason::kNoModel);
  Expect(Policy(config).Fallback(Reason::kNoModel, true), Answer::kAdmit, Reason::kCached);
}

}  // namespace
}  // namespace smartcache

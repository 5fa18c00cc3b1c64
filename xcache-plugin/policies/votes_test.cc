#include "votes.hh"

#include <gtest/gtest.h>

#include <cmath>

namespace smartcache {
namespace {

TEST(Votes, BeginWithAll) {
  const Votes votes({0, 0, 0, 0.5});
  for (size_t e = 0; e < 4; ++e) EXPECT_DOUBLE_EQ(votes.weight(e), 0.25);
  EXPECT_EQ(votes.masks(), 16u);
  EXPECT_DOUBLE_EQ(votes.vote(0), 0);
  EXPECT_DOUBLE_EQ(votes.vote(0b1010), 0.5);
  EXPECT_DOUBLE_EQ(votes.vote(0b1111), 1);
}

TEST(Votes, WhoIsOnePercentBehindHasATwentiethOfTheSay) {
  Votes votes({0, 0, 0});
  votes.Weigh({1000, 100, 101});
  EXPECT_NEAR(votes.weight(2) / votes.weight(1), std::exp(-3), 1e-12);
  EXPECT_LT(votes.weight(0), 1e-100);
  EXPECT_NEAR(votes.vote(0b110), 1, 1e-12);
  EXPECT_NEAR(votes.Expected({1000, 100, 101}), (100 + 101 * std::exp(-3)) / (1 + std::exp(-3)), 1e-9);
}

TEST(Votes, WhoHasAStartIsFollowedUntilSomebodyIsFurtherAhead) {
  Votes votes({0.01, 0});
  votes.Weigh({100, 100});
  EXPECT_GT(votes.weight(0), 0.9);
  votes.Weigh({100, 99});
  EXPECT_NEAR(votes.weight(0), 0.5, 1e-9);
  votes.Weigh({100, 98});
  EXPECT_LT(votes.weight(0), 0.06);
}

TEST(Votes, WhereNothingIsLostNothingChanges) {
  Votes votes({0, 0});
  votes.Weigh({100, 50});
  const double before = votes.vote(0b10);
  votes.Weigh({0, 50});
  EXPECT_EQ(votes.vote(0b10), before);
}

}  // namespace
}  // namespace smartcache

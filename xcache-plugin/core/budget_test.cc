#include "smartcache/budget.hh"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace smartcache {
namespace {

constexpr int64_t kMB = 1000000;

class BudgetTest : public ::testing::Test {
 protected:
  Budget Make(BudgetConfig config) {
    return Budget(config, [this] { return now_; });
  }
  double now_ = 1000;
};

TEST_F(BudgetTest, NoneAllowsAll) {
  Budget budget = Make({0, 60, 0, kMB});
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(budget.Allows());
    budget.Charge(1, 1000 * kMB);
  }
  budget.Found(1000000);
  EXPECT_TRUE(budget.Allows());
}

TEST_F(BudgetTest, ABurstThenTheRate) {
  Budget budget = Make({10 * kMB, 2, 0, kMB});  // 20 MB at once
  int admitted = 0;
  for (; budget.Allows(); ++admitted) budget.Charge(1, 5 * kMB);
  EXPECT_EQ(admitted, 4);
  now_ += 0.4;
  EXPECT_TRUE(budget.Allows());
  // A file larger than all of it is stored once the level is above 0, and paid off before the next.
  budget.Charge(1, 104 * kMB);  // 4 - 104 = -100
  now_ += 9.9;
  EXPECT_FALSE(budget.Allows());
  now_ += 0.2;
  EXPECT_TRUE(budget.Allows());
  // However long it is quiet, no more than the burst is saved.
  now_ += 1e6;
  for (admitted = 0; budget.Allows(); ++admitted) budget.Charge(1, 5 * kMB);
  EXPECT_EQ(admitted, 4);
}

TEST_F(BudgetTest, OverATimeNoMoreThanTheRateIsAdmitted) {
  Budget budget = Make({10 * kMB, 2, 0, kMB});
  int64_t bytes = 0;
  for (int i = 0; i < 100000; ++i) {  // a hundred opens a second, of 1 to 7 MB
    now_ += 0.01;
    const int64_t size = (1 + i * 7919 % 7) * kMB;
    if (!budget.Allows()) continue;
    budget.Charge(1, size);
    bytes += size;
  }
  EXPECT_LE(bytes, 10 * kMB * 1002 + 7 * kMB);
  EXPECT_GE(bytes, 10 * kMB * 1000);
  EXPECT_EQ(budget.state().charged_bytes, static_cast<uint64_t>(bytes));
}

TEST_F(BudgetTest, AClockThatStandsOrSteppedBackGivesNothing) {
  Budget budget = Make({10 * kMB, 1, 0, kMB});
  budget.Charge(1, 30 * kMB);
  now_ -= 500;
  EXPECT_FALSE(budget.Allows());
  now_ += 1;
  EXPECT_FALSE(budget.Allows());
}

TEST_F(BudgetTest, AnUnknownSizeIsTheBestGuess) {
  Budget budget = Make({1, 1, 0, 7});
  const auto cost = [&](uint64_t dataset, int64_t size) {
    const uint64_t before = budget.state().charged_bytes;
    budget.Charge(dataset, size);
    return budget.state().charged_bytes - before;
  };
  EXPECT_EQ(cost(1, -1), 7u);
  EXPECT_EQ(cost(1, 3), 3u);
  EXPECT_EQ(cost(1, 0), 0u);
  budget.Learn(1, 100);
  budget.Learn(1, 200);
  budget.Learn(1, -1);
  EXPECT_EQ(cost(1, -1), 150u);
  EXPECT_EQ(cost(2, -1), 150u);  // the mean of all
  budget.Learn(2, 600);
  EXPECT_EQ(cost(2, -1), 600u);
  EXPECT_EQ(cost(1, -1), 150u);
  EXPECT_EQ(cost(3, -1), 300u);
  budget.Learn(1 + 4096, 900);  // takes the place of 1
  EXPECT_EQ(cost(1 + 4096, -1), 900u);
  EXPECT_EQ(cost(1, -1), 450u);
}

TEST_F(BudgetTest, ObjectsBindOnceCounted) {
  Budget budget = Make({0, 60, 3, kMB});
  for (int i = 0; i < 10; ++i) budget.Charge(1, 1);
  EXPECT_TRUE(budget.Allows());
  EXPECT_EQ(budget.state().objects, -1);
  budget.Found(2);
  EXPECT_TRUE(budget.Allows());
  budget.Charge(1, 1);
  EXPECT_FALSE(budget.Allows());
  budget.Removed();
  EXPECT_TRUE(budget.Allows());
  budget.Found(5);
  EXPECT_FALSE(budget.Allows());
}

TEST_F(BudgetTest, ThreadsShareIt) {
  Budget budget = Make({1000, 1, 0, 1});
  std::vector<std::thread> threads;
  std::atomic<int> admitted{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        if (!budget.Allows()) continue;
        budget.Charge(1, 1);
        ++admitted;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  // Between its question and its charge each other thread may come in once.
  EXPECT_GE(admitted, 1000);
  EXPECT_LE(admitted, 1003);
}

}  // namespace
}  // namespace smartcache

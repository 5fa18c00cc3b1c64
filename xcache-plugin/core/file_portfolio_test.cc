#include "smartcache/file_portfolio.hh"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "forecast_cache.hh"
#include "policies/policies.hh"
#include "smartcache/hash.hh"
#include "testing/fixtures.hh"

namespace smartcache {
namespace {

constexpr int64_t kUnknownSize = 2000, kSecond = 1000000;
const PortfolioConfig kConfig{true, 64 << 20, ""};

FilePortfolio::Open Opened(uint64_t file, int64_t size, int64_t t_us = 0) { return {file, 7, t_us, size, 1.0, 0.25}; }

// Popular files, a scan, and files that come once.
std::vector<uint32_t> Drawn(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint32_t> files;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t kind = random() % 10;
    files.push_back(static_cast<uint32_t>(kind < 6 ? random() % 60 : kind < 8 ? 200 + i % 150 : 400 + i % (n - 400)));
  }
  return files;
}
int64_t SizeOf(uint32_t file) { return 1 + file * 7 % 50; }

TEST(FilePortfolio, IsThePortfolioOfTheSimulatorByNames) {
  const auto files = Drawn(20000, 1);
  std::vector<int64_t> sizes;
  for (const uint32_t file : files) sizes.push_back(SizeOf(file));
  const PolicyCounters expected = SimulateObjects("portfolio", {files.data(), sizes.data(), files.size()}, 1000, 1)[0];

  FilePortfolio portfolio(kConfig, kUnknownSize, true, false);
  portfolio.Room(1000);
  // So many that there is room for all from the beginning on: a new cache, told of what was, is not quite the same.
  for (uint32_t file = 0; file < 40000; file += 100) portfolio.Opened(Opened(Mix(1u << 20 | file), 0), nullptr);
  int64_t hit_bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    if (i % 256 == 0) portfolio.Tidy();
    const auto worth = portfolio.Worth(Mix(files[i]));
    ASSERT_TRUE(worth);
    if (*worth >= 0) hit_bytes += sizes[i];
    ASSERT_TRUE(portfolio.Opened(Opened(Mix(files[i]), sizes[i]), nullptr).known);
  }
  EXPECT_NEAR(static_cast<double>(hit_bytes), static_cast<double>(expected.hit_bytes), 0.02 * static_cast<double>(expected.hit_bytes));
  EXPECT_EQ(portfolio.state().lost, 0u);
}

TEST(FilePortfolio, SaysNothingBeforeTheRoomIsKnownAndIsToldLater) {
  FilePortfolio portfolio(kConfig, kUnknownSize, true, false);
  EXPECT_FALSE(portfolio.Opened(Opened(1, 10), nullptr).known);
  EXPECT_FALSE(portfolio.Tidy());
  EXPECT_EQ(portfolio.Worth(1), std::nullopt);
  portfolio.Room(100);
  EXPECT_TRUE(portfolio.Tidy());
  EXPECT_FALSE(portfolio.Tidy());
  ASSERT_TRUE(portfolio.Worth(1));
  EXPECT_GT(*portfolio.Worth(1), 0.0);
  EXPECT_EQ(*portfolio.Worth(2), -1.0);
  const auto state = portfolio.state();
  EXPECT_EQ(state.unsaid, 1u);
  EXPECT_EQ(state.lost, 0u);
  EXPECT_EQ(state.files, 1u);
  EXPECT_EQ(state.capacity_bytes, 100u);
  EXPECT_EQ(state.weights.size(), 9u);
}

TEST(FilePortfolio, AFileThatWasNeverSeenIsAsLargeAsItsSiblings) {
  FilePortfolio portfolio(kConfig, kUnknownSize, true, false);
  portfolio.Room(1000);
  portfolio.Tidy();
  EXPECT_TRUE(portfolio.Opened(Opened(1, -1), nullptr).stores);  // not 2000, as the configuration says: there is room for a file
  EXPECT_TRUE(portfolio.Opened(Opened(2, 600), nullptr).stores);
  EXPECT_TRUE(portfolio.Opened(Opened(3, -1), nullptr).stores);  // 600: 2 has to go
  EXPECT_EQ(*portfolio.Worth(2), -1.0);
  // Of a file that is read in part the rest takes no room.
  FilePortfolio::Open part = Opened(4, 2000);
  part.part = 0.1;
  EXPECT_TRUE(portfolio.Opened(part, nullptr).stores);
}

TEST(FilePortfolio, HasRoomForMoreFilesAsTheyComeAndForgetsTheOldest) {
  PortfolioConfig small = kConfig;
  small.memory_bytes = 1 << 20;  // for some more than the fewest that there is room for
  FilePortfolio portfolio(small, kUnknownSize, true, false);
  portfolio.Room(100000);
  for (uint64_t file = 0; file < 20000; ++file) {
    if (file % 256 == 0) portfolio.Tidy();
    ASSERT_TRUE(portfolio.Opened(Opened(file, 10), nullptr).known) << file;
  }
  const auto state = portfolio.state();
  EXPECT_GT(state.forgotten, 10000u);
  EXPECT_EQ(state.lost, 0u);
  EXPECT_LT(state.files, 8192u);
  EXPECT_GT(*portfolio.Worth(19999), 0.0);
  EXPECT_EQ(*portfolio.Worth(0), -1.0);
}

TEST(FilePortfolio, WhatIsNotToldInTimeIsCounted) {
  FilePortfolio portfolio(kConfig, kUnknownSize, true, false);
  for (uint64_t file = 0; file < 70000; ++file) portfolio.Opened(Opened(file, 10), nullptr);
  EXPECT_EQ(portfolio.state().unsaid, 70000u);
  EXPECT_EQ(portfolio.state().lost, 70000u - 65536u);
}

TEST(FilePortfolio, GoesOnAfterARestart) {
  const auto files = Drawn(188 * 64, 2) /* what the caches have to say is known anew each 64 opens */;
  FilePortfolio portfolio(kConfig, kUnknownSize, true, false);
  EXPECT_EQ(portfolio.Write(), "");
  portfolio.Room(3000);
  for (size_t i = 0; i < files.size(); ++i) {
    if (i % 256 == 0) portfolio.Tidy();
    portfolio.Opened(Opened(files[i], SizeOf(files[i])), nullptr);
  }
  FilePortfolio after(kConfig, kUnknownSize, true, false);
  std::string why;
  ASSERT_TRUE(after.Read(portfolio.Write(), &why)) << why;
  EXPECT_FALSE(after.state().ready);
  after.Room(3000);
  ASSERT_TRUE(after.Tidy());
  const auto was = portfolio.state(), is = after.state();
  EXPECT_EQ(is.files, was.files);
  for (size_t e = 0; e < was.weights.size(); ++e) EXPECT_NEAR(is.weights[e].second, was.weights[e].second, 1e-9) << was.weights[e].first;
  int same = 0, held = 0;
  for (uint64_t file = 0; file < 13000; ++file) {
    held += *portfolio.Worth(file) >= 0;
    same += *portfolio.Worth(file) >= 0 && *after.Worth(file) >= 0;
  }
  EXPECT_GT(held, 90);
  EXPECT_GT(same, held * 3 / 4);
}

TEST(FilePortfolio, OtherBytesAreRefused) {
  FilePortfolio portfolio(kConfig, kUnknownSize, true, false);
  portfolio.Room(1000);
  portfolio.Tidy();
  for (uint64_t file = 0; file < 100; ++file) portfolio.Opened(Opened(file, 30), nullptr);
  const std::string good = portfolio.Write();
  FilePortfolio after(kConfig, kUnknownSize, true, false);
  std::string why;
  for (size_t size = 0; size < good.size(); ++size) ASSERT_FALSE(after.Read(good.substr(0, size), &why)) << size;
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good;
    char& hit = bad[random() % bad.size()];
    hit = static_cast<char>(hit ^ (1 << random() % 8));
    ASSERT_FALSE(after.Read(bad, &why));
    ASSERT_NE(why, "");
  }
  EXPECT_FALSE(after.Read(good + "x", &why));
  EXPECT_TRUE(after.Read(good, &why));
}

TEST(FilePortfolio, ARestartWithAModelWhereThereWasNoneBeginsWithEqualWeights) {
  FilePortfolio portfolio(kConfig, kUnknownSize, true, false);
  portfolio.Room(1000);
  portfolio.Tidy();
  for (uint64_t i = 0; i < 1000; ++i) portfolio.Opened(Opened(i % 40, 40), nullptr);
  FilePortfolio after(kConfig, kUnknownSize, true, true);
  std::string why;
  ASSERT_TRUE(after.Read(portfolio.Write(), &why)) << why;
  after.Room(1000);
  after.Tidy();
  const auto state = after.state();
  ASSERT_EQ(state.weights.size(), 10u);
  EXPECT_STREQ(state.weights[9].first, "model");
  for (const auto& [name, weight] : state.weights) EXPECT_DOUBLE_EQ(weight, 0.1) << name;
  EXPECT_EQ(state.files, 40u);
}

// A model that knows which files come again, among many that are opened twice, at a shorter distance, and then never again: rules take
// those for the better ones.
TEST(FilePortfolio, FollowsAModelThatKnows) {
  const double edges[] = {3600, 86400};
  const double again[] = {0.9, 0.05, 0.05}, never[] = {0.02, 0.02, 0.96};
  FilePortfolio portfolio(kConfig, kUnknownSize, true, true), blind(kConfig, kUnknownSize, true, true);
  const auto hits = [&](FilePortfolio* one, bool told) {
    one->Room(1000);
    int count = 0;
    int64_t others = 0;
    for (int64_t i = 0; i < 40000; ++i) {
      if (i % 256 == 0) one->Tidy();
      const bool returning = i % 4 == 0;
      const int64_t number = returning ? i / 4 % 80 : (1 << 20) + others / 240 * 120 + others % 120;
      others += !returning;
      const uint64_t file = Mix(static_cast<uint64_t>(number));
      const Forecast forecast{edges, 2, 1, 3600, returning ? again : never, returning};
      count += returning && one->Worth(file).value_or(-1) >= 0;
      one->Opened(Opened(file, 10, i * kSecond), told ? &forecast : nullptr);
    }
    return count;
  };
  const int with = hits(&portfolio, true), without = hits(&blind, false);
  // Another size of the disk, and so a new cache: what the model has said is not forgotten.
  portfolio.Room(1100);
  ASSERT_TRUE(portfolio.Tidy());
  int kept = 0;
  for (uint64_t i = 0; i < 80; ++i) kept += portfolio.Worth(Mix(i)).value_or(-1) >= 0;
  EXPECT_GT(kept, 75);
  EXPECT_GT(with, 9000);  // of 10 000
  EXPECT_LT(without, with - 1000);
  EXPECT_GT(portfolio.state().weights[9].second, 0.9);
}

// While the lock is held for milliseconds at a time: of a large portfolio all is copied, again and again.
TEST(FilePortfolio, AnOpenWaitsForTheLockAsLongAsItsPatienceLasts) {
  using std::chrono::steady_clock;
  constexpr uint64_t kFiles = 400000;  // 19 MB
  FilePortfolio portfolio({true, INT64_C(512) << 20, ""}, kUnknownSize, true, false);
  portfolio.Room(1000000);
  for (uint64_t file = 0; file < kFiles; ++file) {
    if (file % 256 == 0) portfolio.Tidy();
    portfolio.Opened(Opened(Mix(file), 10), nullptr);
  }
  std::atomic<bool> ended{false};
  std::thread copying([&] {
    while (!ended) portfolio.Write();
  });
  // The shortest time until an open gave up, since others may have the processor in between: of 20, and more as long as it is above `bar`.
  const auto shortest = [&](steady_clock::duration patience, steady_clock::duration bar) {
    auto least = steady_clock::duration::max();
    int given_up = 0;
    for (uint64_t i = 0; i < 10000000 && (given_up < 20 || (given_up < 1000 && least >= bar)); ++i) {
      const auto began = steady_clock::now();
      if (portfolio.Opened(Opened(Mix(i % kFiles), 10), nullptr, patience).known) continue;
      least = std::min(least, steady_clock::now() - began);
      ++given_up;
    }
    EXPECT_GE(given_up, 20);
    EXPECT_LT(least, bar);
    return least;
  };
  shortest(steady_clock::duration::zero(), std::chrono::microseconds(100));
  EXPECT_GE(shortest(FilePortfolio::kPatience, std::chrono::milliseconds(1)), FilePortfolio::kPatience);
  ended = true;
  copying.join();
}

TEST(FilePortfolio, PatienceEndsWithHalfOfTheDeadline) {
  using std::chrono::microseconds;
  const auto after = [](int spent_us, int deadline_us) {
    return FilePortfolio::PatienceAfter(microseconds(spent_us), microseconds(deadline_us));
  };
  EXPECT_EQ(after(10, 5000), microseconds(300));
  EXPECT_EQ(after(2500, 5000), microseconds(300));
  EXPECT_EQ(after(2501, 5000), microseconds(0));
  EXPECT_EQ(after(5200, 5000), microseconds(0));
  EXPECT_EQ(after(10, 100), microseconds(50));
}

TEST(ForecastCache, AnotherCacheIsToldWhatTheFirstWasTold) {
  const double edges[] = {3600, 86400};
  const double good[] = {0.9, 0.05, 0.05}, bad[] = {0.02, 0.02, 0.96};
  ForecastCache first(1000, true), second(1000, true);
  first.Tell(0, 0.5, nullptr);
  first.Request(2, 10);
  for (const uint32_t object : {0u, 1u}) {
    const Forecast forecast{edges, 2, 7, 3600, object == 0 ? good : bad, object == 0};
    first.Tell(kSecond, 0.5, &forecast);
    first.Request(object, 10);
  }
  double outputs[ForecastCache::kOutputs];
  EXPECT_FALSE(second.Again(first.said(0), outputs));  // it knows of no edges yet
  second.Use(first.edges());
  EXPECT_FALSE(second.Again(first.said(2), outputs));
  for (const uint32_t object : {0u, 1u}) {
    const auto forecast = second.Again(first.said(object), outputs);
    ASSERT_TRUE(forecast);
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(forecast->outputs[i], object == 0 ? good[i] : bad[i], 1e-5);
    second.Tell(kSecond, 0.5, &*forecast);
    second.Request(object, 10);
    EXPECT_EQ(second.Holds(object), object == 0);
    EXPECT_EQ(second.said(object).outputs[0], first.said(object).outputs[0]);
  }
}

TEST(FilePortfolio, OpensFromManyThreadsWhileItIsTidied) {
  FilePortfolio portfolio(kConfig, kUnknownSize, true, false);
  portfolio.Room(5000);
  std::atomic<bool> ended{false};
  std::thread tidying([&] {
    while (!ended) {
      portfolio.Tidy();
      portfolio.Write();
    }
  });
  std::vector<std::thread> opening;
  std::atomic<uint64_t> known{0};
  for (uint64_t t = 0; t < 4; ++t)
    opening.emplace_back([&, t] {
      for (uint64_t i = 0; i < 5000; ++i) {
        known += portfolio.Opened(Opened(Mix(i * (t % 2 + 1)), 10), nullptr).known;
        portfolio.Worth(Mix(i));
      }
    });
  for (auto& each : opening) each.join();
  ended = true;
  tidying.join();
  portfolio.Tidy();
  const auto state = portfolio.state();
  EXPECT_EQ(known + state.unsaid, 20000u);
  EXPECT_EQ(state.lost, 0u);
  EXPECT_EQ(state.files, 7500u);  // 0 to 4999, and their doubles: half of those are among them
}

}  // namespace
}  // namespace smartcache

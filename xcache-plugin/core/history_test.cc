#include "smartcache/history.hh"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace smartcache {
namespace {

using Kind = History::Kind;

constexpr int64_t kT0 = INT64_C(1760000000000000);
const std::vector<double> kHalfLives = {3600, 86400, 604800, 2592000};

uint64_t Key(uint64_t i) { return i * 0x9e3779b97f4a7c15ull; }

void Open(History* history, History::Entry* entry, int64_t now_us) {
  history->Touch(entry);
  History::Count(&entry->opens);
  for (size_t i = 0; i < kHalfLives.size(); ++i) history->Opens(entry)[i] += 1.0;
  entry->last_us = now_us;
}

HistoryConfig Bounded(int64_t bytes) { return {bytes}; }

// So many entries that the arena is full.
uint64_t Fill(History* history, uint64_t first_key, int64_t now_us) {
  uint64_t key = first_key;
  while (history->files() + history->datasets() < history->capacity()) {
    History::Entry* entry = history->Insert(Key(key++), Kind::kFile, now_us);
    Open(history, entry, now_us);
  }
  return key;
}

TEST(History, FindsWhatItWasGivenByKeyAndKind) {
  History history(Bounded(65536), kHalfLives);
  History::Entry* file = history.Insert(7, Kind::kFile, 0);
  EXPECT_EQ(history.Find(7, Kind::kFile), file);
  EXPECT_EQ(history.Find(7, Kind::kDataset), nullptr);
  EXPECT_EQ(history.Find(8, Kind::kFile), nullptr);
  EXPECT_EQ(history.files(), 1u);
  EXPECT_EQ(history.datasets(), 0u);
}

TEST(History, StaysWithinItsMemoryAndForgetsTheOldestOfEquals) {
  for (const int64_t bound : {65536, 100000, 1 << 20}) {
    History history(Bounded(bound), kHalfLives);
    for (uint64_t key = 1; key <= 20000; ++key) {
      Open(&history, history.Insert(Key(key), Kind::kFile, kT0), kT0);
      EXPECT_LE(history.memory_bytes(), static_cast<uint64_t>(bound));
    }
    const uint64_t kept = history.files();
    EXPECT_EQ(kept, history.capacity());
    EXPECT_GT(kept, static_cast<uint64_t>(bound) / 400);
    for (uint64_t key = 1; key <= 20000; ++key) EXPECT_EQ(history.Find(Key(key), Kind::kFile) != nullptr, key > 20000 - kept) << key;
  }
}

TEST(History, OfTheEightOldestTheLeastUsefulGoes) {
  History history(Bounded(65536), kHalfLives);
  // The oldest eight: opened 3, 3, 2, 5, 3, ... times.
  const int opens[] = {3, 3, 2, 5, 3, 3, 3, 3};
  for (uint64_t i = 0; i < 8; ++i) {
    History::Entry* entry = history.Insert(Key(i), i % 2 ? Kind::kDataset : Kind::kFile, kT0);
    for (int n = 0; n < opens[i]; ++n) Open(&history, entry, kT0);
  }
  uint64_t key = Fill(&history, 100, kT0);
  const auto there = [&](uint64_t i) { return history.Find(Key(i), i % 2 ? Kind::kDataset : Kind::kFile) != nullptr; };
  history.Insert(Key(key++), Kind::kFile, kT0);
  EXPECT_FALSE(there(2));
  EXPECT_EQ(history.forgotten_files(), 1u);
  EXPECT_EQ(history.forgotten_datasets(), 0u);
  for (const uint64_t i : {0, 1, 3, 4, 5, 6, 7}) EXPECT_TRUE(there(i)) << i;
  // The other seven have moved to the newest end: all that were opened once go before them.
  uint64_t once = history.files() + history.datasets() - 8;
  for (; once > 0; --once) Open(&history, history.Insert(Key(key++), Kind::kFile, kT0), kT0);
  for (const uint64_t i : {0, 1, 3, 4, 5, 6, 7}) EXPECT_TRUE(there(i)) << i;
}

// Twice as long ago is half as useful, with a half-life between them.
TEST(History, UsefulnessIsAsOfNow) {
  History history(Bounded(65536), kHalfLives);
  const auto month = static_cast<int64_t>(kHalfLives.back() * 1e6);
  History::Entry* once_often = history.Insert(Key(1), Kind::kFile, kT0);
  for (int n = 0; n < 5; ++n) Open(&history, once_often, kT0);
  for (uint64_t i = 2; i < 9; ++i) {
    History::Entry* entry = history.Insert(Key(i), Kind::kFile, kT0 + 2 * month);
    for (int n = 0; n < 2; ++n) Open(&history, entry, kT0 + 2 * month);
  }
  const uint64_t key = Fill(&history, 100, kT0 + 2 * month);
  history.Insert(Key(key), Kind::kFile, kT0 + 2 * month);
  EXPECT_EQ(history.Find(Key(1), Kind::kFile), nullptr);  // 5 / 4 is less than 2
  EXPECT_NE(history.Find(Key(2), Kind::kFile), nullptr);
}

TEST(History, AScanOfAMillionFilesLeavesTheHotOnes) {
  History history(Bounded(8 << 20), kHalfLives);
  const uint64_t hot = history.capacity() / 2;
  // Opened three times each, one after the other: nothing cold lies between them.
  for (uint64_t i = 0; i < hot; ++i) {
    History::Entry* entry = history.Insert(Key(i), Kind::kFile, kT0);
    for (int n = 0; n < 3; ++n) Open(&history, entry, kT0);
  }
  for (uint64_t i = 0; i < 1000000; ++i) {
    const int64_t now = kT0 + static_cast<int64_t>(i) * 1000;
    Open(&history, history.Insert(Key(1000000 + i), Kind::kFile, now), now);
  }
  uint64_t kept = 0;
  for (uint64_t i = 0; i < hot; ++i) kept += history.Find(Key(i), Kind::kFile) != nullptr;
  // Where the first eight are all hot, one of them goes, and the newcomer comes between the others for good: 1 of 8 at most.
  EXPECT_GE(kept, hot * 7 / 8 - 1);
  EXPECT_EQ(history.files(), history.capacity());
}

TEST(History, BackingMemoryAheadChangesNothing) {
  History history(Bounded(64 << 20), kHalfLives);
  history.Back();
  for (uint64_t key = 1; key <= 100000; ++key) {
    history.Insert(Key(key), Kind::kFile, kT0)->opens = static_cast<uint32_t>(key);
    if (key % 10000 == 0) history.Back();
  }
  for (uint64_t key = 1; key <= 100000; ++key) ASSERT_EQ(history.Find(Key(key), Kind::kFile)->opens, key);
}

TEST(History, RecallsWhatWasPredictedAtTheLastOpen) {
  for (const size_t half_lives : {1, 4, 8}) {
    History history(Bounded(1 << 20), std::vector<double>(half_lives, 3600.0));
    History::Entry* file = history.Insert(7, Kind::kFile, 0);
    file->last_us = 1000;
    file->opens = 3;
    History::Forecast forecast;
    ASSERT_TRUE(history.Recall(7, &forecast));
    EXPECT_EQ(forecast.buckets, 0u);
    const size_t n = history.max_buckets();
    ASSERT_GE(n, 11u);
    ASSERT_LE(n, History::Forecast::kMaxBuckets);
    std::vector<double> outputs(n);
    for (size_t i = 0; i < n; ++i) outputs[i] = static_cast<double>(i + 1) / (static_cast<double>(n * (n + 1)) / 2);
    history.Opens(file)[half_lives - 1] = 2.5;
    ASSERT_TRUE(history.Remember(7, 1000, 42, outputs.data(), n));
    EXPECT_EQ(history.Opens(file)[half_lives - 1], 2.5);
    ASSERT_TRUE(history.Recall(7, &forecast));
    EXPECT_EQ(forecast.last_us, 1000);
    EXPECT_EQ(forecast.opens, 3u);
    EXPECT_EQ(forecast.model_id, 42u);
    ASSERT_EQ(forecast.buckets, n);
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(forecast.outputs[i], outputs[i], 2e-5 * static_cast<double>(n)) << i;
    EXPECT_NEAR(std::accumulate(forecast.outputs, forecast.outputs + n, 0.0), 1.0, 1e-6);
  }
}

TEST(History, DoesNotRememberWhatIsNotOfTheLastOpenOrTooLong) {
  History history(Bounded(65536), kHalfLives);
  history.Insert(7, Kind::kFile, 0)->last_us = 1000;
  history.Insert(8, Kind::kDataset, 0)->last_us = 1000;
  const std::vector<double> outputs(64, 1.0 / 64);
  EXPECT_FALSE(history.Remember(7, 999, 1, outputs.data(), 4));
  EXPECT_FALSE(history.Remember(6, 1000, 1, outputs.data(), 4));
  EXPECT_FALSE(history.Remember(8, 1000, 1, outputs.data(), 4));
  EXPECT_FALSE(history.Remember(7, 1000, 1, outputs.data(), history.max_buckets() + 1));
  History::Forecast forecast;
  EXPECT_FALSE(history.Recall(8, &forecast));
  ASSERT_TRUE(history.Recall(7, &forecast));
  EXPECT_EQ(forecast.buckets, 0u);
  // Nothing that could be divided by.
  const std::vector<double> nothing(4, 0.0);
  ASSERT_TRUE(history.Remember(7, 1000, 1, nothing.data(), 4));
  ASSERT_TRUE(history.Recall(7, &forecast));
  EXPECT_EQ(forecast.buckets, 0u);
}

}  // namespace
}  // namespace smartcache

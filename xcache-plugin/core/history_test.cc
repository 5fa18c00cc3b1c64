#include "smartcache/history.hh"

#include <gtest/gtest.h>

namespace smartcache {
namespace {

using Kind = History::Kind;

TEST(History, FindsWhatItWasGivenByKeyAndKind) {
  History history({65536}, 4);
  History::Entry* file = history.Insert(7, Kind::kFile, nullptr);
  EXPECT_EQ(history.Find(7, Kind::kFile), file);
  EXPECT_EQ(history.Find(7, Kind::kDataset), nullptr);
  EXPECT_EQ(history.Find(8, Kind::kFile), nullptr);
  EXPECT_EQ(history.files(), 1u);
  EXPECT_EQ(history.datasets(), 0u);
}

TEST(History, StaysWithinItsMemoryAndForgetsTheOldest) {
  for (const int64_t bound : {65536, 100000, 1 << 20}) {
    History history({bound}, 4);
    uint64_t last = 0;
    for (uint64_t key = 1; key <= 20000; ++key) {
      history.Insert(key * 0x9e3779b97f4a7c15ull, Kind::kFile, nullptr);
      EXPECT_LE(history.memory_bytes(), static_cast<uint64_t>(bound));
      last = key;
    }
    const uint64_t kept = history.files();
    EXPECT_GT(kept, static_cast<uint64_t>(bound) / 400);
    for (uint64_t key = 1; key <= last; ++key)
      EXPECT_EQ(history.Find(key * 0x9e3779b97f4a7c15ull, Kind::kFile) != nullptr, key > last - kept) << key;
  }
}

TEST(History, TouchedEntriesStayAndKeptOnesAreNeverTheVictim) {
  History history({65536}, 4);
  History::Entry* keep = history.Insert(1, Kind::kDataset, nullptr);
  uint64_t key = 2;
  history.Insert(key++, Kind::kFile, nullptr);
  while (history.Find(2, Kind::kFile)) history.Insert(key++, Kind::kFile, keep);  // 1 is older than 2, and yet 2 goes
  EXPECT_EQ(history.Find(1, Kind::kDataset), keep);
  history.Touch(keep);
  const uint64_t kept = history.files();
  for (uint64_t i = 0; i < kept; ++i) {
    EXPECT_NE(history.Find(1, Kind::kDataset), nullptr);
    history.Insert(key++, Kind::kFile, nullptr);
  }
  history.Insert(key++, Kind::kFile, nullptr);
  EXPECT_EQ(history.Find(1, Kind::kDataset), nullptr);
}

}  // namespace
}  // namespace smartcache

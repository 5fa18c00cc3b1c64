#include "recent_looks.hh"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace smartcache {
namespace {

constexpr FileState kFound{true, 1234, 0.5f};

TEST(RecentLooks, GoodForASecond) {
  RecentLooks looks;
  EXPECT_FALSE(looks.Find("/a", 0));
  looks.Put("/a", 5, kFound);
  const auto found = looks.Find("/a", 5 + RecentLooks::kGoodForUs - 1);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->on_disk);
  EXPECT_EQ(found->size, 1234);
  EXPECT_EQ(found->read_share, 0.5f);
  EXPECT_FALSE(looks.Find("/a", 5 + RecentLooks::kGoodForUs));
  EXPECT_FALSE(looks.Find("/b", 6));
}

TEST(RecentLooks, AbsenceIsNotRemembered) {
  RecentLooks looks;
  looks.Put("/a", 0, FileState());
  EXPECT_FALSE(looks.Find("/a", 1));
}

TEST(RecentLooks, WhatIsRemovedIsForgotten) {
  RecentLooks looks;
  looks.Put("/a", 0, kFound);
  looks.Put("/b", 0, kFound);
  looks.Forget("/a");
  looks.Forget("/never seen");
  EXPECT_FALSE(looks.Find("/a", 1));
  EXPECT_TRUE(looks.Find("/b", 1));
}

TEST(RecentLooks, OfMoreFilesThanThereIsRoomForEachIsFoundAsItIsOrNotAtAll) {
  RecentLooks looks;
  constexpr int kFiles = 20000;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&looks, thread] {
      for (int file = thread; file < kFiles; file += 4) {
        const std::string lfn = "/" + std::to_string(file);
        looks.Put(lfn, 0, {true, file, -1.0f});
        const auto found = looks.Find(lfn, 1);
        if (found) {
          EXPECT_EQ(found->size, file);
        }
      }
    });
  for (std::thread& each : threads) each.join();
  int left = 0;
  for (int file = 0; file < kFiles; ++file)
    if (const auto found = looks.Find("/" + std::to_string(file), 1)) {
      EXPECT_EQ(found->size, file);
      ++left;
    }
  EXPECT_GT(left, 3500);
  EXPECT_LE(left, 4096);
}

}  // namespace
}  // namespace smartcache

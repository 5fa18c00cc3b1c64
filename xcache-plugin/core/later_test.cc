#include "smartcache/later.hh"

#include <atomic>
#include <mutex>

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using testing::WaitUntil;

Open At(int64_t t_us, const std::string& lfn) { return {t_us, lfn, true, -1, -1}; }

// A task that does one open after the other.
Later::Task Each(std::function<void(const Open&)> task) {
  return [task = std::move(task)](const std::vector<KeptOpen>& opens) {
    for (const KeptOpen& each : opens) task(each.open);
  };
}

TEST(Later, DoesAllOfItInItsOrder) {
  std::vector<std::string> done;
  {
    Later later(Each([&](const Open& open) { done.push_back(std::string(open.lfn) + " " + std::to_string(open.t_us)); }), 1, 1000);
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(later.Add(At(i, "/a/" + std::to_string(i))));
  }  // the end does what is left
  ASSERT_EQ(done.size(), 500u);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], "/a/" + std::to_string(i) + " " + std::to_string(i));
}

TEST(Later, IsFullAtItsCapacity) {
  std::atomic<bool> go{false};
  std::atomic<int> done{0};
  Later later(Each([&](const Open&) {
                EXPECT_TRUE(WaitUntil([&] { return go.load(); }));
                ++done;
              }),
              1, 3);
  ASSERT_TRUE(later.Add(At(1, "/being/done")));
  ASSERT_TRUE(WaitUntil([&] {  // it has left the queue
    while (later.Add(At(2, "/waits"))) {
    }
    return later.waiting() == 4;
  }));
  EXPECT_FALSE(later.Add(At(3, "/too/much")));
  go = true;
  EXPECT_TRUE(WaitUntil([&] { return later.waiting() == 0; }));
  EXPECT_EQ(done, 4);
  EXPECT_TRUE(later.Add(At(4, "/there/is/room")));
}

TEST(Later, WakesUpAfterAQuietTime) {
  std::atomic<int> done{0};
  Later later(Each([&](const Open&) { ++done; }), 2, 10);
  for (int i = 1; i <= 2; ++i) {
    std::this_thread::sleep_for(Later::kAwake * 2);  // the threads sleep
    ASSERT_TRUE(later.Add(At(1, "/a")));
    EXPECT_TRUE(WaitUntil([&] { return done == i; }));
  }
}

TEST(Later, ASleepingThreadIsCalledWhileAnotherIsAtWork) {
  std::atomic<bool> go{false};
  std::atomic<int> done{0};
  Later later(Each([&](const Open& open) {
                if (open.lfn == "/long") {
                  EXPECT_TRUE(WaitUntil([&] { return go.load(); }));
                }
                ++done;
              }),
              2, 10);
  ASSERT_TRUE(later.Add(At(1, "/long")));
  std::this_thread::sleep_for(Later::kAwake * 2);  // one is at work, the other sleeps
  ASSERT_TRUE(later.Add(At(2, "/short")));
  EXPECT_TRUE(WaitUntil([&] { return done == 1; }));
  go = true;
}

TEST(Later, WorkThatTakesLongIsDoneBySeveral) {
  std::atomic<int> at_work{0}, most{0};
  Later later(Each([&](const Open&) {
                const int now = ++at_work;
                for (int before = most; before < now && !most.compare_exchange_weak(before, now);) {
                }
                EXPECT_TRUE(WaitUntil([&] { return most == 3; }));  // until all three are
                --at_work;
              }),
              3, 10);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(later.Add(At(i, "/at/once")));
  EXPECT_TRUE(WaitUntil([&] { return later.waiting() == 0; }));
  EXPECT_EQ(most, 3);
}

TEST(Later, WhatCameMeanwhileIsDoneAtOnce) {
  std::atomic<bool> go{false};
  std::atomic<size_t> at_once{1};
  std::atomic<int> begun{0};
  std::mutex mutex;
  std::vector<size_t> counts;
  std::vector<int64_t> times;
  Later later(
      [&](const std::vector<KeptOpen>& opens) {
        ++begun;
        EXPECT_TRUE(WaitUntil([&] { return go.load(); }));
        const std::lock_guard<std::mutex> lock(mutex);
        counts.push_back(opens.size());
        for (const KeptOpen& each : opens) times.push_back(each.open.t_us);
      },
      1, 100, [&] { return at_once.load(); });
  ASSERT_TRUE(later.Add(At(0, "/first")));
  ASSERT_TRUE(WaitUntil([&] { return begun == 1; }));
  at_once = 8;
  for (int i = 1; i <= 20; ++i) ASSERT_TRUE(later.Add(At(i, "/a/longer/name/than/a/string/keeps/in/itself")));
  EXPECT_EQ(later.waiting(), 21u);
  go = true;
  ASSERT_TRUE(WaitUntil([&] { return later.waiting() == 0; }));
  EXPECT_EQ(counts, (std::vector<size_t>{1, 8, 8, 4}));
  for (size_t i = 0; i < times.size(); ++i) EXPECT_EQ(times[i], static_cast<int64_t>(i));
}

TEST(Later, ASecondThreadIsCalledOnceThereIsEnoughForIt) {
  std::atomic<bool> go{false};
  std::atomic<int> tasks{0};
  Later later(
      [&](const std::vector<KeptOpen>&) {
        ++tasks;
        EXPECT_TRUE(WaitUntil([&] { return go.load(); }));
      },
      2, 100, [] { return size_t{8}; });
  ASSERT_TRUE(later.Add(At(0, "/first")));
  ASSERT_TRUE(WaitUntil([&] { return tasks == 1; }));
  std::this_thread::sleep_for(Later::kAwake * 2);  // the other one sleeps
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(later.Add(At(i, "/not/enough")));
  std::this_thread::sleep_for(Later::kLookEvery * 3);
  EXPECT_EQ(tasks, 1);
  ASSERT_TRUE(later.Add(At(8, "/enough")));
  EXPECT_TRUE(WaitUntil([&] { return tasks == 2; }));
  go = true;
}

TEST(Later, ManyThreadsHandOver) {
  std::atomic<int> done{0}, refused{0};
  constexpr int kThreads = 8, kEach = 2000;
  {
    Later later(Each([&](const Open& open) { done += open.on_disk && open.lfn == "/some/file"; }), 4, 100);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i)
          if (!later.Add(At(i, "/some/file"))) ++refused;
      });
    for (std::thread& each : threads) each.join();
  }
  EXPECT_EQ(done + refused, kThreads * kEach);
}

}  // namespace
}  // namespace smartcache

#include "smartcache/evictor.hh"

#include <cerrno>
#include <mutex>

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using testing::WaitUntil;

class EvictorTest : public ::testing::Test {
 protected:
  EvictorOptions options_ = [] {
    EvictorOptions options;
    options.first_delay_s = 0.01;
    options.max_delay_s = 0.02;
    options.look_every_s = 0.005;
    options.max_attempts = 5;
    return options;
  }();
  Counters counters_;
  std::atomic<int> result_{0}, calls_{0};
  Evictor::Unlink unlink_ = [this](const std::string&) {
    ++calls_;
    return result_.load();
  };
  bool Becomes(EvictionResult result) {
    return WaitUntil([&] { return counters_.evictions(result) == 1; });
  }
};

TEST_F(EvictorTest, RemovesAndCounts) {
  Evictor evictor(unlink_, &counters_, options_);
  evictor.Add("/a");
  EXPECT_TRUE(Becomes(EvictionResult::kDone));
  EXPECT_TRUE(WaitUntil([&] { return evictor.pending() == 0; }));
  EXPECT_EQ(calls_, 1);
}

TEST_F(EvictorTest, WaitsWhileTheFileIsOpen) {
  result_ = -EBUSY;
  options_.max_attempts = 1000;
  Evictor evictor(unlink_, &counters_, options_);
  evictor.Add("/a");
  ASSERT_TRUE(WaitUntil([&] { return calls_ >= 3; }));
  EXPECT_EQ(evictor.pending(), 1u);
  result_ = 0;
  EXPECT_TRUE(Becomes(EvictionResult::kDone));
}

TEST_F(EvictorTest, GivesUpAFileThatNeverCloses) {
  result_ = -EBUSY;
  Evictor evictor(unlink_, &counters_, options_);
  evictor.Add("/a");
  EXPECT_TRUE(Becomes(EvictionResult::kGaveUp));
  EXPECT_EQ(calls_, options_.max_attempts);
}

TEST_F(EvictorTest, AbsentIsNoFailureAndOtherErrorsAreNotTriedAgain) {
  Evictor evictor(unlink_, &counters_, options_);
  result_ = -ENOENT;
  evictor.Add("/a");
  EXPECT_TRUE(Becomes(EvictionResult::kAbsent));
  result_ = -EIO;
  evictor.Add("/b");
  EXPECT_TRUE(Becomes(EvictionResult::kGaveUp));
  EXPECT_EQ(calls_, 2);
}

TEST_F(EvictorTest, ALaterOpenCancels) {
  options_.first_delay_s = 1000;
  Evictor evictor(unlink_, &counters_, options_);
  evictor.Add("/a");
  evictor.Cancel("/other");
  EXPECT_EQ(evictor.pending(), 1u);
  evictor.Cancel("/a");
  EXPECT_EQ(evictor.pending(), 0u);
  EXPECT_EQ(counters_.evictions(EvictionResult::kCancelled), 1u);
}

// A champion that scores everything low must not empty the cache.
TEST_F(EvictorTest, OnlySoManyFilesAreRemovedInAPeriod) {
  options_.limit = 3;
  options_.limit_period_s = 1000;
  Evictor evictor(unlink_, &counters_, options_);
  for (int i = 0; i < 10; ++i) evictor.Add("/" + std::to_string(i));
  EXPECT_TRUE(WaitUntil([&] { return evictor.pending() == 0; }));
  EXPECT_EQ(calls_, 3);
  EXPECT_EQ(counters_.evictions(EvictionResult::kDone), 3u);
  EXPECT_EQ(counters_.evictions(EvictionResult::kLimited), 7u);
}

TEST_F(EvictorTest, TheNextPeriodRemovesAgainAndWhatWasNotRemovedDoesNotCount) {
  options_.limit = 1;
  options_.limit_period_s = 0.2;
  Evictor evictor(unlink_, &counters_, options_);
  result_ = -ENOENT;
  evictor.Add("/absent");
  ASSERT_TRUE(Becomes(EvictionResult::kAbsent));
  result_ = 0;
  evictor.Add("/a");
  ASSERT_TRUE(Becomes(EvictionResult::kDone));
  EXPECT_TRUE(WaitUntil([&] {
    if (evictor.pending() == 0) evictor.Add("/b");
    return counters_.evictions(EvictionResult::kDone) == 2;
  }));
}

TEST_F(EvictorTest, AllThatAreDueAreTriedInTheirOrder) {
  constexpr int kFiles = 500;  // more than are listed at once
  std::mutex mutex;
  std::vector<std::string> tried, wanted;
  options_.first_delay_s = 3;
  Evictor evictor(
      [&](const std::string& lfn) {
        const std::lock_guard<std::mutex> lock(mutex);
        tried.push_back(lfn);
        return 0;
      },
      &counters_, options_);
  evictor.Add("/wanted anew");
  for (int i = 0; i < kFiles; ++i) {
    wanted.push_back("/" + std::to_string(i));
    evictor.Add(wanted.back());
  }
  evictor.Add("/wanted anew");  // its delay begins again
  wanted.push_back("/wanted anew");
  evictor.Add("/cancelled");
  evictor.Cancel("/cancelled");
  ASSERT_TRUE(WaitUntil([&] { return evictor.pending() == 0; }));
  const std::lock_guard<std::mutex> lock(mutex);
  EXPECT_EQ(tried, wanted);
}

TEST_F(EvictorTest, TheQueueIsBounded) {
  options_.first_delay_s = 1000;
  options_.max_pending = 2;
  Evictor evictor(unlink_, &counters_, options_);
  for (const char* lfn : {"/a", "/b", "/c", "/a"}) evictor.Add(lfn);
  EXPECT_EQ(evictor.pending(), 2u);
  EXPECT_EQ(counters_.evictions(EvictionResult::kDropped), 1u);
}

}  // namespace
}  // namespace smartcache

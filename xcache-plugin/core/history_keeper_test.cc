#include "smartcache/history_keeper.hh"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "smartcache/features.hh"
#include "testing/fixtures.hh"

namespace smartcache {
namespace {

namespace fs = std::filesystem;
using testing::WaitUntil;

constexpr int64_t kT0 = INT64_C(1760000000000000);

// A history with its file, as the decider has it.
class Cache {
 public:
  Cache(const Config& config, int64_t boot_us, Log log) : boot_us_(boot_us), core_(config) {
    keeper_ = std::make_unique<HistoryKeeper>(
        config, &core_.history(), &mutex_,
        [this] {
          return HistoryState{boot_us_, seq_, kT0, false};
        },
        &counters_, std::move(log));
    keeper_->Start();
  }
  ~Cache() { keeper_.reset(); }
  void Open(const std::string& lfn) {
    ParsedLfn parsed;
    std::vector<float> row(core_.schema().names.size());
    core_.Parse(lfn, &parsed);
    const std::lock_guard<std::mutex> lock(mutex_);
    ++seq_;
    core_.Observe({kT0, lfn, false, -1, -1}, parsed, row.data());
  }
  uint64_t files() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return core_.history().files();
  }
  const std::optional<HistoryState>& restored() const { return keeper_->restored(); }
  Counters& counters() { return counters_; }

 private:
  const int64_t boot_us_;
  uint64_t seq_ = 0;
  std::mutex mutex_;
  Counters counters_;
  FeatureCore core_;
  std::unique_ptr<HistoryKeeper> keeper_;
};

class HistoryKeeperTest : public ::testing::Test {
 protected:
  HistoryKeeperTest() : config_(ParseConfig("[history]\nmemory_bytes = 1000000", "test")) {
    config_.history.file = folder_ / "history";
    config_.history.save_s = 1000;
  }
  Cache Start(int64_t boot_us) { return {config_, boot_us, log_.sink()}; }
  // The files that were set aside.
  std::vector<std::string> Bad() const {
    std::vector<std::string> names;
    for (const auto& each : fs::directory_iterator(folder_.path()))
      if (each.path().filename().string().rfind("history.bad-", 0) == 0) names.push_back(each.path().filename().string());
    return names;
  }
  void WriteOne() {
    Cache cache = Start(1);
    for (int i = 0; i < 10; ++i) cache.Open("/a/" + std::to_string(i));
  }

  testing::TempFolder folder_;
  testing::LogLines log_;
  Config config_;
};

TEST_F(HistoryKeeperTest, SavedAtTheEndAndRestored) {
  {
    Cache cache = Start(1);
    EXPECT_FALSE(cache.restored());
    cache.Open("/a/b");
    cache.Open("/a/c");
  }
  Cache cache = Start(2);
  ASSERT_TRUE(cache.restored());
  EXPECT_EQ(cache.restored()->boot_us, 1);
  EXPECT_EQ(cache.restored()->seq, 2u);
  EXPECT_EQ(cache.files(), 2u);
  EXPECT_TRUE(log_.Has("is not there yet"));
  EXPECT_TRUE(log_.Has("history restored: 2 files, 1 datasets"));
  EXPECT_NE(cache.counters().Text({}).find("smartcache_history_saved_timestamp_seconds 1"), std::string::npos);
}

TEST_F(HistoryKeeperTest, SavedInTheBackgroundAndOnlyWhenSomethingWasOpened) {
  config_.history.save_s = 0.005;
  Cache cache = Start(1);
  cache.Open("/a/b");
  ASSERT_TRUE(WaitUntil([&] { return cache.counters().history_saves(true) == 1; }));
  const auto first = fs::last_write_time(folder_ / "history");
  EXPECT_FALSE(WaitUntil([&] { return cache.counters().history_saves(true) > 1; }, 0.1));
  EXPECT_EQ(fs::last_write_time(folder_ / "history"), first);
  cache.Open("/a/c");
  EXPECT_TRUE(WaitUntil([&] { return cache.counters().history_saves(true) == 2; }));
  EXPECT_FALSE(fs::exists(folder_ / "history.tmp"));
}

TEST_F(HistoryKeeperTest, WhatCannotBeUsedIsSetAside) {
  WriteOne();
  const std::string good = testing::ReadFile(folder_ / "history");
  std::string flipped = good, version = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 4);
  version[8] = 9;
  const std::pair<std::string, std::string> cases[] = {{flipped, "is damaged"},
                                                       {version, "has version 9"},
                                                       {good.substr(0, good.size() / 2), "is truncated"},
                                                       {"", "is not a saved history"},
                                                       {"{}", "is not a saved history"}};
  for (const auto& [text, message] : cases) {
    testing::WriteFile(folder_ / "history", text);
    testing::LogLines log;
    {
      Cache cache(config_, 2, log.sink());
      EXPECT_FALSE(cache.restored());
      EXPECT_EQ(cache.files(), 0u);
      EXPECT_EQ(log.Count(""), 1u);
      EXPECT_TRUE(log.Has(message)) << message;
      EXPECT_TRUE(log.Has("[history] file must be"));
      EXPECT_TRUE(log.Has("the history begins empty"));
      ASSERT_EQ(Bad().size(), 1u);
      EXPECT_EQ(testing::ReadFile(folder_ / Bad()[0]), text);
      cache.Open("/new/file");
    }
    EXPECT_TRUE(Cache(config_, 3, log.sink()).restored());  // and it is kept again
    fs::remove(folder_ / Bad()[0]);
  }
}

TEST_F(HistoryKeeperTest, AnotherConfigurationBeginsEmpty) {
  WriteOne();
  config_.dataset.levels = 2;
  EXPECT_FALSE(Start(2).restored());
  EXPECT_TRUE(log_.Has("was saved under another [dataset]"));
  EXPECT_EQ(Bad().size(), 1u);
}

TEST_F(HistoryKeeperTest, WhatIsNoFileIsSetAsideAndHoldsUpNobody) {
  ASSERT_EQ(::mkfifo(config_.history.file.c_str(), 0600), 0);
  EXPECT_FALSE(Start(1).restored());
  EXPECT_TRUE(log_.Has("is no file"));
  EXPECT_EQ(Bad().size(), 1u);
}

TEST_F(HistoryKeeperTest, AFolderThatIsNotThereIsSaidOnce) {
  config_.history.file = folder_ / "missing/history";
  config_.history.save_s = 0.002;
  {
    Cache cache = Start(1);
    cache.Open("/a/b");
    EXPECT_TRUE(WaitUntil([&] { return cache.counters().history_saves(false) >= 3; }));
    EXPECT_EQ(log_.Count("No such file or directory"), 1u);
    fs::create_directory(folder_ / "missing");
    EXPECT_TRUE(WaitUntil([&] { return cache.counters().history_saves(true) == 1; }));
  }
  EXPECT_TRUE(Start(2).restored());
}

// A file that may not grow is what a full disk is to the writer.
TEST_F(HistoryKeeperTest, WhereTheDiskIsFullTheFileBeforeStays) {
  WriteOne();
  const std::string before = testing::ReadFile(folder_ / "history");
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit little{before.size() + 100, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  {
    Cache cache = Start(2);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
    for (int i = 0; i < 1000; ++i) cache.Open("/b/" + std::to_string(i));
  }
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(log_.Has("File too large"));
  EXPECT_TRUE(testing::ReadFile(folder_ / "history") == before);
  EXPECT_FALSE(fs::exists(folder_ / "history.tmp"));
  EXPECT_EQ(Start(3).restored()->boot_us, 1);
}

TEST_F(HistoryKeeperTest, WhatAKilledServerLeftIsInNobodysWay) {
  testing::WriteFile(folder_ / "history.tmp", "half of it");
  WriteOne();
  EXPECT_TRUE(Start(2).restored());
}

}  // namespace
}  // namespace smartcache

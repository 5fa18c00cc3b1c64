#include "smartcache/watermark.hh"

#include <cerrno>

#include "smartcache/decider.hh"
#include "testing/fake_disk.hh"
#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using testing::FakeDisk;
using testing::WaitUntil;

constexpr int64_t kT0 = INT64_C(1760000000000000), kHourUs = INT64_C(3600000000);

class WatermarkTest : public ::testing::Test {
 protected:
  WatermarkTest() {
    config_ = ParseConfig("[policy]\nexplore = 0\n[decision_log]\nport = 0\n[evictor]\nhigh = 0.9\nlow = 0.5\nscan_s = 0.01\n", "test");
    options_.look_every_s = 0.01;
    options_.longest_pause_s = 0.02;
    disk_.Total(1000);
  }

  void MakeDecider(bool with_model = true) {
    if (with_model) {
      config_.model.bundle_dir = folder_.path().string();
      config_.model.endpoint_url = server_.url();
      config_.model.poll_s = 0.01;
      config_.model.deadline_ms = 5000;
      testing::Install(folder_.path(), "reuse_v1", testing::BundleJson("reuse_v1", MakeSchema(config_).hash));
    }
    decider_ = std::make_unique<Decider>(config_, "host:1094", 5, 1, log_.sink());
    if (with_model) {
      ASSERT_TRUE(WaitUntil([&] { return decider_->model_name() == "reuse_v1"; }));
    }
  }
  // A file on disk whose last open, at `t_us`, was given the probability `soon` of another within the hour; -1: no prediction.
  void File(const std::string& lfn, int64_t bytes, double soon, int64_t t_us = kT0) {
    disk_.Put(lfn, {bytes, t_us, ""});
    if (soon < 0) return;
    server_.RespondJson("[" + std::to_string(soon) + ",0," + std::to_string(1 - soon) + "]");
    decider_->Decide(t_us, lfn, true, bytes, -1);
  }
  void Start() {
    watermark_ = std::make_unique<Watermark>(
        config_.evictor, false, &disk_, decider_.get(), [this](const std::string& lfn) { return disk_.Unlink(lfn); },
        [this] { return now_us_.load(); }, log_.sink(),
        Trace(config_.trace.concerns, [this](Concern, const std::string& text) { log_.sink()(text); }), options_);
  }
  uint64_t runs(RunResult result) const { return decider_->counters()->runs(result); }
  uint64_t files(FileResult result) const { return decider_->counters()->run_files(result); }
  bool Ran(RunResult result) {
    return WaitUntil([&] { return runs(result) > 0; });
  }

  testing::TempFolder folder_;
  testing::Server server_;
  testing::LogLines log_;
  FakeDisk disk_;
  Config config_;
  WatermarkOptions options_;
  std::atomic<int64_t> now_us_{kT0};
  std::unique_ptr<Decider> decider_;
  std::unique_ptr<Watermark> watermark_;  // before the others go
};

TEST_F(WatermarkTest, RemovesTheLeastLikelyDownToTheLowMark) {
  MakeDecider();
  const double soon[] = {0.9, 0.1, 0.8, 0.2, 0.7, 0.3, 0.6, 0.4, 0.5, 0.05};
  for (int i = 0; i < 10; ++i) File("/f" + std::to_string(i), 95, soon[i]);
  Start();
  ASSERT_TRUE(Ran(RunResult::kReached));
  EXPECT_EQ(disk_.removed(), (std::vector<std::string>{"/f9", "/f1", "/f3", "/f5", "/f7"}));
  EXPECT_EQ(files(FileResult::kRemoved), 5u);
  EXPECT_EQ(decider_->counters()->removed_bytes(), 5u * 95);
  EXPECT_TRUE(WaitUntil([&] { return watermark_->fill() == 0.475f; }));
  EXPECT_TRUE(WaitUntil([&] { return log_.Count("evictor: 95.0 % used; removed 5 files") == 1; }));
  // Hysteresis: between the marks nothing goes.
  const int walks = disk_.walks();
  File("/new", 300, 0.0);
  EXPECT_TRUE(WaitUntil([&] { return watermark_->fill() == 0.775f; }));
  EXPECT_EQ(disk_.walks(), walks);
  EXPECT_EQ(runs(RunResult::kReached), 1u);
}

TEST_F(WatermarkTest, PerByteALargeFileGoesBeforeASmallOneUnlessBytesAreTheBenefit) {
  for (const bool per_open : {true, false}) {
    config_.evictor.benefit_per_open = per_open;
    disk_.Total(1000);
    MakeDecider();
    File("/large", 700, 0.5);
    File("/small", 250, 0.4);
    config_.evictor.low = per_open ? 0.5 : 0.8;
    Start();
    ASSERT_TRUE(Ran(RunResult::kReached));
    EXPECT_EQ(disk_.removed().back(), per_open ? "/large" : "/small");
    watermark_.reset();
    disk_.Unlink("/large");
    disk_.Unlink("/small");
  }
}

TEST_F(WatermarkTest, PredictionsAge) {
  MakeDecider();
  // At its open the first was the better one; now that its hour has passed without one, it is not.
  File("/soon_or_never", 475, 0.9);
  File("/just_opened", 475, 0.3, kT0 + 2 * kHourUs);
  now_us_ = kT0 + 2 * kHourUs;
  Start();
  ASSERT_TRUE(Ran(RunResult::kReached));
  EXPECT_EQ(disk_.removed(), std::vector<std::string>{"/soon_or_never"});
}

TEST_F(WatermarkTest, FilesWithoutAPredictionGoByAge) {
  MakeDecider();
  File("/old", 300, -1, kT0 - 100 * kHourUs);
  File("/older", 300, -1, kT0 - 200 * kHourUs);
  File("/new", 300, -1, kT0 - kHourUs);
  File("/hopeless", 20, 0.0);
  File("/hot", 20, 0.99);
  config_.evictor.low = 0.6;
  Start();
  ASSERT_TRUE(Ran(RunResult::kReached));
  EXPECT_EQ(disk_.removed(), (std::vector<std::string>{"/hopeless", "/older", "/old"}));
}

TEST_F(WatermarkTest, AnOpenFileStaysAndTheNextGoesInstead) {
  MakeDecider();
  for (int i = 0; i < 10; ++i) File("/f" + std::to_string(i), 95, 0.1 * i);
  disk_.Busy("/f0");
  Start();
  ASSERT_TRUE(Ran(RunResult::kReached));
  EXPECT_EQ(disk_.removed(), (std::vector<std::string>{"/f1", "/f2", "/f3", "/f4", "/f5"}));
  EXPECT_EQ(files(FileResult::kBusy), 1u);
}

TEST_F(WatermarkTest, WhereAllIsOpenItWaitsLongerEachTime) {
  MakeDecider();
  for (int i = 0; i < 10; ++i) {
    File("/f" + std::to_string(i), 95, 0.1 * i);
    disk_.Busy("/f" + std::to_string(i));
  }
  options_.longest_pause_s = 1000;
  Start();
  ASSERT_TRUE(WaitUntil([&] { return runs(RunResult::kShort) >= 5; }));
  EXPECT_TRUE(disk_.removed().empty());
  // 0.01, 0.02, 0.04, ...: by now a run comes later than the next look.
  const int walks = disk_.walks();
  EXPECT_LE(walks, 12);
  EXPECT_TRUE(log_.Has("the low mark was not reached"));
}

TEST_F(WatermarkTest, AFileOpenedSinceItWasRankedStays) {
  MakeDecider();
  for (int i = 0; i < 10; ++i) File("/f" + std::to_string(i), 95, 0.05 * i);
  config_.evictor.files_per_minute = 1;
  options_.limit_period_s = 3;
  Start();
  ASSERT_TRUE(WaitUntil([&] { return !disk_.removed().empty(); }));
  decider_->Decide(kT0 + 1000000, "/f2", true, 95, -1);  // while the limit holds the run up
  ASSERT_TRUE(Ran(RunResult::kReached));
  EXPECT_EQ(files(FileResult::kOpenedAgain), 1u);
  EXPECT_EQ(disk_.removed(), (std::vector<std::string>{"/f0", "/f1", "/f3", "/f4", "/f5"}));
}

// A run may take as long as its limit makes it: opens go by the fill meanwhile, and pfc removes files too.
TEST_F(WatermarkTest, ARunLooksAtTheDiskMeanwhileAndEndsWhereOthersMadeRoom) {
  MakeDecider();
  for (int i = 0; i < 10; ++i) File("/f" + std::to_string(i), 95, 0.05 * i);
  config_.evictor.files_per_minute = 1;
  options_.limit_period_s = 1000;
  Start();
  ASSERT_TRUE(WaitUntil([&] { return watermark_->fill() == 0.855f; }));
  for (const char* lfn : {"/f9", "/f8", "/f7"}) disk_.Unlink(lfn);
  ASSERT_TRUE(WaitUntil([&] { return watermark_->fill() == 0.57f; }));
  EXPECT_EQ(runs(RunResult::kReached), 0u);
  disk_.Unlink("/f6");
  ASSERT_TRUE(Ran(RunResult::kReached));
  EXPECT_EQ(files(FileResult::kRemoved), 1u);
}

TEST_F(WatermarkTest, ItEndsWhileTheLimitHoldsItUp) {
  MakeDecider();
  for (int i = 0; i < 10; ++i) File("/f" + std::to_string(i), 95, 0.05 * i);
  config_.evictor.files_per_minute = 1;
  options_.limit_period_s = 1000;
  Start();
  ASSERT_TRUE(WaitUntil([&] { return !disk_.removed().empty(); }));
  watermark_.reset();
  EXPECT_EQ(disk_.removed().size(), 1u);
}

TEST_F(WatermarkTest, DryRunRemovesNothingAndSaysWhatItWould) {
  config_.evictor.dry_run = true;
  config_.trace.concerns = static_cast<unsigned>(Concern::kEvictor);
  MakeDecider();
  for (int i = 0; i < 10; ++i) File("/f" + std::to_string(i), 95, 0.05 * i);
  Start();
  ASSERT_TRUE(Ran(RunResult::kDryRun));
  EXPECT_TRUE(disk_.removed().empty());
  EXPECT_TRUE(WaitUntil([&] { return log_.Has("would remove 5 files"); }));
  EXPECT_TRUE(log_.Has("worst 1: \"/f0\", 95 bytes"));
}

TEST_F(WatermarkTest, WithoutAModelItLeavesAllToPfc) {
  MakeDecider(false);
  for (int i = 0; i < 10; ++i) File("/f" + std::to_string(i), 95, -1);
  Start();
  ASSERT_TRUE(Ran(RunResult::kNoModel));
  EXPECT_TRUE(disk_.removed().empty());
  EXPECT_EQ(watermark_->fill(), 0.95f);
}

// Without a model, too: what its caches hold no more goes first, in the order of the last access, and then what has the lowest vote.
TEST_F(WatermarkTest, ThePortfolioRanksWhatGoes) {
  config_.portfolio.enabled = true;
  MakeDecider(false);
  decider_->Room(500);
  ASSERT_TRUE(WaitUntil([&] { return decider_->votes(); }));
  for (int i = 0; i < 10; ++i) disk_.Put("/f" + std::to_string(i), {95, kT0 + i, ""});
  // Twice each, one after the other: there is room for five.
  for (const int i : {9, 8, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4}) decider_->Decide(kT0 + i, "/f" + std::to_string(i), true, 95, -1);
  ASSERT_TRUE(WaitUntil([&] { return decider_->Worth("/f8") == -1.0 && decider_->Worth("/f4").value_or(-1) > 0; }));
  Start();
  ASSERT_TRUE(Ran(RunResult::kReached));
  auto removed = disk_.removed();
  std::sort(removed.begin(), removed.end());
  EXPECT_EQ(removed, (std::vector<std::string>{"/f5", "/f6", "/f7", "/f8", "/f9"}));
}

TEST_F(WatermarkTest, WhatOthersFillTheDiskWithIsNotPaidForByTheCache) {
  MakeDecider();
  disk_.Total(1000, 900);
  File("/f", 50, 0.0);
  Start();
  ASSERT_TRUE(WaitUntil([&] { return runs(RunResult::kOthers) >= 2; }));
  EXPECT_TRUE(disk_.removed().empty());
  EXPECT_EQ(log_.Count("something else fills the disk"), 1u);
}

TEST_F(WatermarkTest, ACacheThatSharesItsDiskIsMeasuredByItsFiles) {
  config_.evictor.capacity_bytes = 1000;
  MakeDecider();
  disk_.Total(1000000, 1);
  for (int i = 0; i < 10; ++i) File("/f" + std::to_string(i), 95, 0.05 * i);
  Start();
  ASSERT_TRUE(Ran(RunResult::kReached));
  EXPECT_EQ(disk_.removed().size(), 5u);
  EXPECT_TRUE(WaitUntil([&] { return watermark_->fill() == 0.475f; }));
  EXPECT_NE(decider_->CountersText().find("smartcache_cache_used_bytes 475"), std::string::npos);
  EXPECT_NE(decider_->CountersText().find("smartcache_cache_size_bytes 1000"), std::string::npos);
}

TEST_F(WatermarkTest, ADiskThatIsNotKnownHasNoFill) {
  MakeDecider(false);
  disk_.Total(0);
  Start();
  EXPECT_EQ(watermark_->fill(), -1.0f);
  disk_.Total(1000, 100);
  EXPECT_TRUE(WaitUntil([&] { return watermark_->fill() == 0.1f; }));
  disk_.Total(0);
  EXPECT_TRUE(WaitUntil([&] { return watermark_->fill() == -1.0f; }));
}

}  // namespace
}  // namespace smartcache

#include "smartcache/scan.hh"

#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>

#include "smartcache/decider.hh"
#include "testing/cinfo_sample.hh"
#include "testing/fake_disk.hh"
#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using testing::CinfoSample;
using testing::FakeDisk;

constexpr int64_t kSecond = 1000000, kNowS = 1760000000, kDayS = 86400;

CinfoSample Sample(std::vector<CinfoSample::Record> records) {
  CinfoSample sample;
  sample.records = std::move(records);
  return sample;
}

PastOpens Past(const CinfoSample& sample) {
  Cinfo cinfo;
  std::string why;
  EXPECT_TRUE(ParseCinfo(sample.Bytes(), &cinfo, &why)) << why;
  return FromRecords(cinfo, kNowS * kSecond);
}

CinfoSample::Record Access(int64_t attach_s, int64_t detach_s, int32_t merged = 0, int64_t bytes = 1 << 19) {
  const auto duration_s = static_cast<int32_t>(static_cast<uint64_t>(detach_s) - static_cast<uint64_t>(attach_s));  // any times at all
  return {attach_s, detach_s, 1, duration_s, merged, bytes, 0, 0};
}

std::map<std::string, float> Next(FeatureCore* core, const std::string& lfn) {
  ParsedLfn parsed;
  core->Parse(lfn, &parsed);
  std::vector<float> row(core->schema().names.size());
  core->Observe(Sanitised({kNowS * kSecond, lfn, true, 1 << 20, -1}), parsed, row.data());
  std::map<std::string, float> named;
  for (size_t i = 0; i < row.size(); ++i) named[core->schema().names[i]] = row[i];
  return named;
}

// A core that saw the opens, and one that was told of them by the .cinfo files, compute the same features.
TEST(Scan, WhatIsLearntIsWhatWouldHaveBeenSeen) {
  const Config config = ParseConfig("", "test");
  FeatureCore saw(config), told(config);
  const std::map<std::string, std::vector<int64_t>> opens = {
      {"/a/b/c/d/e/f1", {kNowS - 30 * kDayS, kNowS - 3 * kDayS, kNowS - 2 * kDayS, kNowS - 3600}},
      {"/a/b/c/d/e/f2", {kNowS - 5 * kDayS}},
      {"/a/b/c/d/e/f3", {kNowS - 4 * kDayS, kNowS - 600}},
      {"/a/b/c/d/other/f4", {kNowS - kDayS}},
  };
  std::multimap<int64_t, std::string> in_order;
  for (const auto& [lfn, times] : opens) {
    std::vector<CinfoSample::Record> records;
    for (const int64_t t : times) {
      in_order.emplace(t, lfn);
      records.push_back(Access(t, t + 60));
    }
    ParsedLfn parsed;
    told.Parse(lfn, &parsed);
    ASSERT_TRUE(told.Plant(told.MakeSeed(Past(Sample(records))), parsed));
  }
  for (const auto& [t, lfn] : in_order) {
    ParsedLfn parsed;
    saw.Parse(lfn, &parsed);
    std::vector<float> row(saw.schema().names.size());
    saw.Observe(Sanitised({t * kSecond, lfn, true, 1 << 20, -1}), parsed, row.data());
  }
  for (const char* lfn : {"/a/b/c/d/e/f1", "/a/b/c/d/e/f2", "/a/b/c/d/e/new", "/a/b/c/d/other/f4"}) {
    auto expected = Next(&saw, lfn), got = Next(&told, lfn);
    for (const auto& [name, value] : expected) {
      if (name == "file_read_share" || name == "dataset_read_share") continue;  // who saw was not told
      EXPECT_NEAR(got[name], value, 1e-4) << lfn << " " << name;
    }
    if (std::string(lfn) != "/a/b/c/d/e/new") {
      EXPECT_EQ(got["file_read_share"], 0.5f);
    }
    EXPECT_EQ(got["dataset_read_share"], 0.5f);
  }
}

TEST(Scan, AMergedRecordIsManyOpens) {
  const PastOpens past = Past(Sample({Access(kNowS - 10000, kNowS - 5000, 99), Access(kNowS - 1000, kNowS - 900)}));
  EXPECT_EQ(past.count, 101u);
  double times = 0;
  for (const auto& each : past.opens) times += each.times;
  EXPECT_NEAR(times, 101, 1e-9);
  EXPECT_LE(past.opens.size(), 9u);
  EXPECT_EQ(past.opens.front().t_us, (kNowS - 10000) * kSecond);
  EXPECT_EQ(past.opens.back().t_us, (kNowS - 1000) * kSecond);
  EXPECT_EQ(past.previous_gap_us, (5050 - 1000) * kSecond);
  EXPECT_NEAR(past.log_gaps, 99 * std::log1p(50) + std::log1p(4050), 1e-6);
}

TEST(Scan, TimesThatCannotBeAreBroughtIntoOrder) {
  for (const auto& records : std::vector<std::vector<CinfoSample::Record>>{
           {Access(kNowS + 99999, kNowS + 999999), Access(5, 3)},
           {Access(INT64_MIN, INT64_MAX, INT32_MAX), Access(INT64_MAX, INT64_MIN, INT32_MAX), Access(-5, 0, -7)},
           {Access(0, 0)},
       }) {
    const PastOpens past = Past(Sample(records));
    int64_t last = 0;
    for (const auto& each : past.opens) {
      EXPECT_GE(each.t_us, last);
      EXPECT_LE(each.t_us, kNowS * kSecond);
      EXPECT_GT(each.times, 0);
      last = each.t_us;
    }
    EXPECT_GE(past.previous_gap_us, -1);
    EXPECT_TRUE(std::isfinite(past.log_gaps));
    EXPECT_GE(past.log_gaps, 0);
  }
  EXPECT_TRUE(Past(Sample({})).opens.empty());
}

TEST(Scan, SeedsAnEmptyHistoryAndLeavesWhatWasSeen) {
  testing::LogLines log;
  Decider decider(ParseConfig("[decision_log]\nport = 0\n", "test"), "host:1094", 5, 1, log.sink());
  EXPECT_TRUE(decider.scan_due());
  decider.Decide((kNowS - 5) * kSecond, "/a/seen", true, -1, -1);
  FakeDisk disk;
  const std::string good = Sample({Access(kNowS - 1000, kNowS - 900)}).Bytes();
  disk.Put("/a/seen", {10, 0, good});
  disk.Put("/a/unseen", {10, 0, good});
  disk.Put("/a/vanished", {10, 0, ""});
  disk.Put("/a/corrupt", {10, 0, good.substr(0, 70)});
  const std::atomic<bool> stop{false};
  const ScanResult result = SeedFromDisk(&disk, &decider, kNowS * kSecond, stop);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.files, 4u);
  EXPECT_EQ(result.seeded, 1u);
  EXPECT_EQ(result.known, 1u);
  EXPECT_EQ(result.unread, 2u);
  EXPECT_NE(result.why.find("\"/a/corrupt.cinfo\": it is cut off"), std::string::npos) << result.why;
  History::Forecast forecast;
  double base_rate;
  ASSERT_TRUE(decider.Recall("/a/seen", &forecast, &base_rate));
  EXPECT_EQ(forecast.last_us, (kNowS - 5) * kSecond);
  ASSERT_TRUE(decider.Recall("/a/unseen", &forecast, &base_rate));
  EXPECT_EQ(forecast.last_us, (kNowS - 1000) * kSecond);
  EXPECT_EQ(forecast.buckets, 0u);
  EXPECT_FALSE(decider.Recall("/a/corrupt", &forecast, &base_rate));
}

TEST(Scan, ADiskThatCannotBeListedIsScannedAgain) {
  testing::LogLines log;
  Decider decider(ParseConfig("[decision_log]\nport = 0\n", "test"), "host:1094", 5, 1, log.sink());
  FakeDisk disk;
  disk.Put("/a/file", {10, 0, Sample({Access(kNowS - 1000, kNowS - 900)}).Bytes()});
  disk.Listed(false);
  std::atomic<bool> known{false};
  std::atomic<int> looks{0};
  const auto looked = [&](int times) { return testing::WaitUntil([&, until = looks + times] { return looks >= until; }); };
  Scanner scanner(
      &disk, &decider,
      [&] {
        ++looks;
        return known.load();
      },
      [] { return kNowS * kSecond; }, log.sink(), 0.01);
  ASSERT_TRUE(looked(3));
  EXPECT_EQ(disk.walks(), 0);
  known = true;
  scanner.Wake();
  ASSERT_TRUE(testing::WaitUntil([&] { return log.Count("the disk could not be listed, and is scanned again") >= 2; }));
  disk.Listed(true);
  ASSERT_TRUE(testing::WaitUntil([&] { return log.Has("history: 1 of 1 files on disk learnt"); }));
  History::Forecast forecast;
  double base_rate;
  EXPECT_TRUE(decider.Recall("/a/file", &forecast, &base_rate));
  // And then no more.
  const int walks = disk.walks();
  ASSERT_TRUE(looked(3));
  EXPECT_EQ(disk.walks(), walks);
}

// The history is saved while a scan goes on, or at its end by a stop: what is not known yet must not stay unknown for that.
TEST(Scan, WhatAStopInterruptsTheNextStartGoesOnWith) {
  const testing::TempFolder folder;
  Config config = ParseConfig("[decision_log]\nport = 0\n", "test");
  config.history.file = folder / "history";
  FakeDisk disk;
  for (int i = 0; i < 10; ++i) disk.Put("/a/" + std::to_string(i), {10, 0, Sample({Access(kNowS - 1000, kNowS - 900)}).Bytes()});
  {
    Decider decider(config, "host:1094", 5, 1, [](const std::string&) {});
    const std::atomic<bool> stop{true};
    ASSERT_EQ(SeedFromDisk(&disk, &decider, kNowS * kSecond, stop).seeded, 1u);
    decider.Decide(kNowS * kSecond, "/a/seen", true, -1, -1);
  }
  {
    Decider decider(config, "host:1094", 6, 1, [](const std::string&) {});
    ASSERT_TRUE(decider.scan_due());
    Scanner scanner(
        &disk, &decider, [] { return true; }, [] { return kNowS * kSecond; }, [](const std::string&) {});
    ASSERT_TRUE(testing::WaitUntil([&] { return !decider.scan_due(); }));
    History::Forecast forecast;
    double base_rate;
    for (const char* lfn : {"/a/seen", "/a/0", "/a/9"}) EXPECT_TRUE(decider.Recall(lfn, &forecast, &base_rate)) << lfn;
  }
  Decider decider(config, "host:1094", 7, 1, [](const std::string&) {});
  EXPECT_FALSE(decider.scan_due());
  config.history.scan = false;
  std::filesystem::remove(config.history.file);
  Decider without(config, "host:1094", 8, 1, [](const std::string&) {});
  EXPECT_FALSE(without.scan_due());
}

TEST(Scan, EndsWhenItIsTold) {
  Decider decider(ParseConfig("[decision_log]\nport = 0\n", "test"), "host:1094", 5, 1, [](const std::string&) {});
  FakeDisk disk;
  for (int i = 0; i < 100; ++i) disk.Put("/a/" + std::to_string(i), {10, 0, "x"});
  const std::atomic<bool> stop{true};
  const ScanResult result = SeedFromDisk(&disk, &decider, kNowS * kSecond, stop);
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.files, 1u);
}

TEST(Scan, AFullHistoryForgetsNothingForIt) {
  Decider decider(ParseConfig("[decision_log]\nport = 0\n[history]\nmemory_bytes = 65536\n", "test"), "host:1094", 5, 1,
                  [](const std::string&) {});
  decider.Decide((kNowS - 5) * kSecond, "/a/seen", true, -1, -1);
  FakeDisk disk;
  const std::string good = Sample({Access(kNowS - 1000, kNowS - 900)}).Bytes();
  for (int i = 0; i < 3000; ++i) disk.Put("/a/" + std::to_string(i), {10, 0, good});
  const std::atomic<bool> stop{false};
  const ScanResult result = SeedFromDisk(&disk, &decider, kNowS * kSecond, stop);
  EXPECT_GT(result.seeded, 100u);
  EXPECT_GT(result.known, 1000u);
  History::Forecast forecast;
  double base_rate;
  EXPECT_TRUE(decider.Recall("/a/seen", &forecast, &base_rate));
}

}  // namespace
}  // namespace smartcache

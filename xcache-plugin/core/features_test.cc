#include "smartcache/features.hh"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <random>

namespace smartcache {
namespace {

constexpr int64_t kT0 = INT64_C(1760000000000000);
constexpr int64_t kHourUs = INT64_C(3600000000);

class Watched {
 public:
  explicit Watched(const std::string& toml = "") : core_(ParseConfig(toml, "test")) {}

  std::vector<float> Row(const Open& open, const Federation& federation = {}) {
    std::vector<float> row(core_.schema().names.size());
    ParsedLfn parsed;
    core_.Parse(open.lfn, &parsed);
    core_.Observe(Sanitised(open), parsed, row.data(), federation);
    return row;
  }

  std::map<std::string, float> Named(const Open& open, const Federation& federation = {}) {
    const std::vector<float> row = Row(open, federation);
    std::map<std::string, float> named;
    for (size_t i = 0; i < row.size(); ++i) named[core_.schema().names[i]] = row[i];
    return named;
  }

  const FeatureCore& core() const { return core_; }

 private:
  FeatureCore core_;
};

TEST(Features, SchemaHashIsOfItsText) {
  const Schema schema = MakeSchema(ParseConfig("", "test"));
  EXPECT_EQ(schema.hash.size(), 16u);
  EXPECT_NE(MakeSchema(ParseConfig("[dataset]\nlevels = 4", "test")).hash, schema.hash);
  EXPECT_EQ(MakeSchema(ParseConfig("[policy]\nexplore = 0.5", "test")).hash, schema.hash);
}

TEST(Features, EveryWidthHasItsNames) {
  for (const char* toml :
       {"", "[features]\ntoken_buckets = 0", "[features]\ntoken_buckets = 64\nhalf_lives_s = [1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0]"}) {
    Watched watched(toml);
    std::vector<float> row(watched.core().schema().names.size() + 1, -77.0f);
    ParsedLfn parsed;
    FeatureCore core(ParseConfig(toml, "test"));
    core.Parse("/a/b", &parsed);
    core.Observe(Open{kT0, "/a/b", false, -1, -1}, parsed, row.data());
    EXPECT_EQ(row.back(), -77.0f);
    EXPECT_NE(row[row.size() - 2], -77.0f);
  }
}

TEST(Features, CountsAndGapsOfAFile) {
  Watched watched;
  EXPECT_EQ(watched.Named({kT0, "/a/b/f", false, -1, -1})["file_seen"], 0);
  auto second = watched.Named({kT0 + kHourUs, "/a/b/f", true, 1000, 0.5f});
  EXPECT_EQ(second["file_seen"], 1);
  EXPECT_NEAR(second["file_opens"], std::log1p(1), 1e-6);
  EXPECT_NEAR(second["file_opens_decayed_3600s"], std::log1p(0.5), 1e-6);
  EXPECT_NEAR(second["file_gap"], std::log1p(3600), 1e-5);
  EXPECT_EQ(second["file_previous_gap"], -1);
  EXPECT_NEAR(second["file_size"], std::log1p(1000), 1e-5);
  EXPECT_EQ(second["on_disk"], 1);
  EXPECT_EQ(second["fill"], 0.5f);
  EXPECT_NEAR(second["dataset_reopen_share"], 1.0 / 5, 1e-6);
  auto third = watched.Named({kT0 + 3 * kHourUs, "/a/b/f", true, 1000, 0.5f});
  EXPECT_NEAR(third["file_previous_gap"], std::log1p(3600), 1e-5);
  EXPECT_NEAR(third["dataset_reopen_share"], 2.0 / 6, 1e-6);
  EXPECT_NEAR(third["dataset_reopen_gap"], std::log1p(3600), 1e-5);
}

TEST(Features, AFirstOpenSeesItsSiblings) {
  Watched watched;
  for (int i = 0; i < 3; ++i) watched.Row({kT0 + i, "/a/b/f" + std::to_string(i), false, -1, -1});
  auto row = watched.Named({kT0 + kHourUs, "/a/b/new", false, -1, -1});
  EXPECT_EQ(row["file_seen"], 0);
  EXPECT_EQ(row["file_gap"], -1);
  EXPECT_NEAR(row["dataset_opens"], std::log1p(3), 1e-6);
  EXPECT_NEAR(row["dataset_files"], std::log1p(3), 1e-6);
  EXPECT_NEAR(row["dataset_opens_per_file"], std::log1p(1), 1e-6);
}

TEST(Features, WhatWasReadLastTime) {
  Watched watched;
  auto first = watched.Named({kT0, "/a/b/f", false, -1, -1});
  EXPECT_EQ(first["file_read_share"], -1);
  EXPECT_EQ(first["dataset_read_share"], -1);
  // Told now, which is known before this open, of the file itself; of the dataset only what earlier opens were told.
  auto second = watched.Named({kT0 + 1, "/a/b/f", true, -1, -1, 0.25f});
  EXPECT_EQ(second["file_read_share"], 0.25f);
  EXPECT_EQ(second["dataset_read_share"], -1);
  // Not told any more, as the file has been removed: the last that is known.
  EXPECT_EQ(watched.Named({kT0 + 2, "/a/b/f", false, -1, -1})["file_read_share"], 0.25f);
  auto sibling = watched.Named({kT0 + 3, "/a/b/g", true, -1, -1, 0.75f});
  EXPECT_EQ(sibling["file_read_share"], 0.75f);
  EXPECT_EQ(sibling["dataset_read_share"], 0.25f);
  EXPECT_EQ(watched.Named({kT0 + 4, "/a/b/h", false, -1, -1})["dataset_read_share"], 0.5f);
}

TEST(Features, WhatTheFederationSaw) {
  Watched watched;
  const auto federation = [](const std::map<std::string, float>& row) {
    std::vector<float> values;
    for (const char* name : {"known", "table_age", "opens_shortest", "opens", "files", "caches", "reopen_share", "part_read", "gap"})
      values.push_back(row.at(std::string("federation_") + name));
    return values;
  };
  EXPECT_EQ(federation(watched.Named({kT0, "/a/b/f", false, -1, -1})), std::vector<float>(9, -1.0f));
  Federation told;
  told.until_us = kT0 - kHourUs;
  const float hour = std::log1p(3600.0f), two = std::log1p(7200.0f);
  auto unknown = federation(watched.Named({kT0, "/a/b/f", false, -1, -1}, told));
  EXPECT_EQ(unknown[0], 0);
  EXPECT_NEAR(unknown[1], hour, 1e-5);
  EXPECT_EQ(std::vector<float>(unknown.begin() + 2, unknown.end()), std::vector<float>(7, -1.0f));
  told = {kT0 - kHourUs, true, kT0 - 2 * kHourUs, 1, 2, 3, 4, 0.5f, -1};
  auto known = federation(watched.Named({kT0, "/a/b/f", false, -1, -1}, told));
  EXPECT_NEAR(known[1], hour, 1e-5);
  EXPECT_NEAR(known[8], two, 1e-5);
  known[1] = known[8] = 0;
  EXPECT_EQ(known, (std::vector<float>{1, 0, 1, 2, 3, 4, 0.5f, -1, 0}));
  // A clock behind that of who made it.
  EXPECT_EQ(federation(watched.Named({kT0 - 5 * kHourUs, "/a/b/f", false, -1, -1}, told))[1], 0);
}

TEST(Features, AReadShareOutOfRangeIsBroughtBack) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [told, used] : std::map<float, float>{{-7.0f, -1.0f}, {0.0f, 0.0f}, {4.0f, 4.0f}, {1e30f, 4.0f}})
    EXPECT_EQ(Sanitised({kT0, "/f", true, -1, -1, told}).read_share, used);
  EXPECT_EQ(Sanitised({kT0, "/f", true, -1, -1, nan}).read_share, -1.0f);
}

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

TEST(Features, AMillionFilesInThreeThousandDatasetsFitIntoTheDefaultMemory) {
  [[maybe_unused]] const double before = ResidentBytes();
  Watched watched;
  for (int i = 0; i < 1000000; ++i)
    watched.Row({kT0 + i, "/store/mc/R/D" + std::to_string(i % 3000) + "/T/" + std::to_string(i), false, -1, -1});
  EXPECT_EQ(watched.core().history().files(), 1000000u);
  EXPECT_EQ(watched.core().history().datasets(), 3000u);
  EXPECT_LT(static_cast<double>(watched.core().history().memory_bytes()), 160e6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose shadow would be counted too
  EXPECT_LT(ResidentBytes() - before, 180e6);                        // huge pages round up
#endif
}

TEST(Features, FiniteWhateverTheClockAndTheInputs) {
  Watched watched;
  const int64_t times[] = {kT0, kT0, kT0 - 100 * kHourUs, 0, -1, INT64_MIN, INT64_MAX, INT64_MAX, kT0};
  for (const int64_t t_us : times) {
    for (const float fill : {-1.0f, 2.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const int64_t size : {INT64_C(-1), INT64_MIN, INT64_MAX}) {
        for (const float value : watched.Row({t_us, "/a/b/f", true, size, fill})) EXPECT_TRUE(std::isfinite(value));
      }
    }
  }
}

TEST(Features, AClockThatStepsBackGivesGapsOfNothing) {
  Watched watched;
  watched.Row({kT0, "/a/f", false, -1, -1});
  auto row = watched.Named({kT0 - kHourUs, "/a/f", false, -1, -1});
  EXPECT_EQ(row["file_gap"], 0);
  EXPECT_EQ(row["file_age"], 0);
  // From then on the new clock counts.
  EXPECT_NEAR(watched.Named({kT0, "/a/f", false, -1, -1})["file_gap"], std::log1p(3600), 1e-5);
}

TEST(Features, TheSameOpensGiveTheSameBitsAlsoWhileForgetting) {
  const std::string toml = "[history]\nmemory_bytes = 65536";
  Watched one(toml), other(toml);
  std::mt19937_64 random(3);
  int64_t t_us = kT0;
  for (int i = 0; i < 20000; ++i) {
    t_us += static_cast<int64_t>(random() % 100000000);
    const std::string lfn = "/s/" + std::to_string(random() % 7) + "/d/" + std::to_string(random() % 3000);
    const Open open{t_us, lfn, random() % 2 == 0, -1, 0.5f};
    const auto a = one.Row(open), b = other.Row(open);
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << i;
  }
  EXPECT_LE(one.core().history().memory_bytes(), 65536u);
}

}  // namespace
}  // namespace smartcache

#include "smartcache/cache_replay.hh"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "smartcache/decider.hh"
#include "testing/fixtures.hh"

namespace smartcache {
namespace {

constexpr int64_t kT0 = 1700000000000000, kSecond = 1000000;

class CacheReplayTest : public ::testing::Test {
 protected:
  // A model that gives every open these outputs, over the buckets 1 h, 1 d, later; horizon 1 h.
  ReplayModel Constant(const std::vector<double>& outputs, double admit = 0.5, double evict = 0.1) {
    const size_t features = MakeSchema(ParseConfig(toml_, "test")).names.size();
    return {std::make_shared<const Network>(testing::ConstantWeights(features, outputs), "test"), {3600, 86400}, 1, admit, evict};
  }
  CacheReplay Make(int64_t capacity, std::optional<ReplayModel> model = std::nullopt) {
    return CacheReplay(ParseConfig(toml_, "test"), capacity, std::move(model));
  }
  void Open(CacheReplay* replay, const std::string& lfn, int64_t size, bool asked = true, int64_t b_read = -1) {
    replay->Open({t_us_ += kSecond, lfn, size, b_read, asked});
  }

  std::string toml_ = "[history]\nmemory_bytes = 1000000\n[evictor]\nhigh = 0.9\nlow = 0.5\n";
  int64_t t_us_ = kT0;
};

TEST_F(CacheReplayTest, WithoutAModelItIsLruBetweenTheMarks) {
  CacheReplay replay = Make(1000);
  for (const char* lfn : {"/a/1", "/a/2", "/a/3"}) Open(&replay, lfn, 300);
  EXPECT_EQ(replay.used(), 900);
  Open(&replay, "/a/1", 300);
  Open(&replay, "/a/4", 300);  // 1200: /a/2, /a/3 and /a/1 go, in the order of their last opens, until 500 or less are left
  EXPECT_EQ(replay.used(), 300);
  EXPECT_EQ(replay.counters().purged_bytes, 900);
  Open(&replay, "/a/4", 300);
  Open(&replay, "/a/1", 300);
  EXPECT_EQ(replay.counters().opens, 7);
  EXPECT_EQ(replay.counters().hits, 2);
  EXPECT_EQ(replay.counters().bytes, 2100);
  EXPECT_EQ(replay.counters().missed_bytes, 1500);
  EXPECT_EQ(replay.counters().written_bytes, 1500);
}

TEST_F(CacheReplayTest, TheModelsScoreDecidesWhatIsStored) {
  CacheReplay unwanted = Make(1000, Constant({0.3, 0.3, 0.4}));
  Open(&unwanted, "/a/1", 100);
  Open(&unwanted, "/a/1", 100);
  EXPECT_EQ(unwanted.counters().bypassed, 2);
  EXPECT_EQ(unwanted.counters().written_bytes, 0);
  EXPECT_EQ(unwanted.counters().missed_bytes, 200);
  CacheReplay wanted = Make(1000, Constant({0.6, 0.3, 0.1}));
  Open(&wanted, "/a/1", 100);
  Open(&wanted, "/a/1", 100);
  EXPECT_EQ(wanted.counters().hits, 1);
  EXPECT_EQ(wanted.counters().written_bytes, 100);
}

TEST_F(CacheReplayTest, ThePressureOfTheFillCounts) {
  toml_ += "[policy]\npressure = [[0.2, 1.0], [0.3, 10.0]]\n";
  CacheReplay replay = Make(1000, Constant({0.6, 0.3, 0.1}));
  Open(&replay, "/a/1", 300);
  Open(&replay, "/a/2", 300);  // the fill is 0.3 now, and the threshold 10 / 11
  EXPECT_EQ(replay.counters().written_bytes, 300);
  EXPECT_EQ(replay.counters().bypassed, 1);
}

TEST_F(CacheReplayTest, RulesComeFirstWithAndWithoutAModel) {
  toml_ += "[policy]\nalways_admit = [\"/always/\"]\nnever_admit = [\"/never/\"]\n";
  for (const bool with_model : {false, true}) {
    CacheReplay replay = Make(1000, with_model ? std::optional(Constant({0.3, 0.3, 0.4})) : std::nullopt);
    Open(&replay, "/always/1", 100);
    Open(&replay, "/never/1", 100);
    EXPECT_EQ(replay.counters().written_bytes, 100);
    EXPECT_EQ(replay.counters().bypassed, 1);
  }
}

TEST_F(CacheReplayTest, WhatIsAnsweredEvictGoesWhereTheEvictorMayRemove) {
  const std::string before = toml_;
  for (const std::string off : {"enabled = false\n", "dry_run = true\n", ""}) {
    toml_ = before + off;
    // A score, 0.3, that is admitted where the file is absent and evicted where it is there.
    CacheReplay replay = Make(1000, Constant({0.3, 0.3, 0.4}, 0.2, 0.4));
    Open(&replay, "/a/1", 100);
    Open(&replay, "/a/1", 100);
    EXPECT_EQ(replay.counters().evicted, 1) << off;
    EXPECT_EQ(replay.used(), off.empty() ? 0 : 100) << off;
    EXPECT_EQ(replay.counters().evicted_bytes, off.empty() ? 100 : 0) << off;
  }
}

// Of files that are as likely to be opened again the larger goes first, however late it was opened: [evictor] benefit = "open".
TEST_F(CacheReplayTest, TheModelRanksWhatGoes) {
  CacheReplay by_worth = Make(1000, Constant({0.6, 0.3, 0.1}));
  CacheReplay by_time = Make(1000);
  toml_ += "enabled = false\n";
  CacheReplay not_removing = Make(1000, Constant({0.6, 0.3, 0.1}));
  for (CacheReplay* replay : {&by_worth, &by_time, &not_removing}) {
    Open(replay, "/a/small", 100);
    Open(replay, "/a/large", 600);
    Open(replay, "/a/new", 300);
    EXPECT_LE(replay->used(), 500);
    Open(replay, "/a/small", 100);
  }
  EXPECT_EQ(by_worth.counters().hits, 1);
  EXPECT_EQ(by_time.counters().hits, 0);
  EXPECT_EQ(not_removing.counters().hits, 0);
}

TEST_F(CacheReplayTest, ThePortfolioKnowsWhatIsAlwaysStored) {
  toml_ += "[policy]\nalways_admit = [\"/always/\"]\n";
  ReplayRules rules;
  rules.portfolio = true;
  CacheReplay replay(ParseConfig(toml_, "test"), 1000, std::nullopt, rules);
  // Beside it four files that are opened again and again, and many that are opened once: it is no worse than the four.
  int hits = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto before = replay.counters().hits;
    Open(&replay, "/always/1", 100);
    hits += static_cast<int>(replay.counters().hits - before);
    Open(&replay, "/a/again" + std::to_string(i % 4), 100);
    Open(&replay, "/a/once" + std::to_string(i), 100);
  }
  EXPECT_GT(hits, 950);
}

// Files that are opened again and again, among many that are opened once.
TEST_F(CacheReplayTest, ThePortfolioKeepsWhatARuleKeeps) {
  toml_ = "[history]\nmemory_bytes = 1000000\n[evictor]\nhigh = 0.9\nlow = 0.8\nfiles_per_minute = 1000000\n";
  int64_t hits[2];
  for (const bool portfolio : {false, true}) {
    ReplayRules rules;
    rules.portfolio = portfolio;
    CacheReplay replay(ParseConfig(toml_, "test"), 1000, std::nullopt, rules);
    std::mt19937_64 random(1);
    for (int i = 0; i < 20000; ++i)
      Open(&replay, random() % 10 < 3 ? "/a/again" + std::to_string(random() % 60) : "/a/once" + std::to_string(i), 10);
    hits[portfolio] = replay.counters().hits;
  }
  EXPECT_GT(hits[0], 1000);
  EXPECT_GT(hits[1], 3 * hits[0] / 2);  // of nearly 6000
}

TEST_F(CacheReplayTest, AnOpenThatNobodyWasAskedAboutStoresNothing) {
  CacheReplay replay = Make(1000);
  Open(&replay, "/a/1", 100, false);
  EXPECT_EQ(replay.counters().written_bytes, 0);
  Open(&replay, "/a/1", 100);
  Open(&replay, "/a/1", 100, false);
  EXPECT_EQ(replay.counters().hits, 1);
  EXPECT_EQ(replay.counters().missed_bytes, 200);
}

TEST_F(CacheReplayTest, AFileLargerThanTheCacheIsNotStored) {
  CacheReplay replay = Make(1000);
  Open(&replay, "/a/1", 1001);
  EXPECT_EQ(replay.used(), 0);
  EXPECT_EQ(replay.counters().written_bytes, 0);
}

TEST_F(CacheReplayTest, AFileThatGrowsTakesMore) {
  CacheReplay replay = Make(1000);
  Open(&replay, "/a/1", 100);
  Open(&replay, "/a/1", 700);
  EXPECT_EQ(replay.used(), 700);
}

// The whole of features, network, policy and what is told, against the plugin's own Decider beside a cache that never fills.
TEST_F(CacheReplayTest, ItAnswersAsTheDeciderDoes) {
  int64_t all_hits = 0, all_bypassed = 0, all_evicted = 0;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    const testing::TempFolder folder;
    toml_ =
        "[history]\nmemory_bytes = 1000000\n[evictor]\nenabled = false\n[policy]\nexplore = 0.0\n[decision_log]\nport = 0\n[model]\nuse = "
        "\"embedded\"\npoll_s = 0.01\nbundle_dir = \"" +
        folder.path().string() + "\"\n";
    const Config config = ParseConfig(toml_, "test");
    const Schema schema = MakeSchema(config);
    const std::string weights = testing::RandomWeights({schema.names.size(), 8, 3}, seed);
    testing::Install(folder.path(), "reuse_v1", testing::BundleJson("reuse_v1", schema.hash), "", weights);
    Decider decider(config, "cache:1094", 5, 1, [](const std::string&) {});
    ASSERT_TRUE(testing::WaitUntil([&] { return decider.model_name() == "reuse_v1"; }));
    const auto bundle = decider.bundle();
    constexpr int64_t kCapacity = 1000000;
    CacheReplay replay = Make(kCapacity, ReplayModel{std::make_shared<const Network>(weights, "test"), bundle->bucket_edges_s,
                                                     bundle->horizon_buckets, bundle->admit, bundle->evict});
    struct Held {
      int64_t size;
      float read_share;
    };
    std::map<std::string, Held> held;
    std::mt19937 random(7);
    int64_t used = 0, bypassed = 0, evicted = 0, hits = 0;
    for (int i = 0; i < 2000; ++i) {
      const uint32_t number = random() % 200;
      const std::string lfn = "/store/mc/C" + std::to_string(number % 7) + "/P/T/f" + std::to_string(number);
      const int64_t size = 100 + number, b_read = static_cast<int64_t>(random() % 150);
      t_us_ += static_cast<int64_t>(random() % 5000) * kSecond / 10 + 1;
      const auto copy = held.find(lfn);
      const bool on_disk = copy != held.end();
      const float fill = static_cast<float>(static_cast<double>(used) / kCapacity);
      const Decision decision = decider.Decide(t_us_, lfn, on_disk, on_disk ? size : -1, fill, on_disk ? copy->second.read_share : -1.0f);
      replay.Open({t_us_, lfn, size, b_read, true});
      bypassed += decision.answer == Answer::kBypass;
      evicted += decision.answer == Answer::kEvict;
      hits += on_disk;
      const float share = static_cast<float>(static_cast<double>(b_read) / static_cast<double>(size));
      if (on_disk) {
        copy->second.read_share = share;
      } else if (decision.answer == Answer::kAdmit) {
        held[lfn] = {size, share};
        used += size;
      }
      ASSERT_EQ(replay.counters().bypassed, bypassed) << i;
      ASSERT_EQ(replay.counters().evicted, evicted) << i;
    }
    EXPECT_EQ(replay.counters().hits, hits);
    EXPECT_EQ(replay.used(), used);
    all_hits += hits;
    all_bypassed += bypassed;
    all_evicted += evicted;
  }
  // The models, of random weights, differ in what they want; between them all answers are there.
  EXPECT_GT(all_hits, 1000);
  EXPECT_GT(all_bypassed, 100);
  EXPECT_GT(all_evicted, 100);
}

// Blocks of 100 bytes; pfc purges from 0.9 to 0.5 each 100 s, and an open comes each second.
ReplayRules Pfc() {
  ReplayRules rules;
  rules.block_bytes = 100;
  rules.purge_interval_s = 100;
  rules.purge_high = 0.9;
  rules.purge_low = 0.5;
  return rules;
}

TEST_F(CacheReplayTest, AnOpenFetchesTheBlocksThatItReads) {
  CacheReplay replay(ParseConfig(toml_, "test"), 10000, std::nullopt, Pfc());
  Open(&replay, "/a/1", 1050, true, 150);  // two blocks
  EXPECT_EQ(replay.used(), 200);
  Open(&replay, "/a/1", 1050, true, 200);  // both are there
  EXPECT_EQ(replay.counters().hits, 1);
  Open(&replay, "/a/1", 1050, true, 250);  // one more
  EXPECT_EQ(replay.used(), 300);
  Open(&replay, "/a/1", 1050);  // all, the last block a short one
  EXPECT_EQ(replay.used(), 1050);
  Open(&replay, "/a/1", 1050, true, 5000);  // read several times over: no more than there is
  Open(&replay, "/a/2", 1050, true, 0);     // nothing is read, and nothing is missed
  EXPECT_EQ(replay.counters().hits, 3);
  EXPECT_EQ(replay.counters().bytes, 150 + 200 + 250 + 1050 + 1050);
  EXPECT_EQ(replay.counters().missed_bytes, 150 + 50 + 750);
  EXPECT_EQ(replay.counters().fetched_bytes, 1050);
  EXPECT_EQ(replay.counters().written_bytes, 1050);
}

TEST_F(CacheReplayTest, WhatIsBypassedIsFetchedToTheByte) {
  toml_ += "[policy]\nnever_admit = [\"/never/\"]\n";
  CacheReplay replay(ParseConfig(toml_, "test"), 10000, std::nullopt, Pfc());
  Open(&replay, "/never/1", 1000, true, 150);
  EXPECT_EQ(replay.counters().fetched_bytes, 150);
  EXPECT_EQ(replay.counters().written_bytes, 0);
  EXPECT_EQ(replay.counters().bypassed, 1);
}

TEST_F(CacheReplayTest, PfcPurgesAtItsIntervalsAndAFullDiskTakesNoMore) {
  CacheReplay replay(ParseConfig(toml_, "test"), 1000, std::nullopt, Pfc());
  for (int i = 0; i < 6; ++i) Open(&replay, "/a/" + std::to_string(i), 200);
  EXPECT_EQ(replay.used(), 1000);  // over the mark, and nobody looks yet
  EXPECT_EQ(replay.counters().refused, 1);
  EXPECT_EQ(replay.counters().fetched_bytes, 1200);
  EXPECT_EQ(replay.counters().written_bytes, 1000);
  Open(&replay, "/a/0", 200);
  t_us_ += 100 * kSecond;
  Open(&replay, "/a/0", 200);  // before it /a/1, /a/2 and /a/3 went: 400 is the first sum not above the low mark
  EXPECT_EQ(replay.counters().purged_bytes, 600);
  EXPECT_EQ(replay.counters().removed_files, 3);
  EXPECT_EQ(replay.used(), 400);
  EXPECT_EQ(replay.counters().hits, 2);
  Open(&replay, "/a/4", 200);
  EXPECT_EQ(replay.counters().hits, 3);
}

// [evictor] high and low are 0.9 and 0.5 here; pfc's marks lie above.
TEST_F(CacheReplayTest, OurEvictorComesBeforePfc) {
  ReplayRules rules = Pfc();
  rules.purge_high = 0.99;
  rules.purge_low = 0.98;
  CacheReplay with_model(ParseConfig(toml_, "test"), 1000, Constant({0.6, 0.3, 0.1}), rules);
  CacheReplay without(ParseConfig(toml_, "test"), 1000, std::nullopt, rules);
  for (CacheReplay* replay : {&with_model, &without}) {
    Open(replay, "/a/large", 600);
    Open(replay, "/a/small", 200);
    Open(replay, "/a/new", 150);
    t_us_ += 10 * kSecond;
    Open(replay, "/a/small", 200);  // after two looks of the evictor, none of pfc
  }
  EXPECT_EQ(with_model.used(), 350);
  EXPECT_EQ(without.used(), 950);
}

TEST_F(CacheReplayTest, OurEvictorGoesOnMinuteByMinute) {
  ReplayRules rules = Pfc();
  rules.purge_high = 0.99;
  rules.purge_low = 0.98;
  toml_ += "files_per_minute = 2\n";
  CacheReplay replay(ParseConfig(toml_, "test"), 1000, Constant({0.6, 0.3, 0.1}), rules);
  for (int i = 0; i < 10; ++i) Open(&replay, "/a/" + std::to_string(i), 95);
  t_us_ += 10 * kSecond;
  Open(&replay, "/b/0", 10);
  EXPECT_EQ(replay.used(), 8 * 95 + 10);
  Open(&replay, "/a/2", 95);  // it would have been the next
  EXPECT_EQ(replay.counters().hits, 1);
  t_us_ += 130 * kSecond;  // two minutes more: four files, of which the last was needed no more
  Open(&replay, "/b/1", 10);
  EXPECT_EQ(replay.counters().removed_files, 5);
  EXPECT_EQ(replay.used(), 5 * 95 + 20);
  Open(&replay, "/a/2", 95);
  EXPECT_EQ(replay.counters().hits, 2);
}

TEST_F(CacheReplayTest, WhatIsAnsweredEvictGoesLaterUnlessItIsOpenedAgain) {
  // A score, 0.3, that is admitted where the file is absent and evicted where it is there.
  CacheReplay replay(ParseConfig(toml_, "test"), 10000, Constant({0.3, 0.3, 0.4}, 0.2, 0.4), Pfc());
  Open(&replay, "/a/1", 100);
  Open(&replay, "/a/1", 100);
  Open(&replay, "/a/1", 100);  // a second later: that cancels the first
  EXPECT_EQ(replay.used(), 100);
  t_us_ += 2 * kSecond;
  Open(&replay, "/a/2", 200);
  EXPECT_EQ(replay.counters().evicted, 2);
  EXPECT_EQ(replay.counters().evicted_bytes, 100);
  EXPECT_EQ(replay.used(), 200);
  toml_ += "answers_per_minute = 1\n";
  CacheReplay limited(ParseConfig(toml_, "test"), 10000, Constant({0.3, 0.3, 0.4}, 0.2, 0.4), Pfc());
  for (const char* lfn : {"/a/1", "/a/2", "/a/1", "/a/2"}) Open(&limited, lfn, 100);
  t_us_ += 10 * kSecond;
  Open(&limited, "/a/3", 100);
  EXPECT_EQ(limited.counters().evicted_bytes, 100);
}

TEST_F(CacheReplayTest, UsesFallbackAndForesight) {
  ReplayRules rules = Pfc();
  rules.admit_at = 2;
  CacheReplay uses(ParseConfig(toml_, "test"), 1000, std::nullopt, rules);
  for (int i = 0; i < 3; ++i) Open(&uses, "/a/1", 100);
  EXPECT_EQ(uses.counters().bypassed, 1);
  EXPECT_EQ(uses.counters().hits, 1);
  const std::string before = toml_;
  for (const bool bypass : {false, true}) {
    toml_ = before + (bypass ? "[policy]\nfallback = \"bypass\"\n" : "");
    rules = Pfc();
    rules.fallback = true;
    CacheReplay fallback(ParseConfig(toml_, "test"), 1000, std::nullopt, rules);
    Open(&fallback, "/a/1", 100);
    EXPECT_EQ(fallback.used(), bypass ? 0 : 100);
  }
  toml_ = before;
  rules = Pfc();
  rules.foresight = true;
  CacheReplay knows(ParseConfig(toml_, "test"), 1000, std::nullopt, rules);
  knows.Open({kT0, "/a/soon", 400, -1, true, kT0 + 200 * kSecond});
  knows.Open({kT0 + kSecond, "/a/never", 550, -1, true, kNeverOpened});
  knows.Open({kT0 + 200 * kSecond, "/a/soon", 400, -1, true, kNeverOpened});
  EXPECT_EQ(knows.counters().hits, 1);
  EXPECT_EQ(knows.used(), 400);
}

TEST_F(CacheReplayTest, AFileThatShrinksOrGrowsUnderBlocks) {
  CacheReplay replay(ParseConfig(toml_, "test"), 1000, std::nullopt, Pfc());
  Open(&replay, "/a/1", 500);
  Open(&replay, "/a/1", 300);
  EXPECT_EQ(replay.used(), 300);
  EXPECT_EQ(replay.counters().purged_bytes, 200);
  Open(&replay, "/a/1", 450);
  EXPECT_EQ(replay.used(), 450);
  Open(&replay, "/a/2", INT64_C(1) << 61);  // larger than any disk
  EXPECT_EQ(replay.used(), 450);
  EXPECT_EQ(replay.counters().refused, 1);
}

TEST_F(CacheReplayTest, RulesThatCannotBe) {
  for (const auto& change : std::vector<void (*)(ReplayRules*)>{
           [](ReplayRules* rules) { rules->block_bytes = -1; }, [](ReplayRules* rules) { rules->block_bytes = INT64_MAX; },
           [](ReplayRules* rules) { rules->purge_low = 0.95; }, [](ReplayRules* rules) { rules->purge_high = 1.5; },
           [](ReplayRules* rules) { rules->purge_interval_s = 0; }, [](ReplayRules* rules) { rules->admit_at = 0; }}) {
    ReplayRules rules = Pfc();
    change(&rules);
    EXPECT_THROW(CacheReplay(ParseConfig(toml_, "test"), 1000, std::nullopt, rules), std::invalid_argument);
  }
}

TEST_F(CacheReplayTest, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(Make(0), std::invalid_argument);
  ReplayModel model = Constant({0.6, 0.3, 0.1});
  model.horizon_buckets = 3;
  EXPECT_THROW(Make(1000, model), std::invalid_argument);
  model = Constant({0.6, 0.4});
  EXPECT_THROW(Make(1000, model), std::invalid_argument);
  toml_ += "[features]\ntoken_buckets = 0\n";
  const ReplayModel other = Constant({0.6, 0.3, 0.1});
  toml_ += "half_lives_s = [60.0]\n";
  EXPECT_THROW(Make(1000, other), std::invalid_argument);
}

}  // namespace
}  // namespace smartcache

#include "smartcache/history_file.hh"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "smartcache/features.hh"

namespace smartcache {
namespace {

constexpr int64_t kT0 = INT64_C(1760000000000000);
const char* const kSmall = "[history]\nmemory_bytes = 200000";

// Opens of few hot and many cold files, the same for the same seed and number.
class Opens {
 public:
  explicit Opens(uint64_t seed) : random_(seed) {}
  std::vector<float> Next(FeatureCore* core) {
    t_us_ += static_cast<int64_t>(random_() % 100000000);
    const uint64_t file = random_() % 3 ? random_() % 50 : random_() % 100000;
    const std::string lfn = "/s/" + std::to_string(file % 7) + "/d/" + std::to_string(file);
    const float share = random_() % 2 ? -1.0f : static_cast<float>(random_() % 100) / 100.0f;
    ParsedLfn parsed;
    core->Parse(lfn, &parsed);
    std::vector<float> row(core->schema().names.size());
    core->Observe({t_us_, lfn, random_() % 2 == 0, -1, 0.5f, share}, parsed, row.data());
    if (random_() % 4 == 0) {
      const double outputs[] = {0.25, 0.5, 0.25};
      core->history().Remember(parsed.file, t_us_, 9, outputs, 3);
    }
    return row;
  }

 private:
  std::mt19937_64 random_;
  int64_t t_us_ = kT0;
};

std::string Written(const Config& config, FeatureCore* core, HistoryState state = {1000, 77, kT0, false}) {
  std::string bytes, why;
  std::mutex mutex;
  EXPECT_TRUE(WriteHistory(
      config, &core->history(), &mutex, [&] { return state; },
      [&](const void* data, size_t size) {
        bytes.append(static_cast<const char*>(data), size);
        return true;
      },
      &why))
      << why;
  return bytes;
}

// A core that was filled by `opens`, and the text of its history.
struct Filled {
  explicit Filled(const char* toml, int opens = 5000) : config(ParseConfig(toml, "test")), core(config), stream(3) {
    for (int i = 0; i < opens; ++i) stream.Next(&core);
  }
  std::string Bytes() { return Written(config, &core); }
  Config config;
  FeatureCore core;
  Opens stream;
};

std::string WhyNot(const std::string& bytes, const Config& config) {
  FeatureCore core(config);
  HistoryState state;
  std::string why;
  EXPECT_FALSE(RestoreHistory(bytes, config, &core.history(), &state, &why));
  EXPECT_EQ(core.history().files() + core.history().datasets(), 0u);
  EXPECT_EQ(core.history().stamp(), 0u);
  return why;
}

TEST(HistoryFile, WhatIsRestoredGoesOnToTheLastBitAlsoInWhatItForgets) {
  for (const char* toml : {kSmall, "", "[features]\nhalf_lives_s = [60.0]\n[history]\nmemory_bytes = 65536"}) {
    Filled one(toml, 20000);
    const std::string bytes = one.Bytes();
    FeatureCore other(one.config);
    HistoryState state;
    std::string why;
    ASSERT_TRUE(RestoreHistory(bytes, one.config, &other.history(), &state, &why)) << why;
    EXPECT_EQ(state.boot_us, 1000);
    EXPECT_EQ(state.seq, 77u);
    EXPECT_EQ(state.t_us, kT0);
    EXPECT_EQ(other.history().files(), one.core.history().files());
    EXPECT_EQ(other.history().datasets(), one.core.history().datasets());
    EXPECT_EQ(Written(one.config, &other).size(), bytes.size());
    Opens same = one.stream;
    for (int i = 0; i < 20000; ++i) {
      const auto a = one.stream.Next(&one.core), b = same.Next(&other);
      ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << i;
    }
  }
}

TEST(HistoryFile, PredictionsAreKept) {
  Filled one("");
  ParsedLfn parsed;
  one.core.Parse("/a/b/c", &parsed);
  std::vector<float> row(one.core.schema().names.size());
  one.core.Observe({kT0, "/a/b/c", false, -1, -1}, parsed, row.data());
  const double outputs[] = {0.1, 0.2, 0.05, 0.05, 0.1, 0.1, 0.2, 0.1, 0.1};
  ASSERT_TRUE(one.core.history().Remember(parsed.file, kT0, 5, outputs, 9));
  FeatureCore other(one.config);
  HistoryState state;
  std::string why;
  ASSERT_TRUE(RestoreHistory(one.Bytes(), one.config, &other.history(), &state, &why)) << why;
  History::Forecast before, after;
  ASSERT_TRUE(one.core.history().Recall(parsed.file, &before));
  ASSERT_TRUE(other.history().Recall(parsed.file, &after));
  EXPECT_EQ(after.model_id, 5u);
  ASSERT_EQ(after.buckets, 9u);
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(after.outputs[i], before.outputs[i]);
}

TEST(HistoryFile, AnEmptyHistoryIsOneToo) {
  Filled one("", 0);
  FeatureCore other(one.config);
  HistoryState state;
  std::string why;
  EXPECT_TRUE(RestoreHistory(one.Bytes(), one.config, &other.history(), &state, &why)) << why;
}

TEST(HistoryFile, WithLessMemoryTheNewestAreKept) {
  Filled one("[history]\nmemory_bytes = 1000000");
  const Config less = ParseConfig("[history]\nmemory_bytes = 65536", "test");
  FeatureCore other(less);
  HistoryState state;
  std::string why;
  ASSERT_GT(one.core.history().files(), other.history().capacity());
  ASSERT_TRUE(RestoreHistory(one.Bytes(), less, &other.history(), &state, &why)) << why;
  EXPECT_EQ(other.history().files() + other.history().datasets(), other.history().capacity());
  EXPECT_EQ(other.history().datasets(), 7u);  // opened all the time
  for (int i = 0; i < 2000; ++i) one.stream.Next(&other);
}

TEST(HistoryFile, TruncatedAnywhereIsRefused) {
  Filled one(kSmall);
  const std::string bytes = one.Bytes();
  for (size_t length = 0; length < bytes.size(); length += length < 200 ? 1 : 997)
    EXPECT_FALSE(WhyNot(bytes.substr(0, length), one.config).empty()) << length;
  EXPECT_EQ(WhyNot("", one.config), "is not a saved history");
  EXPECT_EQ(WhyNot(bytes.substr(0, 50), one.config), "is truncated in its header");
  EXPECT_NE(WhyNot(bytes.substr(0, bytes.size() - 1), one.config).find("is truncated after"), std::string::npos);
  EXPECT_NE(WhyNot(bytes + "x", one.config).find("is damaged after"), std::string::npos);
}

TEST(HistoryFile, AFlippedBitIsRefused) {
  Filled one(kSmall);
  const std::string bytes = one.Bytes();
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = bytes;
    const size_t at = i < 640 ? static_cast<size_t>(i) / 8 : random() % bytes.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (i % 8)));
    EXPECT_FALSE(WhyNot(damaged, one.config).empty()) << at;
  }
}

TEST(HistoryFile, AnotherVersionOrConfigurationIsNamed) {
  Filled one(kSmall);
  std::string bytes = one.Bytes();
  for (const char* toml : {"[dataset]\nlevels = 3", "[dataset]\nrules = [{ prefix = \"/s/\", levels = 1 }]",
                           "[features]\nhalf_lives_s = [3600.0, 86400.0, 604800.0, 2592001.0]", "[features]\nhalf_lives_s = [3600.0]"})
    EXPECT_EQ(WhyNot(bytes, ParseConfig(toml, "test")), "was saved under another [dataset] or another [features] half_lives_s") << toml;
  bytes[8] = 2;
  EXPECT_EQ(WhyNot(bytes, one.config), "has version 2, where this plugin writes and reads 1");
  // Tokens are not remembered.
  const Config tokens = ParseConfig(std::string(kSmall) + "\n[features]\ntoken_buckets = 0", "test");
  FeatureCore other(tokens);
  HistoryState state;
  std::string why;
  EXPECT_TRUE(RestoreHistory(one.Bytes(), tokens, &other.history(), &state, &why)) << why;
}

TEST(HistoryFile, GarbageIsRefused) {
  const Config config = ParseConfig(kSmall, "test");
  std::mt19937_64 random(2);
  for (int i = 0; i < 200; ++i) {
    std::string garbage(random() % 4000, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    EXPECT_EQ(WhyNot(garbage, config), "is not a saved history");
  }
}

TEST(HistoryFile, ASinkThatFailsIsSaidAndTheHistoryGoesOn) {
  Filled one(kSmall);
  std::mutex mutex;
  for (const size_t room : {size_t{0}, size_t{100}, size_t{100000}}) {
    size_t written = 0;
    std::string why;
    EXPECT_FALSE(WriteHistory(
        one.config, &one.core.history(), &mutex, [] { return HistoryState{}; },
        [&](const void*, size_t size) { return (written += size) <= room; }, &why));
    EXPECT_EQ(why, "cannot be written");
    one.stream.Next(&one.core);
  }
}

// What is written while opens go on is the history of the moment at which writing began.
TEST(HistoryFile, ASnapshotIsOfOneMomentWhileOpensGoOn) {
  for (const char* toml : {kSmall, "[history]\nmemory_bytes = 4000000"}) {
    Filled one(toml, 30000);
    const std::string expected = one.Bytes();
    std::string bytes, why;
    std::mutex mutex;
    // An open between all steps: the mutex is free while the sink is called. A block is some thousand entries, so many opens at a time.
    int calls = 0;
    ASSERT_TRUE(WriteHistory(
        one.config, &one.core.history(), &mutex,
        [] {
          return HistoryState{1000, 77, kT0, false};
        },
        [&](const void* data, size_t size) {
          bytes.append(static_cast<const char*>(data), size);
          const std::lock_guard<std::mutex> lock(mutex);
          for (int i = 0; i < 700; ++i) one.stream.Next(&one.core);
          ++calls;
          return true;
        },
        &why))
        << why;
    ASSERT_GT(calls, 3);
    // The entries come in another order, so compare what is restored: by what it is written as.
    FeatureCore a(one.config), b(one.config);
    HistoryState state;
    ASSERT_TRUE(RestoreHistory(expected, one.config, &a.history(), &state, &why)) << why;
    ASSERT_TRUE(RestoreHistory(bytes, one.config, &b.history(), &state, &why)) << why;
    Opens left(8), right(8);
    for (int i = 0; i < 20000; ++i) {
      const auto x = left.Next(&a), y = right.Next(&b);
      ASSERT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0) << i;
    }
  }
}

TEST(HistoryFile, AWriterThatIsTooSlowGivesUp) {
  Filled one("[history]\nmemory_bytes = 8000000", 200000);
  ASSERT_GT(one.core.history().files(), 30000u);
  std::mutex mutex;
  std::string why;
  Opens more(5);
  EXPECT_FALSE(WriteHistory(
      one.config, &one.core.history(), &mutex, [] { return HistoryState{}; },
      [&](const void*, size_t) {
        const std::lock_guard<std::mutex> lock(mutex);
        for (int i = 0; i < 200000; ++i) more.Next(&one.core);
        return true;
      },
      &why));
  EXPECT_EQ(why, "opens came faster than it could be written");
  EXPECT_FALSE(one.Bytes().empty());
}

}  // namespace
}  // namespace smartcache

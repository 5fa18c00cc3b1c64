// What a server's restart leaves of the history, and that replaying the decision log gives the features that were logged.
#include <sys/socket.h>

#include <atomic>
#include <map>
#include <thread>

#include "smartcache/decider.hh"
#include "testing/decider_fixture.hh"

namespace smartcache {
namespace {

using nlohmann::json;
using testing::kT0;
using testing::WaitUntil;

using DeciderHistoryTest = testing::DeciderTest;

using Order = std::pair<int64_t, uint64_t>;  // boot_us, seq

// Receives while the records are still being sent, so that the socket's buffer need not hold all of them. A sender calls Allow before each.
class Reader {
 public:
  Reader(int socket, int count)
      : thread_([this, socket, count] {
          char buffer[65536];
          for (int i = 0; i < count; ++i) {
            const ssize_t got = ::recv(socket, buffer, sizeof buffer, 0);
            if (got <= 0) {  // none came for 10 s
              received_ = count;
              return;
            }
            ++received_;
            json record = json::parse(std::string(buffer, static_cast<size_t>(got)));
            const Order order{record["boot_us"], record["seq"]};
            records_[order] = std::move(record);
          }
        }) {}
  ~Reader() {
    if (thread_.joinable()) thread_.join();
  }
  void Allow() {
    constexpr int kUnderWay = 40;
    const int sent = sent_++;
    while (sent - received_ > kUnderWay) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  std::map<Order, json> Wait() {
    thread_.join();
    return records_;
  }

 private:
  std::atomic<int> sent_{0}, received_{0};
  std::map<Order, json> records_;
  std::thread thread_;  // last: it uses the above
};

// What makes a training set equal to what the plugin computed: replaying the log, in its order, gives the logged features. The order is
// (boot_us, seq), not time.
TEST_F(DeciderHistoryTest, ReplayingTheLogGivesTheLoggedFeaturesToTheLastBit) {
  auto decider = Make();
  constexpr int kThreads = 8, kEach = 150;
  Reader reader(socket_, kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        // Threads disagree about the time a little, as threads do, and one call in the middle finds the clock set back by an hour.
        const int64_t back = t == 0 && i == kEach / 2 ? INT64_C(3600000000) : 0;
        reader.Allow();
        // Some LFNs are no UTF-8, differently: what is logged of them is the same.
        const std::string odd = i % 5 == 2 ? std::string(1, static_cast<char>(0xE0 + i % 3)) : "";
        decider->Decide(kT0 + i * 1000 - t * 300 - back, "/s" + odd + "/" + std::to_string(i % 5) + "/f" + std::to_string((i * 7 + t) % 40),
                        i % 3 == 0, i % 4 ? -1 : i, static_cast<float>(i) / kEach, i % 3 == 0 ? static_cast<float>(t) / 7 : -1.0f);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  const std::map<Order, json> records = reader.Wait();
  ASSERT_EQ(records.size(), static_cast<size_t>(kThreads * kEach));
  const auto by_time = [](const auto& a, const auto& b) { return a.second["t_us"] < b.second["t_us"]; };
  ASSERT_FALSE(std::is_sorted(records.begin(), records.end(), by_time)) << "the clock was set back: the two orders differ";
  FeatureCore core(config_);
  std::vector<float> row(core.schema().names.size());
  for (const auto& [order, record] : records) {
    const std::string lfn = record["lfn"];
    const Open open{record["t_us"],
                    lfn,
                    record["on_disk"],
                    record["size"],
                    static_cast<float>(record["fill"].get<double>()),
                    static_cast<float>(record["read_share"].get<double>())};
    ParsedLfn parsed;
    core.Parse(lfn, &parsed);
    core.Observe(Sanitised(open), parsed, row.data());
    for (size_t i = 0; i < row.size(); ++i)
      ASSERT_EQ(static_cast<float>(record["features"][i].get<double>()), row[i]) << order.second << " " << core.schema().names[i];
  }
}

TEST_F(DeciderHistoryTest, ARestartedServerGoesOnToTheLastBit) {
  config_.history.file = folder_ / "history";
  std::vector<json> before, after;
  {
    auto decider = Make(5);
    Opens(decider.get(), 0, 40, &before);
  }
  EXPECT_TRUE(before[0]["history_boot_us"].is_null());
  EXPECT_TRUE(before[0]["history_seq"].is_null());
  {
    auto decider = Make(6);
    Opens(decider.get(), 40, 40, &after);
  }
  EXPECT_EQ(after[0]["boot_us"], 6);
  EXPECT_EQ(after[0]["seq"], 1);
  EXPECT_EQ(after[0]["history_boot_us"], 5);
  EXPECT_EQ(after[0]["history_seq"], 40);
  FeatureCore core(config_);
  ExpectReplayed(before, &core);
  ExpectReplayed(after, &core);
  // A boot without an open leaves the history of the one before, as what it is.
  Make(7);
  std::vector<json> last;
  auto decider = Make(8);
  Opens(decider.get(), 80, 1, &last);
  EXPECT_EQ(last[0]["history_boot_us"], 6);
  EXPECT_EQ(last[0]["history_seq"], 40);
}

TEST_F(DeciderHistoryTest, WhatAScanHasSeededIsSaidAfterARestartToo) {
  config_.history.file = folder_ / "history";
  {
    auto decider = Make(5);
    PastOpens past;
    past.opens = {{kT0 - 1000000, 1}};
    past.count = 1;
    ASSERT_TRUE(decider->Seed("/a/b/f", past));
  }
  auto decider = Make(6);
  decider->Decide(kT0, "/a/b/f", true, -1, -1);
  const json record = NextRecord();
  EXPECT_EQ(record["history_scanned"], true);
  EXPECT_EQ(record["history_boot_us"], 5);
  EXPECT_EQ(record["history_seq"], 0);
}

TEST_F(DeciderHistoryTest, AKilledServerGoesOnFromWhatWasSaved) {
  config_.history.file = folder_ / "history";
  config_.history.save_s = 0.01;
  std::vector<json> saved, lost, after;
  {
    auto decider = Make(5);
    Opens(decider.get(), 0, 30, &saved);
    // Until it was saved as of the last open: the file says of which one it is.
    ASSERT_TRUE(WaitUntil([&] {
      const std::string bytes = std::filesystem::exists(config_.history.file) ? testing::ReadFile(config_.history.file) : "";
      constexpr size_t kSeqAt = 32;
      uint64_t seq = 0;
      if (bytes.size() >= kSeqAt + sizeof seq) std::memcpy(&seq, bytes.data() + kSeqAt, sizeof seq);
      return seq == saved.size();
    }));
    std::filesystem::copy_file(config_.history.file, folder_ / "as-it-was");
    Opens(decider.get(), 100, 20, &lost);
  }
  std::filesystem::rename(folder_ / "as-it-was", config_.history.file);
  {
    auto decider = Make(6);
    Opens(decider.get(), 200, 30, &after);
  }
  EXPECT_EQ(after[0]["history_boot_us"], 5);
  EXPECT_EQ(after[0]["history_seq"], saved.size());
  FeatureCore live(config_), restored(config_);
  ExpectReplayed(saved, &live);
  ExpectReplayed(lost, &live);
  ExpectReplayed(saved, &restored);
  ExpectReplayed(after, &restored);
}

TEST_F(DeciderHistoryTest, ADamagedHistoryIsSaidAndAnswersGoOn) {
  config_.history.file = folder_ / "history";
  testing::WriteFile(config_.history.file, "no history");
  auto decider = Make();
  Expect(decider->Decide(kT0, "/a/f", false, -1, -1), Answer::kAdmit, Reason::kNoModel);
  EXPECT_TRUE(NextRecord()["history_boot_us"].is_null());
  EXPECT_EQ(log_.Count("test: [history] file must be a history that this plugin saved"), 1u);
}

}  // namespace
}  // namespace smartcache

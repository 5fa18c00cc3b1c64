#include "smartcache/side_table_watcher.hh"

#include <gtest/gtest.h>

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using testing::SideTableRow;
using testing::SideTableText;
using testing::WaitUntil;

class SideTableWatcherTest : public ::testing::Test {
 protected:
  testing::TempFolder folder_;
  testing::LogLines log_;
  Counters counters_;
  const std::string path_ = folder_ / "side.json";

  std::unique_ptr<SideTableWatcher> Make() {
    return std::make_unique<SideTableWatcher>(SideTableConfig{path_, 0.01}, &counters_, log_.sink());
  }
  void Publish(const std::string& text) {
    testing::WriteFile(path_ + ".next", text);
    std::filesystem::rename(path_ + ".next", path_);
  }
  void Publish(int64_t version) { Publish(SideTableText(version, version, {SideTableRow("/a", 2, 1)})); }
  static int64_t Version(const SideTableWatcher& watcher) {
    const auto table = watcher.current();
    return table ? table->version() : 0;
  }
};

TEST_F(SideTableWatcherTest, FollowsTheFileAndSaysOnceThatThereIsNone) {
  const auto watcher = Make();
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("is not there"); }));
  EXPECT_EQ(watcher->current(), nullptr);
  Publish(1);
  ASSERT_TRUE(WaitUntil([&] { return Version(*watcher) == 1; }));
  Publish(2);
  ASSERT_TRUE(WaitUntil([&] { return Version(*watcher) == 2; }));
  std::filesystem::remove(path_);
  ASSERT_TRUE(WaitUntil([&] { return Version(*watcher) == 0; }));
  Publish(1);
  ASSERT_TRUE(WaitUntil([&] { return Version(*watcher) == 1; }));
  ASSERT_TRUE(WaitUntil([&] { return counters_.side_table_loads(true) == 3; }));
  EXPECT_EQ(counters_.side_table_loads(false), 0u);
  EXPECT_EQ(log_.Count("is not there"), 2u);
  EXPECT_TRUE(WaitUntil([&] { return log_.Count("is in use") == 2; }));
}

TEST_F(SideTableWatcherTest, OneThatIsBadIsRefusedOnceAndTheOneBeforeStays) {
  Publish(1);
  const auto watcher = Make();
  ASSERT_TRUE(WaitUntil([&] { return Version(*watcher) == 1; }));
  const std::string good = SideTableText(2, 2, {SideTableRow("/a", 2, 1)});
  uint64_t refused = 0;
  for (const std::string& text : {std::string(), good.substr(0, good.size() / 2), std::string("\0\xff\n\n", 4)}) {
    Publish(text);
    ++refused;
    ASSERT_TRUE(WaitUntil([&] { return counters_.side_table_loads(false) == refused; }));
  }
  EXPECT_EQ(Version(*watcher), 1);
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  ASSERT_TRUE(WaitUntil([&] { return counters_.side_table_loads(false) == 4; }));
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("not a regular file"); }));
  EXPECT_EQ(log_.Count("not a regular file"), 1u);
  std::filesystem::remove(path_);
  Publish(good);
  ASSERT_TRUE(WaitUntil([&] { return Version(*watcher) == 2; }));
}

TEST_F(SideTableWatcherTest, AFileThatIsMendedInPlaceIsTaken) {
  const std::string good = SideTableText(2, 2, {SideTableRow("/a", 2, 1)});
  testing::WriteFile(path_, good.substr(0, 50));
  const auto watcher = Make();
  ASSERT_TRUE(WaitUntil([&] { return counters_.side_table_loads(false) == 1; }));
  EXPECT_EQ(watcher->current(), nullptr);
  testing::WriteFile(path_, good);
  EXPECT_TRUE(WaitUntil([&] { return Version(*watcher) == 2; }));
}

}  // namespace
}  // namespace smartcache

#include "smartcache/off_switch.hh"

#include <filesystem>
#include <mutex>
#include <vector>

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

class OffSwitchTest : public ::testing::Test {
 protected:
  Log Listener() {
    return [this](const std::string& text) {
      const std::lock_guard<std::mutex> lock(mutex_);
      said_.push_back(text);
    };
  }
  std::vector<std::string> said() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return said_;
  }

  const testing::TempFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "off";

 private:
  std::mutex mutex_;
  std::vector<std::string> said_;
};

TEST_F(OffSwitchTest, IsOffWhileTheFileExists) {
  const OffSwitch off(file_.string(), Listener(), 0.01);
  EXPECT_FALSE(off.off());
  testing::WriteFile(file_, "");
  EXPECT_TRUE(testing::WaitUntil([&] { return off.off(); }));
  std::filesystem::remove(file_);
  EXPECT_TRUE(testing::WaitUntil([&] { return !off.off(); }));
  EXPECT_TRUE(testing::WaitUntil([&] { return said().size() == 2; }));
  EXPECT_NE(said()[0].find("turned off"), std::string::npos);
  EXPECT_NE(said()[1].find("turned on"), std::string::npos);
}

TEST_F(OffSwitchTest, IsKnownBeforeTheFirstOpen) {
  testing::WriteFile(file_, "");
  const OffSwitch off(file_.string(), Listener(), 3600);
  EXPECT_TRUE(off.off());
  EXPECT_EQ(said().size(), 1u);
}

TEST_F(OffSwitchTest, WhatCannotBeLookedAtChangesNothing) {
  testing::WriteFile(file_, "");
  const OffSwitch off(file_.string(), Listener(), 0.01);
  ASSERT_TRUE(off.off());
  // A link to itself, put there in one step: ELOOP, which says neither "there" nor "not there".
  const std::filesystem::path loop = folder_.path() / "loop";
  std::filesystem::create_symlink(file_, loop);
  std::filesystem::rename(loop, file_);
  EXPECT_FALSE(testing::WaitUntil([&] { return !off.off(); }, 0.3));
  const OffSwitch on(file_.string(), Listener(), 3600);
  EXPECT_FALSE(on.off());
}

}  // namespace
}  // namespace smartcache

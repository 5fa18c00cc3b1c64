#include "smartcache/portfolio_keeper.hh"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "testing/fixtures.hh"

namespace smartcache {
namespace {

using testing::WaitUntil;

class PortfolioKeeperTest : public ::testing::Test {
 protected:
  PortfolioKeeperTest() {
    config_ = ParseConfig("[portfolio]\nenabled = true\nfile = \"" + (folder_ / "portfolio") + "\"\n[history]\nsave_s = 0.01\n", "test");
  }
  std::unique_ptr<FilePortfolio> Make() { return std::make_unique<FilePortfolio>(config_.portfolio, 1000, true, false); }
  // A keeper of it, until it is ready.
  std::unique_ptr<PortfolioKeeper> Keep(FilePortfolio* portfolio) {
    auto keeper = std::make_unique<PortfolioKeeper>(config_, portfolio, log_.sink());
    portfolio->Room(100);
    keeper->Wake();
    EXPECT_TRUE(WaitUntil([&] { return portfolio->state().ready; }));
    return keeper;
  }
  size_t Bad() const {
    size_t count = 0;
    for (const auto& each : std::filesystem::directory_iterator(folder_.path()))
      count += each.path().filename().string().rfind("portfolio.bad-", 0) == 0;
    return count;
  }

  testing::TempFolder folder_;
  testing::LogLines log_;
  Config config_;
};

TEST_F(PortfolioKeeperTest, WhatWasKnownIsKnownAfterARestart) {
  auto portfolio = Make();
  auto keeper = Keep(portfolio.get());
  EXPECT_TRUE(WaitUntil([&] { return log_.Count("portfolio: in use, 0 files known, room for 100 bytes") == 1; }));
  EXPECT_TRUE(portfolio->Opened({1, 2, 3, 50, 1.0, 0.5}, nullptr).stores);
  keeper.reset();
  auto after = Make();
  const auto again = Keep(after.get());
  EXPECT_TRUE(WaitUntil([&] { return log_.Count("portfolio: in use, 1 files known, room for 100 bytes") == 1; }));
  EXPECT_GT(*after->Worth(1), 0.0);
  EXPECT_EQ(Bad(), 0u);
}

TEST_F(PortfolioKeeperTest, AFileThatIsNoneIsSetAside) {
  const auto damaged = [&](const std::function<void(const std::string& path)>& damage, const std::string& what) {
    const std::string path = folder_ / "portfolio";
    damage(path);
    auto portfolio = Make();
    auto keeper = Keep(portfolio.get());
    EXPECT_TRUE(log_.Has("[portfolio] file must be a portfolio that this plugin saved, but \"" + path + "\" " + what)) << what;
    EXPECT_EQ(portfolio->state().files, 0u);
    keeper.reset();
    EXPECT_EQ(Bad(), 1u);
    std::filesystem::remove_all(folder_.path());
    std::filesystem::create_directory(folder_.path());
  };
  damaged([](const std::string& path) { testing::WriteFile(path, ""); }, "is too short");
  damaged([](const std::string& path) { testing::WriteFile(path, std::string(1000, 'x')); }, "is none, or of another version");
  damaged([](const std::string& path) { std::filesystem::create_directory(path); }, "is no file");
  damaged([](const std::string& path) { ::mkfifo(path.c_str(), 0600); }, "is no file");
  damaged(
      [](const std::string& path) {
        testing::WriteFile(path, "");
        std::filesystem::resize_file(path, (uintmax_t{1} << 32) + 1);
      },
      "is larger than 4 GiB");
}

TEST_F(PortfolioKeeperTest, AFolderThatIsGoneIsSaidOnce) {
  auto portfolio = Make();
  auto keeper = Keep(portfolio.get());
  portfolio->Opened({1, 2, 3, 50, 1.0, 0.5}, nullptr);
  std::filesystem::remove_all(folder_.path());
  ASSERT_TRUE(WaitUntil([&] { return log_.Has("[portfolio] file must be one that can be written"); }));
  keeper->Wake();
  keeper.reset();
  EXPECT_EQ(log_.Count("[portfolio] file must be one that can be written"), 1u);
}

}  // namespace
}  // namespace smartcache

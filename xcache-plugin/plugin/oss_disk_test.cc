#include "oss_disk.hh"

#include <gtest/gtest.h>

#include <vector>

#include "fake_oss.hh"

namespace smartcache {
namespace {

TEST(OssDisk, MeasuresTheSpaceThatHoldsTheData) {
  FakeOss oss;
  oss.space = "data";
  OssDisk disk;
  DiskUsage usage;
  std::vector<std::string> said;
  disk.Measure("data", [&](const std::string& line) { said.push_back(line); });
  EXPECT_FALSE(disk.FileSystem(&usage));  // nobody has told of a disk yet
  EXPECT_TRUE(disk.Use(&oss));
  ASSERT_TRUE(disk.FileSystem(&usage));
  EXPECT_EQ(usage.used, 600);
  EXPECT_EQ(usage.total, 1000);
  EXPECT_TRUE(said.empty());
}

TEST(OssDisk, WhereThereIsNoSuchSpaceItSaysSoOnceUntilThereIs) {
  FakeOss oss;
  OssDisk disk;
  DiskUsage usage;
  std::vector<std::string> said;
  disk.Measure("data", [&](const std::string& line) { said.push_back(line); });
  disk.Use(&oss);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(disk.FileSystem(&usage));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("the space \"data\" (No such file or directory)"), std::string::npos) << said[0];
  oss.space = "data";
  EXPECT_TRUE(disk.FileSystem(&usage));
  oss.total = 0;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(disk.FileSystem(&usage));
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[1].find("its size is 0"), std::string::npos) << said[1];
}

}  // namespace
}  // namespace smartcache

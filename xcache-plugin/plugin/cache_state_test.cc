#include "cache_state.hh"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>

#include "fake_oss.hh"

namespace smartcache {
namespace {

TEST(CacheState, OnlyNoSuchFileIsAbsence) {
  FakeOss oss;

  EXPECT_TRUE(LookAt("/a", oss).on_disk);
  for (const int absent : {-ENOENT, -ENOTDIR}) {
    oss.result = absent;
    EXPECT_FALSE(LookAt("/a", oss).on_disk) << absent;
  }
  for (const int unknown : {-EIO, -EACCES, -ENOMEM, -EMFILE, -ELOOP}) {
    oss.result = unknown;
    const FileState file = LookAt("/a", oss);
    EXPECT_TRUE(file.on_disk) << unknown;  // never bypassed
    EXPECT_EQ(file.size, -1) << unknown;
  }
  oss.result = 0;
  oss.mode = S_IFDIR | 0755;
  EXPECT_FALSE(LookAt("/a", oss).on_disk);
}

}  // namespace
}  // namespace smartcache

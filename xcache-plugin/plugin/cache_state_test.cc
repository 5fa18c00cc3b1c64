#include "cache_state.hh"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>

#include "XrdOss/XrdOss.hh"

namespace smartcache {
namespace {

// Stat answers to order; there is nothing else in it.
class FakeOss : public XrdOss {
 public:
  XrdOssDF* newDir(const char*) override { return nullptr; }
  XrdOssDF* newFile(const char*) override { return nullptr; }
  int Chmod(const char*, mode_t, XrdOucEnv*) override { return -ENOTSUP; }
  int Create(const char*, const char*, mode_t, XrdOucEnv&, int) override { return -ENOTSUP; }
  int Init(XrdSysLogger*, const char*) override { return 0; }
  int Mkdir(const char*, mode_t, int, XrdOucEnv*) override { return -ENOTSUP; }
  int Remdir(const char*, int, XrdOucEnv*) override { return -ENOTSUP; }
  int Rename(const char*, const char*, XrdOucEnv*, XrdOucEnv*) override { return -ENOTSUP; }
  int Truncate(const char*, unsigned long long, XrdOucEnv*) override { return -ENOTSUP; }
  int Unlink(const char*, int, XrdOucEnv*) override { return -ENOTSUP; }
  int Stat(const char*, struct stat* status, int, XrdOucEnv*) override {
    *status = {};
    status->st_mode = mode;
    return result;
  }
  int result = 0;
  mode_t mode = S_IFREG | 0644;
};

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

// A cache's disk in tests of what asks it: Stat and StatVS answer to order; there is nothing else in it.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "XrdOss/XrdOss.hh"
#include "XrdOss/XrdOssVS.hh"

namespace smartcache {

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
  int StatVS(XrdOssVSInfo* info, const char* name, int) override {
    if (name != space) return -ENOENT;
    info->Total = total;
    info->Free = free;
    return 0;
  }

  int result = 0;
  mode_t mode = S_IFREG | 0644;
  std::string space = "public";
  long long total = 1000, free = 400;
};

}  // namespace smartcache

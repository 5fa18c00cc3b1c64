// XrdPfc::Cache::UnlinkFile(path, fail_if_open = true) of the libXrdPfc that has loaded this plugin.
//
// It is the one way to remove a cached file that respects pfc's own record of what is open; it is exported by libXrdPfc, but distributions
// do not ship its header, so the two symbols are looked up by name in the library that is loaded already. Thread-safe.
#pragma once

#include <string>

namespace smartcache {

class PfcUnlink {
 public:
  PfcUnlink();

  // Empty where it can be used, else why not.
  const std::string& problem() const { return problem_; }
  // 0 done, -EBUSY open, -ENOENT absent.
  int operator()(const std::string& lfn) const;

 private:
  // Member functions take `this` as their first argument in the Itanium C++ ABI, which all of XRootD's platforms use.
  using GetInstance = void* (*)();
  using UnlinkFile = int (*)(void* cache, const std::string& path, bool fail_if_open);

  GetInstance get_instance_ = nullptr;
  UnlinkFile unlink_file_ = nullptr;
  std::string problem_;
};

}  // namespace smartcache

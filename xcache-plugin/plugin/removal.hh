// The ways to remove a cached file that respect pfc's own record of what is open. Unlinking through XrdOss does not.
//
// In process: XrdPfc::Cache::UnlinkFile(path, fail_if_open = true) of the libXrdPfc that has loaded this plugin. Its header is not
// distributed, so the symbols are looked up by name in the library that is loaded already. An open of the file that comes meanwhile waits
// until it is gone; where pfc forgets to wake it (5.5), we do.
// By a client: `cache evict` sent to this server, as `xrdfs HOST cache evict PATH` sends it; server and client library of XRootD 5.6 and
// later know it. It goes through the server's own authentication and authorisation, as anybody's read does.
#pragma once

#include <functional>
#include <string>

#include "smartcache/config.hh"

namespace smartcache {

struct Removal {
  // 0 done, or absent where a client asked; -EBUSY open, -ENOENT absent, another negative errno: failed. Thread-safe; a client waits for
  // seconds. Empty: there is no way.
  std::function<int(const std::string& lfn)> remove;
  std::string how;  // in words; where there is no way: why not
};

// The way that [evictor] through names; for kAuto the first of the two that can be used. `port`: this server's.
Removal FindRemoval(EvictThrough through, const std::string& port);

}  // namespace smartcache

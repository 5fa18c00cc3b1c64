#include "smartcache/off_switch.hh"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace smartcache {
namespace {

bool Exists(const std::string& file, bool otherwise) {
  struct stat status;
  if (::stat(file.c_str(), &status) == 0) return true;
  return errno == ENOENT || errno == ENOTDIR ? false : otherwise;
}

}  // namespace

OffSwitch::OffSwitch(std::string file, Log log, double every_s)
    : file_(std::move(file)), log_(std::move(log)), off_(Exists(file_, false)), thread_(every_s, [this] { Look(); }) {
  if (off()) log_(file_ + " exists: turned off, every open is admitted and nothing is removed, until it is gone");
}

void OffSwitch::Look() noexcept {
  try {
    const bool before = off();
    const bool now = Exists(file_, before);
    off_.store(now, std::memory_order_relaxed);
    if (now != before)
      log_(file_ + (now ? " exists: turned off, every open is admitted and nothing is removed, until it is gone" : " is gone: turned on"));
  } catch (...) {
    // No memory for the line: the state has changed all the same.
  }
}

}  // namespace smartcache

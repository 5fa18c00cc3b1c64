// An open file, closed at the end of its life. Not for use by two threads at once. Failure: get() is -1, errno says why.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace smartcache {

class Descriptor {
 public:
  // O_CLOEXEC is added; a file that is made is its owner's alone.
  Descriptor(const char* path, int flags) : fd_(::open(path, flags | O_CLOEXEC, 0600)) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  // False where what was written may not be on the disk.
  bool Close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

}  // namespace smartcache

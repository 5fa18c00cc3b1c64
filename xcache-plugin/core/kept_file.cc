#include "smartcache/kept_file.hh"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <system_error>

#include "smartcache/descriptor.hh"

namespace smartcache {
namespace {

bool WriteAll(int fd, const void* data, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::write(fd, static_cast<const char*>(data) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// So that the rename itself outlives the machine. A file system that cannot do it is as good as it is.
void SyncFolderOf(const std::string& path) {
  const Descriptor folder(path.substr(0, path.rfind('/') + 1).c_str(), O_RDONLY | O_DIRECTORY);
  if (folder.get() >= 0) ::fsync(folder.get());
}

}  // namespace

bool ReplaceFile(const std::string& path, const std::function<bool(const FileSink& sink)>& write, std::string* why) {
  const std::string temporary = path + ".tmp";
  ::unlink(temporary.c_str());  // of a server that was killed
  Descriptor file(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL);
  int error = file.get() < 0 ? errno : 0;
  if (error == 0) {
    const bool written = write([&](const void* data, size_t size) {
      if (WriteAll(file.get(), data, size)) return true;
      error = errno;
      return false;
    });
    if (written && (::fsync(file.get()) != 0 || !file.Close() || std::rename(temporary.c_str(), path.c_str()) != 0)) error = errno;
    if (written && error == 0) {
      SyncFolderOf(path);
      return true;
    }
    ::unlink(temporary.c_str());
  }
  if (error != 0) *why = "cannot be written (" + ErrorText(error) + ")";
  return false;
}

std::string SetAside(const std::string& path) {
  const std::string bad = path + ".bad-" + std::to_string(std::time(nullptr));
  return std::rename(path.c_str(), bad.c_str()) == 0
             ? "it is now " + bad
             : "it cannot be renamed (" + ErrorText(errno) + "): let the server's user write to its folder";
}

std::string ErrorText(int error) { return std::generic_category().message(error); }

}  // namespace smartcache

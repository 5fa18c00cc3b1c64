#include "smartcache/history_keeper.hh"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "smartcache/descriptor.hh"
#include "smartcache/kept_file.hh"

namespace smartcache {
namespace {

class FileSource : public HistorySource {
 public:
  explicit FileSource(int fd) : fd_(fd) {}
  size_t Read(void* data, size_t size) override {
    size_t got = 0;
    while (got < size) {
      const ssize_t n = ::read(fd_, static_cast<char*>(data) + got, size - got);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) error_ = errno;
      if (n <= 0) break;
      got += static_cast<size_t>(n);
    }
    return got;
  }
  bool Rewind() override { return ::lseek(fd_, 0, SEEK_SET) == 0; }
  int error() const { return error_; }

 private:
  const int fd_;
  int error_ = 0;
};

}  // namespace

HistoryKeeper::HistoryKeeper(const Config& config, History* history, std::mutex* mutex, std::function<HistoryState()> state,
                             Counters* counters, Log log)
    : config_(config),
      path_(config_.history.file),
      history_(history),
      mutex_(mutex),
      state_(std::move(state)),
      counters_(counters),
      log_(std::move(log)) {
  Restore();
}

void HistoryKeeper::Start() {
  // Not of low priority: opens would wait for a thread that has their lock and no processor.
  thread_ = std::make_unique<Periodic>(config_.history.save_s, [this] { Save(); });
}

HistoryKeeper::~HistoryKeeper() {
  thread_.reset();
  Save();
}

void HistoryKeeper::Restore() {
  const auto start = std::chrono::steady_clock::now();
  const Descriptor file(path_.c_str(), O_RDONLY | O_NONBLOCK);  // a FIFO must not hold up the server's start
  if (file.get() < 0) {
    if (errno == ENOENT)
      log_("[history] file \"" + path_ + "\" is not there yet: the history begins empty");
    else
      Refuse("cannot be opened (" + ErrorText(errno) + ")");
    return;
  }
  struct stat status;
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return Refuse("is no file");
  FileSource source(file.get());
  HistoryState state;
  std::string why;
  bool good;
  try {
    good = RestoreHistory(&source, config_, history_, &state, &why);
  } catch (const std::bad_alloc&) {
    history_->Clear();
    good = false;
    why = "needs more memory than there is";
  }
  if (!good) return Refuse(source.error() != 0 ? "cannot be read (" + ErrorText(source.error()) + ")" : why);
  restored_ = state;
  saved_stamp_ = history_->stamp();
  counters_->HistorySavedAt(status.st_mtime);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  char line[160];
  std::snprintf(line, sizeof line, "history restored: %llu files, %llu datasets, in %.3f s",
                static_cast<unsigned long long>(history_->files()), static_cast<unsigned long long>(history_->datasets()), seconds);
  log_(line);
}

void HistoryKeeper::Refuse(const std::string& what_is_wrong) {
  log_("[history] file must be a history that this plugin saved, but \"" + path_ + "\" " + what_is_wrong + "; " + SetAside(path_) +
       ", and the history begins empty");
}

void HistoryKeeper::Save() noexcept {
  try {
    uint64_t stamp = 0;
    {
      const std::lock_guard<std::mutex> lock(*mutex_);
      stamp = history_->stamp();
    }
    if (stamp == saved_stamp_) return;
    std::string why;
    if (Write(&why)) {
      saved_stamp_ = stamp;  // or a little later: then it is saved once more
      failed_ = false;
      counters_->HistorySaved(true);
      counters_->HistorySavedAt(std::time(nullptr));
      return;
    }
    counters_->HistorySaved(false);
    if (!std::exchange(failed_, true))
      log_("[history] file must be one that can be written, but \"" + path_ + "\" " + why +
           "; the one before stays. Make room on its disk and let the server's user write to its folder");
  } catch (...) {
    counters_->HistorySaved(false);
  }
}

bool HistoryKeeper::Write(std::string* why) {
  return ReplaceFile(
      path_, [&](const FileSink& sink) { return WriteHistory(config_, history_, mutex_, state_, sink, why); }, why);
}

}  // namespace smartcache

#include "smartcache/portfolio_keeper.hh"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "smartcache/descriptor.hh"
#include "smartcache/kept_file.hh"

namespace smartcache {
namespace {

constexpr double kTidyEveryS = 1.0;
constexpr off_t kLargestFile = off_t{1} << 32;

// All of a plain file that is not absurdly large; else the reason.
bool ReadFile(int fd, std::string* out, std::string* why) {
  struct stat status;
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    *why = "is no file";
    return false;
  }
  if (status.st_size > kLargestFile) {
    *why = "is larger than 4 GiB";
    return false;
  }
  out->resize(static_cast<size_t>(status.st_size));
  for (size_t got = 0; got < out->size();) {
    const ssize_t n = ::read(fd, out->data() + got, out->size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      *why = n < 0 ? "cannot be read (" + ErrorText(errno) + ")" : "was cut while it was read";
      return false;
    }
    got += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

PortfolioKeeper::PortfolioKeeper(const Config& config, FilePortfolio* portfolio, Log log)
    : path_(config.portfolio.file), save_every_(config.history.save_s), portfolio_(portfolio), log_(std::move(log)) {
  if (!path_.empty()) Restore();
  thread_ = std::make_unique<Periodic>(kTidyEveryS, [this] { Keep(); });
}

PortfolioKeeper::~PortfolioKeeper() {
  thread_.reset();
  try {
    Save();
  } catch (...) {
    // No memory: the file before stays.
  }
}

void PortfolioKeeper::Restore() {
  const Descriptor file(path_.c_str(), O_RDONLY | O_NONBLOCK);  // a FIFO must not hold up the server's start
  if (file.get() < 0 && errno == ENOENT) return;
  std::string bytes, why;
  bool good = false;
  if (file.get() < 0) {
    why = "cannot be opened (" + ErrorText(errno) + ")";
  } else {
    try {
      good = ReadFile(file.get(), &bytes, &why) && portfolio_->Read(bytes, &why);
    } catch (const std::bad_alloc&) {
      why = "needs more memory than there is";
    }
  }
  if (!good)
    log_("[portfolio] file must be a portfolio that this plugin saved, but \"" + path_ + "\" " + why + "; " + SetAside(path_) +
         ", and the portfolio begins anew");
}

void PortfolioKeeper::Keep() noexcept {
  try {
    portfolio_->Tidy();
    const FilePortfolio::State state = portfolio_->state();
    if (state.ready && !std::exchange(was_ready_, true))
      log_("portfolio: in use, " + std::to_string(state.files) + " files known, room for " + std::to_string(state.capacity_bytes) +
           " bytes");
    if (state.guarded != std::exchange(was_guarded_, state.guarded))
      log_(state.guarded ? "portfolio: has lost more than it may against LRU; LRU decides until that is made good"
                         : "portfolio: decides again");
    if (state.forgotten != 0 && std::exchange(forgotten_, state.forgotten) == 0)
      log_("[portfolio] memory_bytes has room for fewer files than are opened: those opened longest ago are forgotten");
    if (Clock::now() - saved_ >= save_every_) Save();
  } catch (...) {
    // No memory: the next second tries again.
  }
}

void PortfolioKeeper::Save() {
  saved_ = Clock::now();
  if (path_.empty()) return;
  const std::string bytes = portfolio_->Write();
  if (bytes.empty()) return;
  std::string why;
  if (ReplaceFile(
          path_, [&](const FileSink& sink) { return sink(bytes.data(), bytes.size()); }, &why)) {
    failed_ = false;
  } else if (!std::exchange(failed_, true)) {
    log_("[portfolio] file must be one that can be written, but \"" + path_ + "\" " + why +
         "; the one before stays. Make room on its disk and let the server's user write to its folder");
  }
}

}  // namespace smartcache

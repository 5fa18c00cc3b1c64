#include "smartcache/side_table_watcher.hh"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace smartcache {
namespace {

// What tells one file from another; where none can be looked at, why.
std::string StateOf(const std::string& path, int* error) {
  struct stat status;
  *error = ::stat(path.c_str(), &status) == 0 ? 0 : errno;
  if (*error != 0) return "error " + std::to_string(*error);
  return std::to_string(status.st_dev) + " " + std::to_string(status.st_ino) + " " + std::to_string(status.st_size) + " " +
         std::to_string(status.st_ctim.tv_sec) + "." + std::to_string(status.st_ctim.tv_nsec);
}

}  // namespace

SideTableWatcher::SideTableWatcher(const SideTableConfig& config, Counters* counters, Log log)
    : path_(config.file), counters_(counters), log_(std::move(log)), thread_(config.poll_s, [this] { Poll(); }) {}

void SideTableWatcher::Poll() noexcept {
  try {
    Look();
  } catch (...) {
    // No memory for a message: the next look comes.
  }
}

void SideTableWatcher::Look() {
  before_.reset();
  int error = 0;
  const std::string state = StateOf(path_, &error);
  if (state == looked_at_) return;
  if (error == ENOENT) {
    looked_at_ = state;
    Use(nullptr);
    SayOnce("side table: [side_table] file must be one, but " + path_ + " is not there; opens go on without a table until it is");
    return;
  }
  // Not at low priority: an open would wait for a thread that swaps the pointer and has no processor.
  std::string refused;
  try {
    auto table = std::make_shared<const SideTable>(SideTable::Read(path_));
    if (StateOf(path_, &error) != state) return;  // half of it may be old
    const std::string text = "version " + std::to_string(table->version()) + ", " + std::to_string(table->datasets()) + " datasets";
    const bool tell = !current() || !last_said_.empty();
    Use(std::move(table));
    counters_->SideTableLoaded(true);
    looked_at_ = state;
    last_said_.clear();
    if (tell) log_("side table " + path_ + " is in use: " + text);
    return;
  } catch (const std::bad_alloc&) {
    refused = path_ + ": must fit into memory that this process may have, but does not; publish fewer datasets ([side_table] datasets)";
  } catch (const std::exception& problem) {
    refused = problem.what();
  }
  looked_at_ = state;
  counters_->SideTableLoaded(false);
  SayOnce("side table: " + refused + (current() ? "; the one before stays" : ""));
}

void SideTableWatcher::Use(std::shared_ptr<const SideTable> table) {
  before_ = current();
  std::atomic_store(&table_, std::move(table));
}

void SideTableWatcher::SayOnce(const std::string& text) {
  if (text != last_said_) log_(text);
  last_said_ = text;
}

}  // namespace smartcache

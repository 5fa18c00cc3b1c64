#include "recent_looks.hh"

#include "smartcache/hash.hh"

namespace smartcache {

RecentLooks::RecentLooks() : slots_(std::make_unique<std::array<Slot, kSlots>>()) {}

std::optional<FileState> RecentLooks::Find(std::string_view lfn, int64_t now_us) {
  const uint64_t file = Mix(Fnv(lfn));
  const std::lock_guard<std::mutex> lock(locks_[file % kLocks].mutex);
  const Slot& slot = (*slots_)[file % kSlots];
  if (slot.file != file || now_us >= slot.until_us) return std::nullopt;
  return slot.found;
}

void RecentLooks::Put(std::string_view lfn, int64_t now_us, const FileState& found) {
  if (!found.on_disk) return;
  const uint64_t file = Mix(Fnv(lfn));
  const std::lock_guard<std::mutex> lock(locks_[file % kLocks].mutex);
  (*slots_)[file % kSlots] = {file, now_us + kGoodForUs, found};
}

void RecentLooks::Forget(std::string_view lfn) {
  const uint64_t file = Mix(Fnv(lfn));
  const std::lock_guard<std::mutex> lock(locks_[file % kLocks].mutex);
  Slot& slot = (*slots_)[file % kSlots];
  if (slot.file == file) slot = {};
}

}  // namespace smartcache

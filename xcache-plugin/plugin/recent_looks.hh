// Files that a look has found on disk a moment ago (cache_state.hh): opened again within a second, they are not looked at again. A look
// costs a path's walk, an open, a read and a close; what is opened by many clients at once is what a server spends its looks on.
//
// Only presence is remembered: absence would let a file be bypassed that another open has just stored. A file that pfc's purge removes
// within that second still counts as on disk, so an open of it is stored without being asked about; what we remove is forgotten at once.
// What was read of it last may be a second old. Memory: 4096 files, 160 KiB; a file takes the place of another of the same slot.
// Thread-safety: any thread may call anything.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "cache_state.hh"

namespace smartcache {

class RecentLooks {
 public:
  static constexpr int64_t kGoodForUs = 1000000;

  RecentLooks();

  // now_us: of a clock that is not set. Files are told apart by 64 bits of hash.
  std::optional<FileState> Find(std::string_view lfn, int64_t now_us);
  // What was found then; nothing is kept of a file that is not on disk.
  void Put(std::string_view lfn, int64_t now_us, const FileState& found);
  void Forget(std::string_view lfn);

 private:
  static constexpr size_t kSlots = 4096, kLocks = 64;
  struct Slot {
    uint64_t file = 0;
    int64_t until_us = 0;
    FileState found;
  };
  struct alignas(64) Lock {
    std::mutex mutex;
  };

  std::unique_ptr<std::array<Slot, kSlots>> slots_;
  std::array<Lock, kLocks> locks_;
};

}  // namespace smartcache

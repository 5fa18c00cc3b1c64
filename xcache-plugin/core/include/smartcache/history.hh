// What is remembered of earlier opens, per file and per dataset, in a fixed amount of memory.
//
// One arena of equal slots for files and datasets, an index of 32-bit slot numbers chained by hash, and one list in the order of the last
// open: when the arena is full, the entry opened longest ago goes, whichever kind it is. Arena and index are reserved once from
// `memory_bytes` (the system backs pages as they are first touched), so no open ever pays for growing or rehashing.
// Decayed counters: one per half-life h, value(t) = value(t0) * 2^-((t-t0)/h), +1 at each open.
// Thread-safety: none; the owner serialises. Failure: std::bad_alloc at construction only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "smartcache/config.hh"

namespace smartcache {

class History {
 public:
  enum class Kind : uint32_t { kFree, kFile, kDataset };

  // A file uses the first block of fields, a dataset both. Times are microseconds.
  struct Entry {
    uint64_t key;
    uint32_t next_in_bucket, newer, older;
    Kind kind;
    int64_t first_us, last_us;
    uint64_t opens;
    int64_t previous_gap_us;  // -1: opened once so far

    uint64_t files;          // distinct files seen
    uint64_t reopens;        // opens of a file seen before
    double reopen_log_gaps;  // sum over re-opens of ln(1 + gap in seconds)
  };

  History(const HistoryConfig& config, size_t half_lives);

  // The entry, or null where there is none.
  Entry* Find(uint64_t key, Kind kind);
  // A zeroed new entry; the oldest one goes where the arena is full, except `keep`. Then the newest of the list.
  Entry* Insert(uint64_t key, Kind kind, const Entry* keep);
  // Makes it the newest of the list.
  void Touch(Entry* entry);

  // The decayed counters of an entry: opens, then (datasets) re-opens, `half_lives` of each.
  double* Opens(Entry* entry) const { return reinterpret_cast<double*>(entry + 1); }
  double* Reopens(Entry* entry) const { return Opens(entry) + half_lives_; }

  uint64_t files() const { return files_; }
  uint64_t datasets() const { return datasets_; }
  // What is in use: the index and every slot that was ever filled. Never more than configured.
  uint64_t memory_bytes() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  Entry* At(uint32_t slot) const { return reinterpret_cast<Entry*>(arena_.get() + static_cast<size_t>(slot) * stride_); }
  uint32_t SlotOf(const Entry* entry) const;
  void Unlink(Entry* entry);
  void LinkNewest(Entry* entry);
  void Forget(Entry* entry);

  // Zeroed memory straight from the system, which backs it as it is touched; in huge pages where it can, so that filling the arena is not
  // a page fault every few opens.
  class Mapping {
   public:
    explicit Mapping(size_t bytes);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    std::byte* get() const { return memory_; }

   private:
    std::byte* memory_;
    size_t bytes_;
  };
  struct Sizes {
    uint32_t capacity, buckets;
  };
  static Sizes Fit(const HistoryConfig& config, size_t stride);
  uint32_t* Bucket(uint64_t key) const { return reinterpret_cast<uint32_t*>(index_.get()) + (key & (sizes_.buckets - 1)); }

  const size_t half_lives_;
  const size_t stride_;
  const Sizes sizes_;  // `buckets` is a power of two
  Mapping arena_;
  Mapping index_;          // per bucket: slot + 1; 0: empty, so that untouched pages need no initialising
  uint32_t filled_ = 0;    // slots below this were used at least once
  uint32_t free_ = kNone;  // a slot that was given back
  uint32_t newest_ = kNone, oldest_ = kNone;
  uint64_t files_ = 0, datasets_ = 0;
};

}  // namespace smartcache

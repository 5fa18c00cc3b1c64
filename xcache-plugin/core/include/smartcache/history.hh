// What is remembered of earlier opens, per file and per dataset, in a fixed amount of memory.
//
// One arena of equal slots for files and datasets, an index of 32-bit slot numbers chained by hash, and one list in the order of the last
// touch. Arena and index are reserved once from `memory_bytes` and backed by the system as they are used, ahead of it where somebody calls
// Back; so no open ever pays for growing or rehashing.
// Decayed counters: one per half-life h, value(t) = value(t0) * 2^-((t-t0)/h), +1 at each open.
// Forgetting: where the arena is full, the 8 entries touched longest ago are looked at. Of these the one goes whose usefulness
//     u = decayed opens by the longest half-life, as of now (a dataset's are those of its files)
// is the smallest, the one touched longest ago among equals; the others with u > 1, which is what a newcomer will have, move to the newest
// end of the list: they are looked at again only after everything else. So files opened once go in the order of their age, and a scan of
// any number of them leaves those opened often. A fixed number of steps for each new entry, the same for the same opens.
// Prediction: what a model said at the last open of a file, so that what is on disk can be ranked as it ages: each bucket's share as 16
// bits, in the bytes that only datasets use otherwise. 7 buckets and 4 more for each half-life fit; a longer distribution is not
// remembered. Snapshot: a copy of all entries as they are at one moment, taken in steps while the history is used. An entry that is touched
// before it was copied is set aside as it was then (copy on write); so the owner touches an entry before changing it. Predictions are not
// part of that promise: the copy has the one or the next. Thread-safety: none but for Back; the owner serialises. Failure: std::bad_alloc
// at construction and from BeginSnapshot only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "smartcache/config.hh"

namespace smartcache {

class History {
 public:
  enum class Kind : uint64_t { kFree, kFile, kDataset };

  struct FileFields {
    int64_t previous_gap_us;  // -1: opened once so far
    float read_share;         // bytes read at the last access that was told, over the size; -1: never told
    uint32_t model_id;        // who gave the prediction; its owner's choice
    uint16_t buckets;         // length of the prediction; 0: none since the last open
    uint16_t outputs[7];      // goes on where a dataset's re-open counters are
  };
  struct DatasetFields {
    uint32_t files;          // distinct files seen
    uint32_t told;           // opens that were told what was read last time
    uint64_t reopens;        // opens of a file seen before
    double reopen_log_gaps;  // sum over re-opens of ln(1 + gap in seconds)
    double read_shares;      // sum over the told
  };
  // Times are microseconds. 32-bit counts stay at their largest value.
  struct Entry {
    uint64_t key;
    uint32_t next_in_bucket, newer, older;
    uint32_t opens;
    Kind kind : 2;
    uint64_t stamp : 62;  // counts touches: the order of the list
    int64_t first_us, last_us;
    union {
      FileFields file;
      DatasetFields dataset;
    };
  };

  // What was predicted at the last open of a file, and when that was.
  struct Forecast {
    static constexpr size_t kMaxBuckets = 39;
    int64_t last_us;
    uint64_t opens;
    uint32_t model_id;
    size_t buckets;  // 0: no prediction since that open
    float outputs[kMaxBuckets];
  };

  History(const HistoryConfig& config, const std::vector<double>& half_lives_s);

  // The entry, or null where there is none.
  Entry* Find(uint64_t key, Kind kind);
  // A zeroed new entry, the newest of the list. Where the arena is full, the least useful one as of `now_us` goes: never one of the newest.
  Entry* Insert(uint64_t key, Kind kind, int64_t now_us);
  // Makes it the newest of the list. Before anything in it is changed.
  void Touch(Entry* entry);
  static void Count(uint32_t* count) { *count += *count < UINT32_MAX; }

  // Keeps what `model_id` answered at the open at `t_us`: `n` shares. False where the file has been forgotten or opened again since, or
  // where `n` is more than max_buckets().
  bool Remember(uint64_t file, int64_t t_us, uint32_t model_id, const double* outputs, size_t n);
  // False where the file is not known. The outputs add up to 1.
  bool Recall(uint64_t file, Forecast* out);
  size_t max_buckets() const { return sizeof FileFields::outputs / sizeof(uint16_t) + half_lives_ * sizeof(double) / sizeof(uint16_t); }

  // The decayed counters of an entry, `half_lives` of each: re-opens (datasets only), opens.
  double* Reopens(Entry* entry) const { return reinterpret_cast<double*>(entry + 1); }
  double* Opens(Entry* entry) const { return Reopens(entry) + half_lives_; }
  size_t half_lives() const { return half_lives_; }

  // --- Snapshot. From BeginSnapshot to EndSnapshot; one at a time.
  void BeginSnapshot();
  // Copies the next `slots` slots, and what has been set aside since the last call, to `out`: entry_bytes() each, in no order. kLost: more
  // was set aside than there is room for, as the caller came too rarely; the snapshot cannot be completed.
  enum class Step { kMore, kDone, kLost };
  Step CopySome(uint32_t slots, std::vector<std::byte>* out);
  void EndSnapshot();
  size_t entry_bytes() const { return stride_; }

  // --- Filling an empty history: entries as a snapshot has them, in any order, then Relink. False where the key is there or the arena is
  // full; false where two have the same stamp.
  bool Adopt(const Entry& entry, const double* counters);
  bool Relink(uint64_t stamp);
  void Clear();

  // Has the system back the memory that is used next. Thread-safe; to be called by one thread, in the background.
  void Back();

  uint64_t files() const { return files_; }
  uint64_t datasets() const { return datasets_; }
  // Entries that others had to make room for, since the beginning.
  uint64_t forgotten_files() const { return forgotten_files_; }
  uint64_t forgotten_datasets() const { return forgotten_datasets_; }
  uint32_t capacity() const { return sizes_.capacity; }
  // Touches so far.
  uint64_t stamp() const { return stamp_; }
  // What is in use: the index and every slot that was ever filled. Never more than configured.
  uint64_t memory_bytes() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  Entry* At(uint32_t slot) const { return reinterpret_cast<Entry*>(arena_.get() + static_cast<size_t>(slot) * stride_); }
  uint32_t SlotOf(const Entry* entry) const;
  void Unlink(Entry* entry);
  void LinkNewest(Entry* entry);
  void Forget(Entry* entry);
  void MakeRoom(int64_t now_us);
  double Usefulness(Entry* entry, int64_t now_us) const;
  Entry* Take(uint64_t key, Kind kind);
  void Preserve(const Entry* entry);
  static std::byte* Outputs(Entry* entry) { return reinterpret_cast<std::byte*>(entry) + offsetof(Entry, file.outputs); }

  // Zeroed memory straight from the system, which backs it as it is touched; in huge pages where it can.
  class Mapping {
   public:
    explicit Mapping(size_t bytes);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    std::byte* get() const { return memory_; }
    size_t bytes() const { return bytes_; }
    void Zero();
    // Backs it up to `end`, from where the last call ended.
    void Back(size_t end);

   private:
    std::byte* memory_;
    size_t bytes_;
    size_t backed_ = 0;
  };
  struct Sizes {
    uint32_t capacity, buckets;
  };
  static Sizes Fit(const HistoryConfig& config, size_t stride);
  uint32_t* Bucket(uint64_t key) const { return reinterpret_cast<uint32_t*>(index_.get()) + (key & (sizes_.buckets - 1)); }

  const size_t half_lives_;
  const double per_longest_half_life_;  // 1 / microseconds
  const size_t stride_;
  const Sizes sizes_;  // `buckets` is a power of two
  Mapping arena_;
  Mapping index_;                    // per bucket: slot + 1; 0: empty, so that untouched pages need no initialising
  std::atomic<uint32_t> filled_{0};  // slots below this were used at least once
  uint32_t free_ = kNone;            // a slot that was given back
  uint32_t newest_ = kNone, oldest_ = kNone;
  uint64_t stamp_ = 0;
  uint64_t files_ = 0, datasets_ = 0, forgotten_files_ = 0, forgotten_datasets_ = 0;

  struct Snapshot {
    bool active = false, lost = false;
    uint64_t stamp = 0;            // entries with a later one are newer than it
    uint32_t cursor = 0, end = 0;  // slots below the cursor were copied
    std::vector<std::byte> aside;  // entries that were touched before they were copied
  } snapshot_;
};

}  // namespace smartcache

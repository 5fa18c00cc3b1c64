#include "smartcache/history.hh"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace smartcache {

History::Mapping::Mapping(size_t bytes) : bytes_(bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: small pages do as well
  memory_ = static_cast<std::byte*>(memory);
}

History::Mapping::~Mapping() { ::munmap(memory_, bytes_); }

// At most one bucket a slot and at least half a one: the largest power of two that fits beside the slots.
History::Sizes History::Fit(const HistoryConfig& config, size_t stride) {
  const auto memory = static_cast<uint64_t>(config.memory_bytes);
  const uint64_t wanted = std::min<uint64_t>(memory / (stride + sizeof(uint32_t)), UINT32_MAX / 2);
  uint32_t buckets = 1;
  while (uint64_t{buckets} * 2 <= wanted) buckets *= 2;
  const uint64_t left = memory - uint64_t{buckets} * sizeof(uint32_t);
  return {static_cast<uint32_t>(std::min<uint64_t>(left / stride, UINT32_MAX / 2)), buckets};
}

History::History(const HistoryConfig& config, size_t half_lives)
    : half_lives_(half_lives),
      stride_(sizeof(Entry) + 2 * half_lives * sizeof(double)),
      sizes_(Fit(config, stride_)),
      arena_(size_t{sizes_.capacity} * stride_),
      index_(size_t{sizes_.buckets} * sizeof(uint32_t)) {}

uint32_t History::SlotOf(const Entry* entry) const {
  return static_cast<uint32_t>(static_cast<size_t>(reinterpret_cast<const std::byte*>(entry) - arena_.get()) / stride_);
}

History::Entry* History::Find(uint64_t key, Kind kind) {
  uint32_t link = *Bucket(key);
  while (link != 0) {
    Entry* entry = At(link - 1);
    if (entry->key == key && entry->kind == kind) return entry;
    link = entry->next_in_bucket;
  }
  return nullptr;
}

History::Entry* History::Insert(uint64_t key, Kind kind, const Entry* keep) {
  if (filled_ == sizes_.capacity && free_ == kNone) {
    Entry* oldest = At(oldest_);
    Forget(oldest == keep ? At(oldest->newer) : oldest);
  }
  const uint32_t slot = free_ != kNone ? free_ : filled_++;
  free_ = kNone;
  Entry* entry = At(slot);
  std::memset(static_cast<void*>(entry), 0, stride_);
  entry->key = key;
  entry->kind = kind;
  entry->previous_gap_us = -1;
  uint32_t* bucket = Bucket(key);
  entry->next_in_bucket = *bucket;
  *bucket = slot + 1;
  LinkNewest(entry);
  ++(kind == Kind::kFile ? files_ : datasets_);
  return entry;
}

void History::Touch(Entry* entry) {
  if (SlotOf(entry) == newest_) return;
  Unlink(entry);
  LinkNewest(entry);
}

void History::Unlink(Entry* entry) {
  (entry->newer == kNone ? newest_ : At(entry->newer)->older) = entry->older;
  (entry->older == kNone ? oldest_ : At(entry->older)->newer) = entry->newer;
}

void History::LinkNewest(Entry* entry) {
  const uint32_t slot = SlotOf(entry);
  entry->newer = kNone;
  entry->older = newest_;
  (newest_ == kNone ? oldest_ : At(newest_)->newer) = slot;
  newest_ = slot;
}

void History::Forget(Entry* entry) {
  const uint32_t slot = SlotOf(entry);
  uint32_t* link = Bucket(entry->key);
  while (*link != slot + 1) link = &At(*link - 1)->next_in_bucket;
  *link = entry->next_in_bucket;
  Unlink(entry);
  --(entry->kind == Kind::kFile ? files_ : datasets_);
  entry->kind = Kind::kFree;
  free_ = slot;
}

uint64_t History::memory_bytes() const { return uint64_t{sizes_.buckets} * sizeof(uint32_t) + uint64_t{filled_} * stride_; }

}  // namespace smartcache

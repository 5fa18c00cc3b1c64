#include "smartcache/history.hh"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "smartcache/exact_math.hh"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; before that it is refused, and pages are backed as they are touched
#endif

namespace smartcache {
namespace {

constexpr double kWhole = UINT16_MAX;  // a share of 1
constexpr int kLookedAt = 8;
constexpr double kNewcomer = 1.0;  // the usefulness of what was opened once, just now
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kAhead = size_t{16} << 20;  // 100000 files and more
constexpr size_t kAsideEntries = 16384;

static_assert(sizeof(History::Entry) == 80, "what is saved has this layout: another one needs another version of the file");

}  // namespace

History::Mapping::Mapping(size_t bytes) : bytes_(bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: small pages do as well
  memory_ = static_cast<std::byte*>(memory);
}

History::Mapping::~Mapping() { ::munmap(memory_, bytes_); }

void History::Mapping::Zero() { ::madvise(memory_, bytes_, MADV_DONTNEED); }

// In small steps: whoever maps memory elsewhere in the process waits for one.
void History::Mapping::Back(size_t end) {
  end = std::min(end, bytes_);
  while (backed_ < end) {
    const size_t step = std::min(kHugePage, bytes_ - backed_);
    if (::madvise(memory_ + backed_, step, MADV_POPULATE_WRITE) != 0) return;
    backed_ += step;
  }
}

// At most one bucket a slot and at least half a one: the largest power of two that fits beside the slots.
History::Sizes History::Fit(const HistoryConfig& config, size_t stride) {
  const auto memory = static_cast<uint64_t>(config.memory_bytes);
  const uint64_t wanted = std::min<uint64_t>(memory / (stride + sizeof(uint32_t)), UINT32_MAX / 2);
  uint32_t buckets = 1;
  while (uint64_t{buckets} * 2 <= wanted) buckets *= 2;
  const uint64_t left = memory - uint64_t{buckets} * sizeof(uint32_t);
  return {static_cast<uint32_t>(std::min<uint64_t>(left / stride, UINT32_MAX / 2)), buckets};
}

History::History(const HistoryConfig& config, const std::vector<double>& half_lives_s)
    : half_lives_(half_lives_s.size()),
      per_longest_half_life_(1.0 / (half_lives_s.back() * 1e6)),
      stride_(sizeof(Entry) + 2 * half_lives_ * sizeof(double)),
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

// A slot for the key, in the index but not in the list. There is room.
History::Entry* History::Take(uint64_t key, Kind kind) {
  const uint32_t filled = filled_.load(std::memory_order_relaxed);
  const uint32_t slot = free_ != kNone ? free_ : filled;
  if (slot == filled) filled_.store(filled + 1, std::memory_order_relaxed);
  free_ = kNone;
  Entry* entry = At(slot);
  std::memset(static_cast<void*>(entry), 0, stride_);
  entry->key = key;
  entry->kind = kind;
  uint32_t* bucket = Bucket(key);
  entry->next_in_bucket = *bucket;
  *bucket = slot + 1;
  ++(kind == Kind::kFile ? files_ : datasets_);
  return entry;
}

History::Entry* History::Insert(uint64_t key, Kind kind, int64_t now_us) {
  if (filled_.load(std::memory_order_relaxed) == sizes_.capacity && free_ == kNone) MakeRoom(now_us);
  Entry* entry = Take(key, kind);
  if (kind == Kind::kFile) {
    entry->file.previous_gap_us = -1;
    entry->file.read_share = -1.0f;
  }
  LinkNewest(entry);
  return entry;
}

double History::Usefulness(Entry* entry, int64_t now_us) const {
  const auto elapsed = static_cast<double>(std::max<int64_t>(0, now_us - entry->last_us));
  return Opens(entry)[half_lives_ - 1] * HalfPower(elapsed * per_longest_half_life_);
}

void History::MakeRoom(int64_t now_us) {
  std::pair<Entry*, double> looked_at[kLookedAt];
  int n = 0, least = 0;
  for (uint32_t slot = oldest_; slot != kNone && n < kLookedAt; slot = At(slot)->newer, ++n) {
    looked_at[n] = {At(slot), Usefulness(At(slot), now_us)};
    if (looked_at[n].second < looked_at[least].second) least = n;
  }
  for (int i = 0; i < n; ++i) {
    if (i == least)
      Forget(looked_at[i].first);
    else if (looked_at[i].second > kNewcomer)
      Touch(looked_at[i].first);
  }
}

void History::Touch(Entry* entry) {
  Preserve(entry);
  Unlink(entry);
  LinkNewest(entry);
}

void History::Unlink(Entry* entry) {
  (entry->newer == kNone ? newest_ : At(entry->newer)->older) = entry->older;
  (entry->older == kNone ? oldest_ : At(entry->older)->newer) = entry->newer;
}

void History::LinkNewest(Entry* entry) {
  const uint32_t slot = SlotOf(entry);
  entry->stamp = ++stamp_;
  entry->newer = kNone;
  entry->older = newest_;
  (newest_ == kNone ? oldest_ : At(newest_)->newer) = slot;
  newest_ = slot;
}

void History::Forget(Entry* entry) {
  Preserve(entry);
  const uint32_t slot = SlotOf(entry);
  uint32_t* link = Bucket(entry->key);
  while (*link != slot + 1) link = &At(*link - 1)->next_in_bucket;
  *link = entry->next_in_bucket;
  Unlink(entry);
  const bool file = entry->kind == Kind::kFile;
  --(file ? files_ : datasets_);
  ++(file ? forgotten_files_ : forgotten_datasets_);
  entry->kind = Kind::kFree;
  free_ = slot;
}

bool History::Remember(uint64_t file, int64_t t_us, uint32_t model_id, const double* outputs, size_t n) {
  Entry* entry = n <= max_buckets() ? Find(file, Kind::kFile) : nullptr;
  if (!entry || entry->last_us != t_us) return false;
  for (size_t i = 0; i < n; ++i) {
    const auto share = static_cast<uint16_t>(std::lround(std::clamp(outputs[i], 0.0, 1.0) * kWhole));
    std::memcpy(Outputs(entry) + i * sizeof share, &share, sizeof share);
  }
  entry->file.model_id = model_id;
  entry->file.buckets = static_cast<uint16_t>(n);
  return true;
}

bool History::Recall(uint64_t file, Forecast* out) {
  Entry* entry = Find(file, Kind::kFile);
  if (!entry) return false;
  out->last_us = entry->last_us;
  out->opens = entry->opens;
  out->model_id = entry->file.model_id;
  out->buckets = 0;
  double sum = 0;
  for (size_t i = 0; i < entry->file.buckets; ++i) {
    uint16_t share;
    std::memcpy(&share, Outputs(entry) + i * sizeof share, sizeof share);
    out->outputs[i] = share;
    sum += share;
  }
  if (sum == 0) return true;
  out->buckets = entry->file.buckets;
  for (size_t i = 0; i < out->buckets; ++i) out->outputs[i] = static_cast<float>(out->outputs[i] / sum);
  return true;
}

void History::BeginSnapshot() {
  snapshot_.aside.clear();
  snapshot_.aside.reserve(kAsideEntries * stride_);  // here, and not while somebody waits for an open
  snapshot_.active = true;
  snapshot_.lost = false;
  snapshot_.stamp = stamp_;
  snapshot_.cursor = 0;
  snapshot_.end = filled_.load(std::memory_order_relaxed);
}

void History::Preserve(const Entry* entry) {
  if (!snapshot_.active || entry->stamp > snapshot_.stamp || SlotOf(entry) < snapshot_.cursor) return;
  if (snapshot_.aside.capacity() - snapshot_.aside.size() < stride_) {
    snapshot_.lost = true;
    return;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(entry);
  snapshot_.aside.insert(snapshot_.aside.end(), bytes, bytes + stride_);
}

History::Step History::CopySome(uint32_t slots, std::vector<std::byte>* out) {
  if (snapshot_.lost) return Step::kLost;
  out->insert(out->end(), snapshot_.aside.begin(), snapshot_.aside.end());
  snapshot_.aside.clear();
  for (; slots > 0 && snapshot_.cursor < snapshot_.end; --slots, ++snapshot_.cursor) {
    const Entry* entry = At(snapshot_.cursor);
    if (entry->kind == Kind::kFree || entry->stamp > snapshot_.stamp) continue;
    const auto* bytes = reinterpret_cast<const std::byte*>(entry);
    out->insert(out->end(), bytes, bytes + stride_);
  }
  return snapshot_.cursor < snapshot_.end ? Step::kMore : Step::kDone;
}

void History::EndSnapshot() { snapshot_ = {}; }

bool History::Adopt(const Entry& entry, const double* counters) {
  if (filled_.load(std::memory_order_relaxed) == sizes_.capacity || Find(entry.key, entry.kind)) return false;
  Entry* own = Take(entry.key, entry.kind);
  own->opens = entry.opens;
  own->stamp = entry.stamp;
  own->first_us = entry.first_us;
  own->last_us = entry.last_us;
  std::memcpy(&own->file, &entry.file, sizeof(DatasetFields));  // either: the union as a whole
  std::memcpy(Reopens(own), counters, 2 * half_lives_ * sizeof(double));
  return true;
}

bool History::Relink(uint64_t stamp) {
  const uint32_t filled = filled_.load(std::memory_order_relaxed);
  std::vector<std::pair<uint64_t, uint32_t>> order;
  order.reserve(filled);
  for (uint32_t slot = 0; slot < filled; ++slot) order.emplace_back(uint64_t{At(slot)->stamp}, slot);
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) {
    const auto [its, slot] = order[i];
    if (its == 0 || its > stamp || (i > 0 && its == order[i - 1].first)) return false;
    At(slot)->older = i > 0 ? order[i - 1].second : kNone;
    At(slot)->newer = i + 1 < order.size() ? order[i + 1].second : kNone;
  }
  oldest_ = order.empty() ? kNone : order.front().second;
  newest_ = order.empty() ? kNone : order.back().second;
  stamp_ = stamp;
  return true;
}

void History::Clear() {
  index_.Zero();
  filled_.store(0, std::memory_order_relaxed);
  free_ = newest_ = oldest_ = kNone;
  stamp_ = files_ = datasets_ = 0;
}

void History::Back() {
  index_.Back(index_.bytes());
  arena_.Back(size_t{filled_.load(std::memory_order_relaxed)} * stride_ + kAhead);
}

uint64_t History::memory_bytes() const {
  return uint64_t{sizes_.buckets} * sizeof(uint32_t) + uint64_t{filled_.load(std::memory_order_relaxed)} * stride_;
}

}  // namespace smartcache

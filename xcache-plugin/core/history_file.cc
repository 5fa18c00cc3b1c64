#include "smartcache/history_file.hh"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "smartcache/crc32c.hh"
#include "smartcache/features.hh"
#include "smartcache/hash.hh"

namespace smartcache {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian, and written as it is in memory");

constexpr char kMagic[8] = {'S', 'M', 'C', 'H', 'I', 'S', 'T', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kBlockEntries = 4096;
constexpr uint32_t kStepSlots = 512;            // 75 kB: some 10 microseconds under the mutex
constexpr double kLargest = 1e18;               // of a count or a sum
constexpr uint32_t kScanned = 1, kScanDue = 2;  // flags

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t half_lives;
  uint64_t meaning;
  int64_t boot_us;
  uint64_t seq;
  int64_t t_us;
  uint64_t stamp;
  uint64_t entries;
  uint32_t entry_bytes;
  uint32_t flags;
  uint32_t reserved;
  uint32_t crc;  // of all before it
};
static_assert(sizeof(Header) == 80 && offsetof(Header, crc) == 76);

struct BlockHeader {
  uint32_t entries;
  uint32_t crc;
};

// An entry as it is saved; 2 * half_lives counters follow.
struct Saved {
  uint64_t key;
  uint64_t kind_and_stamp;  // kind in the low 2 bits
  int64_t first_us, last_us;
  uint32_t opens;
  uint32_t reserved;
  std::byte fields[sizeof(History::FileFields)];
};
static_assert(sizeof(Saved) == 72 && sizeof(History::FileFields) == sizeof(History::DatasetFields));

uint32_t Crc(const void* data, size_t size) { return Crc32c({static_cast<const char*>(data), size}); }

// What the entries depend on: the names of datasets and the meaning of counters. Not [features] token_buckets: tokens are not remembered.
uint64_t Meaning(const Config& config) {
  std::string text = "levels " + std::to_string(config.dataset.levels) + "\n";
  for (const DatasetRule& rule : config.dataset.rules) text += "rule " + std::to_string(rule.levels) + " " + rule.prefix + "\n";
  uint64_t hash = Fnv(text);
  for (const double h : config.features.half_lives_s) hash = Fnv({reinterpret_cast<const char*>(&h), sizeof h}, hash);
  return Mix(hash);
}

size_t SavedBytes(const History& history) { return sizeof(Saved) + 2 * history.half_lives() * sizeof(double); }

// Appends a slot as it was copied.
void Encode(const std::byte* slot, size_t half_lives, std::string* out) {
  History::Entry entry;
  std::memcpy(&entry, slot, sizeof entry);
  Saved saved{};
  saved.key = entry.key;
  saved.kind_and_stamp = (uint64_t{entry.stamp} << 2) | static_cast<uint64_t>(entry.kind);
  saved.first_us = entry.first_us;
  saved.last_us = entry.last_us;
  saved.opens = entry.opens;
  std::memcpy(saved.fields, slot + offsetof(History::Entry, file), sizeof saved.fields);
  out->append(reinterpret_cast<const char*>(&saved), sizeof saved);
  out->append(reinterpret_cast<const char*>(slot + sizeof entry), 2 * half_lives * sizeof(double));
}

bool IsTime(int64_t us) { return us >= 0 && us <= kLastMicrosecond; }
bool IsCount(double value) { return value >= 0 && value <= kLargest; }  // NaN is not

// Null where it is an entry of ours, else the field that is not.
const char* Decode(const std::byte* bytes, const History& history, History::Entry* entry, double* counters) {
  const size_t half_lives = history.half_lives();
  Saved saved;
  std::memcpy(&saved, bytes, sizeof saved);
  std::memcpy(counters, bytes + sizeof saved, 2 * half_lives * sizeof(double));
  *entry = {};
  entry->key = saved.key;
  entry->kind = static_cast<History::Kind>(saved.kind_and_stamp & 3);
  entry->stamp = saved.kind_and_stamp >> 2;
  entry->first_us = saved.first_us;
  entry->last_us = saved.last_us;
  entry->opens = saved.opens;
  std::memcpy(&entry->file, saved.fields, sizeof saved.fields);
  const double* checked = counters;
  if (entry->kind == History::Kind::kFile) {
    if (entry->file.previous_gap_us < -1 || entry->file.previous_gap_us > kLastMicrosecond) return "gap";
    const float share = entry->file.read_share;
    if (!(share == -1.0f || (share >= 0 && share <= kMaxReadShare))) return "read share";
    if (entry->file.buckets > history.max_buckets()) return "length of a prediction";
    checked += half_lives;  // a file has outputs there
  } else if (entry->kind == History::Kind::kDataset) {
    if (!IsCount(entry->dataset.reopen_log_gaps) || !IsCount(entry->dataset.read_shares)) return "sum";
  } else {
    return "kind";
  }
  if (!IsTime(entry->first_us) || !IsTime(entry->last_us)) return "time";
  for (; checked < counters + 2 * half_lives; ++checked)
    if (!IsCount(*checked)) return "counter";
  return nullptr;
}

class Writer {
 public:
  explicit Writer(const HistorySink& sink) : sink_(sink) {}
  bool Add(const std::vector<std::byte>& slots, size_t slot_bytes, size_t half_lives) {
    for (size_t at = 0; at < slots.size(); at += slot_bytes) {
      Encode(slots.data() + at, half_lives, &block_);
      if (++count_ == kBlockEntries && !Flush()) return false;
    }
    return true;
  }
  bool End() {
    if (count_ > 0 && !Flush()) return false;
    return Flush();
  }

 private:
  bool Flush() {
    const BlockHeader header{count_, Crc(block_.data(), block_.size())};
    if (!sink_(&header, sizeof header) || !sink_(block_.data(), block_.size())) return false;
    block_.clear();
    count_ = 0;
    return true;
  }
  const HistorySink& sink_;
  std::string block_;
  uint32_t count_ = 0;
};

// Reads header and blocks; `each` gets every entry, and gives null or what is wrong with it.
class Reader {
 public:
  Reader(HistorySource* source, const Config& config, const History& history)
      : source_(source), config_(config), history_(history), counters_(2 * history.half_lives()) {}

  // Empty, else what is wrong.
  std::string ReadHeader(Header* header) {
    const size_t got = source_->Read(header, sizeof *header);
    if (got < sizeof kMagic || std::memcmp(header->magic, kMagic, sizeof kMagic) != 0) return "is not a saved history";
    if (got < sizeof *header) return "is truncated in its header";
    if (header->version != kVersion)
      return "has version " + std::to_string(header->version) + ", where this plugin writes and reads " + std::to_string(kVersion);
    if (header->crc != Crc(header, offsetof(Header, crc))) return "is damaged in its header";
    if (header->half_lives != history_.half_lives() || header->meaning != Meaning(config_))
      return "was saved under another [dataset] or another [features] half_lives_s";
    if (header->entry_bytes != SavedBytes(history_) || !IsTime(header->t_us) || header->boot_us < 0 || header->stamp >> 61 != 0)
      return "is damaged in its header";
    return "";
  }

  template <typename Each>
  std::string ReadEntries(const Header& header, Each each) {
    std::vector<std::byte> block;
    uint64_t seen = 0;
    for (;;) {
      BlockHeader head;
      if (source_->Read(&head, sizeof head) < sizeof head) return "is truncated after " + std::to_string(seen) + " entries";
      if (head.entries > kBlockEntries) return Damaged(seen);
      block.resize(size_t{head.entries} * header.entry_bytes);
      if (source_->Read(block.data(), block.size()) < block.size()) return "is truncated after " + std::to_string(seen) + " entries";
      if (head.crc != Crc(block.data(), block.size())) return Damaged(seen);
      if (head.entries == 0) break;
      for (size_t at = 0; at < block.size(); at += header.entry_bytes) {
        History::Entry entry;
        const char* wrong = Decode(block.data() + at, history_, &entry, counters_.data());
        if (!wrong) wrong = each(entry, counters_.data());
        if (wrong) return "has an entry whose " + std::string(wrong) + " cannot be";
      }
      seen += head.entries;
    }
    std::byte more;
    if (seen != header.entries || source_->Read(&more, 1) != 0) return Damaged(seen);
    return "";
  }

 private:
  static std::string Damaged(uint64_t seen) { return "is damaged after " + std::to_string(seen) + " entries"; }

  HistorySource* const source_;
  const Config& config_;
  const History& history_;
  std::vector<double> counters_;
};

// The least stamp that is kept where not all entries fit.
std::string LeastStamp(HistorySource* source, const Config& config, const History& history, uint64_t* least) {
  Reader reader(source, config, history);
  Header header;
  std::vector<uint64_t> stamps;
  std::string wrong = reader.ReadHeader(&header);
  if (wrong.empty())
    wrong = reader.ReadEntries(header, [&](const History::Entry& entry, const double*) -> const char* {
      stamps.push_back(entry.stamp);
      return nullptr;
    });
  if (!wrong.empty()) return wrong;
  const auto nth = stamps.end() - history.capacity();  // there are more
  std::nth_element(stamps.begin(), nth, stamps.end());
  *least = *nth;
  return "";
}

std::string Restore(HistorySource* source, const Config& config, History* history, HistoryState* state) {
  Reader reader(source, config, *history);
  Header header;
  std::string wrong = reader.ReadHeader(&header);
  if (!wrong.empty()) return wrong;
  uint64_t least = 0;
  if (header.entries > history->capacity()) {
    if (!source->Rewind()) return "cannot be read twice";
    wrong = LeastStamp(source, config, *history, &least);
    if (wrong.empty() && (!source->Rewind() || !reader.ReadHeader(&header).empty())) wrong = "cannot be read twice";
  }
  if (wrong.empty())
    wrong = reader.ReadEntries(header, [&](const History::Entry& entry, const double* counters) -> const char* {
      return entry.stamp < least || history->Adopt(entry, counters) ? nullptr : "key";
    });
  if (wrong.empty() && !history->Relink(header.stamp)) wrong = "has entries in no order";
  *state = {header.boot_us, header.seq, header.t_us, (header.flags & kScanned) != 0, (header.flags & kScanDue) != 0};
  return wrong;
}

struct SnapshotEnd {
  History* history;
  std::mutex* mutex;
  ~SnapshotEnd() {
    const std::lock_guard<std::mutex> lock(*mutex);
    history->EndSnapshot();
  }
};

class Memory : public HistorySource {
 public:
  explicit Memory(std::string_view bytes) : bytes_(bytes) {}
  size_t Read(void* data, size_t size) override {
    const size_t got = std::min(size, bytes_.size() - at_);
    if (got > 0) std::memcpy(data, bytes_.data() + at_, got);
    at_ += got;
    return got;
  }
  bool Rewind() override {
    at_ = 0;
    return true;
  }

 private:
  const std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace

bool WriteHistory(const Config& config, History* history, std::mutex* mutex, const std::function<HistoryState()>& state,
                  const HistorySink& sink, std::string* why) {
  const size_t slot_bytes = history->entry_bytes();
  std::vector<std::byte> copied;
  Header header{};
  {
    const std::lock_guard<std::mutex> lock(*mutex);
    const HistoryState now = state();
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.version = kVersion;
    header.half_lives = static_cast<uint32_t>(history->half_lives());
    header.meaning = Meaning(config);
    header.boot_us = now.boot_us;
    header.seq = now.seq;
    header.t_us = now.t_us;
    header.stamp = history->stamp();
    header.entries = history->files() + history->datasets();
    header.entry_bytes = static_cast<uint32_t>(SavedBytes(*history));
    header.flags = (now.scanned ? kScanned : 0) | (now.scan_due ? kScanDue : 0);
    header.crc = Crc(&header, offsetof(Header, crc));
    history->BeginSnapshot();
  }
  const SnapshotEnd end{history, mutex};
  Writer writer(sink);
  History::Step step = History::Step::kMore;
  bool written = sink(&header, sizeof header);
  while (written && step == History::Step::kMore) {
    copied.clear();
    copied.reserve(kStepSlots * slot_bytes);
    {
      const std::lock_guard<std::mutex> lock(*mutex);
      step = history->CopySome(kStepSlots, &copied);
    }
    written = writer.Add(copied, slot_bytes, history->half_lives());
  }
  if (step == History::Step::kLost) {
    *why = "opens came faster than it could be written";
    return false;
  }
  if (!written || !writer.End()) {
    *why = "cannot be written";
    return false;
  }
  return true;
}

bool RestoreHistory(HistorySource* source, const Config& config, History* history, HistoryState* state, std::string* why) {
  *why = Restore(source, config, history, state);
  if (why->empty()) return true;
  history->Clear();
  *state = {};
  return false;
}

bool RestoreHistory(std::string_view bytes, const Config& config, History* history, HistoryState* state, std::string* why) {
  Memory memory(bytes);
  return RestoreHistory(&memory, config, history, state, why);
}

}  // namespace smartcache

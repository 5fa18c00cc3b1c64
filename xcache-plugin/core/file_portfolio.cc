#include "smartcache/file_portfolio.hh"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>
#include <thread>
#include <unordered_map>

#include "forecast_cache.hh"
#include "policies/portfolio.hh"
#include "policies/shadows.hh"
#include "smartcache/crc32c.hh"
#include "smartcache/features.hh"
#include "smartcache/hash.hh"

namespace smartcache {
namespace {

// What a known file takes at most: tables of shadows, portfolio and model, heap entries, index, with malloc's own. While a new cache is
// made, what is kept of the old one comes on top of its own: some 150 bytes a file.
constexpr int64_t kBytesPerFile = 800;
constexpr size_t kFewest = 4096;        // files that there is room for at first
constexpr size_t kMostWaiting = 65536;  // opens
constexpr size_t kAtOnce = 256;         // opens that are told under one lock
constexpr double kRoomChanged = 0.05;
constexpr size_t kLossesEvery = 32;  // files, while a new cache is told of them
constexpr int64_t kShareOfUnknown = 64;
constexpr double kSmallestPart = 1.0 / 64;
constexpr int64_t kLargestFile = INT64_C(1) << 44;
constexpr size_t kFilesMore = 16;  // times as many may be in a file that is read: [portfolio] memory_bytes may have been larger
constexpr uint64_t kMagic = 0x3166747270637373;  // "sscprtf1"

struct Head {
  uint64_t magic, losses, files;
  int64_t lru_missed_bytes, missed_bytes;
  double own_loss;
  uint64_t guarded;
};
static_assert(sizeof(Head) == 56);

struct MixHash {
  size_t operator()(uint64_t file) const { return Mix(file); }
};

// Waits for the lock, but not for long: whoever holds it for longer is at work in the background.
std::unique_lock<std::mutex> LockSoon(std::mutex* mutex, FilePortfolio::Duration patience) {
  std::unique_lock<std::mutex> lock(*mutex, std::try_to_lock);
  if (lock || patience <= patience.zero()) return lock;
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!lock && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
    lock.try_lock();
  }
  return lock;
}

}  // namespace

struct FilePortfolio::Cache {
  struct Known {
    uint64_t file;
    uint64_t at, before;  // the numbers of its last open, and of the one before that: 0 for none
    int64_t bytes, t_us;
    float base_rate;
    uint32_t unused;  // no padding that would be written to a file as it happens to be
  };
  static_assert(sizeof(Known) == 48, "as it is in a file");

  Cache(int64_t capacity, bool per_open, bool model, size_t reserved) : capacity(capacity), reserved(reserved), shadows(capacity) {
    if (model) {
      auto joining = std::make_unique<ForecastCache>(capacity, per_open);
      forecasts = joining.get();
      shadows.Join(std::move(joining));
    }
    cache = Follow(capacity, &shadows, false);
    cache->Reserve(reserved);
    index.reserve(reserved);
    known.reserve(reserved);
  }

  // False where there is no room for one more file.
  bool Request(const FilePortfolio::Open& open, int64_t bytes, const Forecast* forecast) {
    auto found = index.find(open.file);
    if (found == index.end()) {
      if (known.size() == reserved) return false;
      found = index.emplace(open.file, static_cast<uint32_t>(known.size())).first;
      known.push_back({open.file, 0, 0, 0, 0, 0, 0});
    }
    Known& each = known[found->second];
    each.before = each.at;
    each.at = ++opens;
    each.bytes = bytes;
    each.t_us = open.t_us;
    each.base_rate = static_cast<float>(open.base_rate);
    if (forecasts) forecasts->Tell(open.t_us, open.base_rate, forecast);
    cache->Request(found->second, bytes);
    return true;
  }
  const Known* Find(uint64_t file) const {
    const auto found = index.find(file);
    return found == index.end() ? nullptr : &known[found->second];
  }
  uint32_t ObjectOf(const Known* each) const { return static_cast<uint32_t>(each - known.data()); }
  bool Holds(const Known* each) const { return each && cache->Holds(ObjectOf(each)); }

  const int64_t capacity;
  const size_t reserved;  // files that there is room for
  Shadows shadows;
  ForecastCache* forecasts = nullptr;
  std::unique_ptr<Portfolio> cache;
  std::unordered_map<uint64_t, uint32_t, MixHash> index;
  std::vector<Known> known;
  uint64_t opens = 0;
};

struct FilePortfolio::Past {
  std::vector<Cache::Known> files;  // in the order of their last opens, once they are sorted
  std::vector<double> losses;       // of the shadows; none: not known
  int64_t lru_missed_bytes = 0;
  Portfolio::Losses own;
  // What the model has said of them, by file, and over which edges: not kept over a restart.
  std::unordered_map<uint64_t, ForecastCache::Said, MixHash> said;
  ForecastCache::Edges edges;

  void TakeForecasts(const Cache& cache) {
    if (!cache.forecasts) return;
    edges = cache.forecasts->edges();
    said.reserve(cache.known.size());
    for (const Cache::Known& each : cache.known)
      if (const ForecastCache::Said& of_it = cache.forecasts->said(cache.ObjectOf(&each)); of_it.buckets != 0)
        said.emplace(each.file, of_it);
  }
  std::optional<Forecast> ForecastOf(const Cache& cache, uint64_t file, double* outputs) const {
    const auto found = said.find(file);
    return found == said.end() ? std::nullopt : cache.forecasts->Again(found->second, outputs);
  }
  void Take(const Cache& cache) {
    files = cache.known;
    for (size_t e = 0; e < cache.shadows.count(); ++e) losses.push_back(cache.shadows.loss(e));
    lru_missed_bytes = cache.shadows.lru_missed_bytes();
    own = cache.cache->losses();
  }
  void Restore(Cache* cache) const {
    cache->shadows.Restore(losses, lru_missed_bytes);
    cache->cache->Restore(own);
  }
  void Sort() {
    std::sort(files.begin(), files.end(), [](const Cache::Known& a, const Cache::Known& b) { return a.at < b.at; });
  }
};

FilePortfolio::FilePortfolio(const PortfolioConfig& config, int64_t unknown_size_bytes, bool per_open, bool model)
    : per_open_(per_open),
      model_(model),
      most_files_(std::max<size_t>(kFewest, static_cast<size_t>(config.memory_bytes / kBytesPerFile))),
      sizes_(unknown_size_bytes) {}

FilePortfolio::~FilePortfolio() = default;

bool FilePortfolio::Fits() const {
  const int64_t room = room_.load(std::memory_order_relaxed);
  return std::abs(static_cast<double>(room - cache_->capacity)) <= kRoomChanged * static_cast<double>(room) &&
         cache_->known.size() < cache_->reserved - cache_->reserved / 8;
}

bool FilePortfolio::Tell(const Open& open, const Forecast* forecast) {
  if (open.size >= 0) sizes_.Learn(open.dataset, open.size);
  const Cache::Known* known = cache_->Find(open.file);
  int64_t bytes = known ? known->bytes : 0;
  // As long as no size is known, none may be taken for too large: nothing would ever be stored, and so none be known.
  if (open.size >= 0 || !known) {
    const int64_t expected =
        sizes_.known() ? sizes_.Expected(open.dataset) : std::min(sizes_.Expected(0), cache_->capacity / kShareOfUnknown);
    const int64_t size = std::min(open.size >= 0 ? open.size : expected, kLargestFile);
    bytes = static_cast<int64_t>(static_cast<double>(size) * std::clamp(open.part, kSmallestPart, 1.0));
  }
  try {
    return cache_->Request(open, bytes, forecast);
  } catch (const std::bad_alloc&) {
    cache_.reset();  // half of a request: its lists and tables may not fit together
    return false;
  }
}

FilePortfolio::Duration FilePortfolio::PatienceAfter(Duration spent, Duration deadline) {
  return spent > deadline / 2 ? Duration::zero() : std::min<Duration>(kPatience, deadline / 2);
}

FilePortfolio::Says FilePortfolio::Opened(const Open& open, const Forecast* forecast, Duration patience) {
  const auto lock = LockSoon(&mutex_, patience);
  if (!lock || !cache_ || !Tell(open, forecast)) {
    Wait(open);
    return {};
  }
  return {true, cache_->Holds(cache_->Find(open.file)), cache_->cache->guarded()};
}

void FilePortfolio::Wait(const Open& open) {
  const std::lock_guard<std::mutex> lock(waiting_mutex_);
  ++unsaid_;
  if (waiting_.size() < kMostWaiting)
    waiting_.push_back(open);
  else
    ++lost_;
}

std::optional<double> FilePortfolio::Worth(uint64_t file) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!cache_) return std::nullopt;
  if (cache_->cache->guarded()) return 0.0;
  const Cache::Known* known = cache_->Find(file);
  return cache_->Holds(known) ? cache_->cache->vote(cache_->ObjectOf(known)) : -1.0;
}

bool FilePortfolio::Tidy() {
  if (room_.load(std::memory_order_relaxed) == 0) return false;
  bool made = false;
  for (bool first = true;; first = false) {
    auto past = std::make_unique<Past>();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (cache_ && Fits()) {
        if (first) cache_->cache->Tidy();
        if (TellSome()) return made;
        continue;
      }
      if (cache_) {
        past->Take(*cache_);
        past->TakeForecasts(*cache_);
      } else if (read_) {
        past = std::move(read_);
      }
      cache_.reset();  // its memory is needed for the new one
    }
    Begin(past.get());
    made = true;
  }
}

// Some of what has waited; true once nothing waits. A few at a time: opens wait for the lock.
bool FilePortfolio::TellSome() {
  std::vector<Open> some;
  bool all = false;
  {
    const std::lock_guard<std::mutex> lock(waiting_mutex_);
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(kAtOnce, waiting_.size()));
    some.assign(waiting_.begin(), end);
    waiting_.erase(waiting_.begin(), end);
    all = waiting_.empty();
  }
  uint64_t lost = 0;
  for (const Open& open : some) lost += cache_ && Tell(open, nullptr) ? 0 : 1;
  const std::lock_guard<std::mutex> lock(waiting_mutex_);
  lost_ += lost;
  return all;
}

// A new cache, told of the past: of each file its last open and the one before, all in their order. So who goes by recency, or by the time
// between two opens, holds what it held, and so does the model, whose forecasts are kept; counts begin anew. What the telling costs is not
// counted: the losses are those of before, or none.
void FilePortfolio::Begin(Past* past) {
  past->Sort();
  const size_t kept = most_files_ - most_files_ / 4;
  const size_t skipped = past->files.size() > kept ? past->files.size() - kept : 0;
  const size_t reserved = std::clamp((past->files.size() - skipped) * 2, kFewest, most_files_);
  auto cache = std::make_unique<Cache>(room_.load(std::memory_order_relaxed), per_open_, model_, reserved);
  if (past->losses.size() != cache->shadows.count())
    *past = Past{std::move(past->files), std::vector<double>(cache->shadows.count()), 0, {}, {}, {}};
  if (cache->forecasts) cache->forecasts->Use(past->edges);
  std::vector<std::pair<uint64_t, const Cache::Known*>> opens;
  for (size_t i = skipped; i < past->files.size(); ++i) {
    const Cache::Known& each = past->files[i];
    if (each.before != 0) opens.emplace_back(each.before, &each);
    opens.emplace_back(each.at, &each);
  }
  std::sort(opens.begin(), opens.end());
  for (size_t i = 0; i < opens.size(); ++i) {
    if (i % kLossesEvery == 0) past->Restore(cache.get());
    const Cache::Known& each = *opens[i].second;
    double outputs[ForecastCache::kOutputs];
    const std::optional<Forecast> forecast = past->ForecastOf(*cache, each.file, outputs);
    cache->Request({each.file, 0, each.t_us, each.bytes, 1.0, static_cast<double>(each.base_rate)}, each.bytes,
                   forecast ? &*forecast : nullptr);
  }
  past->Restore(cache.get());
  {
    const std::lock_guard<std::mutex> lock(waiting_mutex_);
    forgotten_ += skipped;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  cache_ = std::move(cache);
}

FilePortfolio::State FilePortfolio::state() {
  State state;
  {
    const std::lock_guard<std::mutex> lock(waiting_mutex_);
    state.forgotten = forgotten_;
    state.unsaid = unsaid_;
    state.lost = lost_;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  state.ready = cache_ != nullptr;
  if (!cache_) return state;
  state.guarded = cache_->cache->guarded();
  state.files = cache_->known.size();
  state.capacity_bytes = static_cast<uint64_t>(cache_->capacity);
  for (size_t e = 0; e < cache_->shadows.count(); ++e) state.weights.emplace_back(Shadows::Name(e), cache_->shadows.weight(e));
  return state;
}

// --- Over a restart: a head, the losses, the files, CRC-32C of all before it. Little-endian, as every machine of a site is.

std::string FilePortfolio::Write() {
  Past past;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!cache_) return {};
    past.Take(*cache_);
  }
  past.Sort();
  std::string bytes;
  const auto put = [&bytes](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); };
  const Head head{kMagic,
                  past.losses.size(),
                  past.files.size(),
                  past.lru_missed_bytes,
                  past.own.missed_bytes,
                  past.own.own,
                  past.own.guarded ? uint64_t{1} : uint64_t{0}};
  bytes.reserve(sizeof head + past.losses.size() * sizeof(double) + past.files.size() * sizeof(Cache::Known) + sizeof(uint32_t));
  put(&head, sizeof head);
  put(past.losses.data(), past.losses.size() * sizeof(double));
  put(past.files.data(), past.files.size() * sizeof(Cache::Known));
  const uint32_t checksum = Crc32c(bytes);
  put(&checksum, sizeof checksum);
  return bytes;
}

bool FilePortfolio::Read(std::string_view bytes, std::string* why) {
  const auto refuse = [why](const char* what) {
    *why = what;
    return false;
  };
  Head head;
  uint32_t checksum;
  if (bytes.size() < sizeof head + sizeof checksum) return refuse("is too short");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kMagic) return refuse("is none, or of another version");
  if (head.losses > Votes::kMost || head.files > most_files_ * kFilesMore ||
      bytes.size() != sizeof head + head.losses * sizeof(double) + head.files * sizeof(Cache::Known) + sizeof checksum)
    return refuse("has another length than it says, or more files than [portfolio] memory_bytes has room for");
  std::memcpy(&checksum, bytes.data() + bytes.size() - sizeof checksum, sizeof checksum);
  if (checksum != Crc32c(bytes.substr(0, bytes.size() - sizeof checksum))) return refuse("is damaged: its checksum is another");
  auto past = std::make_unique<Past>();
  past->losses.resize(head.losses);
  past->files.resize(head.files);
  std::memcpy(past->losses.data(), bytes.data() + sizeof head, head.losses * sizeof(double));
  std::memcpy(past->files.data(), bytes.data() + sizeof head + head.losses * sizeof(double), head.files * sizeof(Cache::Known));
  past->lru_missed_bytes = head.lru_missed_bytes;
  past->own = {head.own_loss, head.missed_bytes, head.guarded != 0};
  const auto is_loss = [](double loss) { return loss >= 0 && loss < 1e300; };
  const auto is_file = [](const Cache::Known& each) {
    return each.bytes >= 0 && each.bytes <= kLargestFile && each.t_us >= 0 && each.t_us <= kLastMicrosecond && each.before < each.at;
  };
  if (!std::all_of(past->losses.begin(), past->losses.end(), is_loss) || !is_loss(past->own.own) || past->lru_missed_bytes < 0 ||
      past->own.missed_bytes < 0 || !std::all_of(past->files.begin(), past->files.end(), is_file))
    return refuse("has a number out of its range");
  const std::lock_guard<std::mutex> lock(mutex_);
  read_ = std::move(past);
  return true;
}

}  // namespace smartcache

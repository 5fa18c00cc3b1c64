#include "smartcache/scan.hh"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "smartcache/decider.hh"
#include "smartcache/disk.hh"
#include "smartcache/exact_math.hh"
#include "smartcache/low_priority.hh"
#include "smartcache/utf8.hh"

namespace smartcache {
namespace {

constexpr int64_t kPointsPerRecord = 8;
constexpr size_t kMostRecords = 256;
constexpr int64_t kSecond = 1000000;

}  // namespace

PastOpens FromRecords(const Cinfo& cinfo, int64_t now_us) {
  PastOpens past;
  const auto& records = cinfo.records;
  const int64_t now_s = now_us / kSecond;
  int64_t last_us = -1;  // the last open so far
  for (size_t i = records.size() - std::min(records.size(), kMostRecords); i < records.size(); ++i) {
    const Cinfo::Access& record = records[i];
    const int64_t n = std::max<int64_t>(1, record.times);
    const int64_t attach_us = std::max(std::clamp<int64_t>(record.attach_s, 0, now_s) * kSecond, last_us);
    const int64_t detach_us = std::clamp<int64_t>(record.detach_s, attach_us / kSecond, std::max(now_s, attach_us / kSecond)) * kSecond;
    const int64_t span_us = std::max<int64_t>(0, detach_us - attach_us), step_us = span_us / n;
    if (last_us >= 0) {
      past.previous_gap_us = attach_us - last_us;
      past.log_gaps += Log1p(static_cast<double>(past.previous_gap_us) * 1e-6);
    }
    if (n > 1) {
      past.previous_gap_us = step_us;
      past.log_gaps += static_cast<double>(n - 1) * Log1p(static_cast<double>(step_us) * 1e-6);
    }
    const int64_t points = std::min(n, kPointsPerRecord);
    for (int64_t k = 0; k < points; ++k) {
      // The last point is the last open itself, whose time is what counts most.
      const int64_t nth = points == 1 ? 0 : k + 1 == points ? n - 1 : k * n / points;
      past.opens.push_back({attach_us + step_us * nth, static_cast<double>(n) / static_cast<double>(points)});
    }
    last_us = attach_us + step_us * (n - 1);
    past.count += static_cast<uint64_t>(n);
  }
  if (!records.empty()) past.read_share = ReadShare(records.back(), cinfo.file_bytes);
  return past;
}

ScanResult SeedFromDisk(Disk* disk, Decider* decider, int64_t now_us, const std::atomic<bool>& stop) {
  ScanResult result;
  std::string lfn, bytes, why;
  Cinfo cinfo{};
  result.finished = disk->Walk([&](const DiskFile& file) {
    decider->counters()->Scanned(++result.files);
    lfn = file.lfn;
    if (!disk->ReadCinfo(lfn, &bytes)) {
      ++result.unread;
      why = "it is gone, or cannot be read";
    } else if (!ParseCinfo(bytes, &cinfo, &why)) {
      ++result.unread;
    } else {
      ++(decider->Seed(lfn, FromRecords(cinfo, now_us)) ? result.seeded : result.known);
      return !stop.load(std::memory_order_relaxed);
    }
    if (result.why.empty()) {
      AppendQuoted(lfn + ".cinfo", &result.why);
      result.why += ": " + why;
    }
    return !stop.load(std::memory_order_relaxed);
  });
  return result;
}

Scanner::Scanner(Disk* disk, Decider* decider, std::function<bool()> known, std::function<int64_t()> clock, Log log, double again_s)
    : disk_(disk),
      decider_(decider),
      known_(std::move(known)),
      clock_(std::move(clock)),
      log_(std::move(log)),
      again_s_(again_s),
      thread_(std::make_unique<Periodic>(again_s, [this] { Scan(); })) {}

Scanner::~Scanner() {
  stop_ = true;
  thread_.reset();
}

void Scanner::Scan() noexcept {
  try {
    if (!known_() || done_) return;
    LowerPriority();
    log_("history: the files on disk are scanned in the background");
    const auto began = std::chrono::steady_clock::now();
    const ScanResult result = SeedFromDisk(disk_, decider_, clock_(), stop_);
    done_ = result.finished;
    if (done_) decider_->Scanned();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    log_("history: " + std::to_string(result.seeded) + " of " + std::to_string(result.files) + " files on disk learnt in " +
         std::to_string(took.count()) + " s, " + std::to_string(result.unread) + " without a .cinfo that can be read" +
         (result.why.empty() ? "" : " (" + result.why + ")") +
         (done_ ? "" : "; the disk could not be listed, and is scanned again in " + std::to_string(std::lround(again_s_)) + " s"));
  } catch (...) {
    // No memory: what was learnt so far is used, and the rest is tried again.
  }
}

}  // namespace smartcache

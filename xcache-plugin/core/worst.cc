#include "smartcache/worst.hh"

#include <algorithm>
#include <utility>

namespace smartcache {
namespace {

bool IsWorse(const Candidate& a, const Candidate& b) { return a.value != b.value ? a.value < b.value : a.last_us < b.last_us; }

}  // namespace

void Worst::Show(std::string_view lfn, int64_t bytes, double value, int64_t last_us) {
  Candidate candidate{value, last_us, bytes, {}};
  const bool full = bytes_ >= needed_ || heap_.size() >= most_files_;
  if (full && (heap_.empty() || !IsWorse(candidate, heap_.front()))) return;
  candidate.lfn = lfn;
  heap_.push_back(std::move(candidate));
  std::push_heap(heap_.begin(), heap_.end(), IsWorse);
  bytes_ += bytes;
  while (heap_.size() > most_files_ || bytes_ - heap_.front().bytes >= needed_) {
    bytes_ -= heap_.front().bytes;
    std::pop_heap(heap_.begin(), heap_.end(), IsWorse);
    heap_.pop_back();
    if (heap_.empty()) break;
  }
}

std::vector<Candidate> Worst::Take() {
  std::sort_heap(heap_.begin(), heap_.end(), IsWorse);
  bytes_ = 0;
  return std::exchange(heap_, {});
}

}  // namespace smartcache

#include "reuse_samples.hh"

#include <algorithm>
#include <random>

#include "slots.hh"

namespace smartcache {

ReuseSamples::ReuseSamples(size_t capacity, size_t width, size_t objects) : capacity_(capacity), width_(width), waiting_(objects, kNone) {}

float* ReuseSamples::Add(uint32_t object, double now) {
  size_t at = head_;
  if (samples_.size() < capacity_) {
    at = samples_.size();
    samples_.emplace_back();
    rows_.resize(rows_.size() + width_);
  } else {
    head_ = (head_ + 1) % capacity_;
    // What is overwritten waits no more.
    uint32_t* link = &waiting_[samples_[at].object];
    while (*link != kNone && *link != at) link = &samples_[*link].next;
    if (*link == at) *link = samples_[at].next;
  }
  samples_[at] = {object, waiting_[object], now, now - 1};
  waiting_[object] = static_cast<uint32_t>(at);
  return rows_.data() + at * width_;
}

void ReuseSamples::Request(uint32_t object, double now) {
  for (uint32_t at = waiting_[object]; at != kNone; at = samples_[at].next) samples_[at].again = now;
  waiting_[object] = kNone;
}

LabelledRows ReuseSamples::Labelled(double now, double horizon, size_t most, uint64_t seed) const {
  std::vector<uint32_t> ripe;
  for (size_t i = 0; i < samples_.size(); ++i) {
    const size_t at = (head_ + i) % samples_.size();
    if (samples_[at].at + horizon <= now) ripe.push_back(static_cast<uint32_t>(at));
  }
  LabelledRows result{width_, {}, {}};
  std::mt19937_64 random(seed);
  size_t needed = std::min(most, ripe.size());
  result.rows.reserve(needed * width_);
  result.again.reserve(needed);
  // Selection sampling (Knuth, TAOCP 2, 3.4.2, algorithm S): each as likely, in their order.
  for (size_t i = 0; needed > 0; ++i) {
    if (random() % (ripe.size() - i) >= needed) continue;
    --needed;
    const Sample& sample = samples_[ripe[i]];
    result.rows.insert(result.rows.end(), rows_.begin() + static_cast<ptrdiff_t>(size_t{ripe[i]} * width_),
                       rows_.begin() + static_cast<ptrdiff_t>((size_t{ripe[i]} + 1) * width_));
    result.again.push_back(sample.again >= sample.at && sample.again - sample.at <= horizon ? 1 : 0);
  }
  return result;
}

}  // namespace smartcache

#include "learned.hh"

#include <algorithm>
#include <utility>

namespace smartcache {
namespace {

constexpr double kAgeDecay = 0.9995;

}  // namespace

LearnedCache::LearnedCache(int64_t capacity, std::vector<uint32_t> groups, const Shadows* rules, const LearnedOptions& options)
    : capacity_(capacity),
      rules_(*rules),
      features_(std::move(groups), options.left_out),
      samples_(options.ring, ReuseFeatures::count(), features_.objects()),
      stored_(capacity, options.candidates, options.kept, options.seed),
      row_(ReuseFeatures::count()) {
  stored_.Reserve(features_.objects());
}

void LearnedCache::Replay(const uint32_t* objects, const int64_t* sizes, size_t n) {
  for (size_t i = 0; i < n; ++i) Request(objects[i], sizes[i]);
}

bool LearnedCache::Request(uint32_t object, int64_t size) {
  now_ += static_cast<double>(size) / static_cast<double>(capacity_);
  ++counters_.requests;
  counters_.bytes += size;
  for (const uint32_t each : rules_.lru_removed()) {
    if (each == object) continue;
    age_count_ = age_count_ * kAgeDecay + 1;
    age_sum_ = age_sum_ * kAgeDecay + (now_ - features_.last(each));
  }
  if (Holds(object)) stored_.Grow(size - features_.size(object));
  features_.Request(object, size, now_);
  samples_.Request(object, now_);
  Sample(object);
  if (!stored_.empty()) Sample(stored_.Draw());

  return Serve(object, size);
}

bool LearnedCache::Serve(uint32_t object, int64_t size) {
  if (Holds(object)) {
    ++counters_.hits;
    counters_.hit_bytes += size;
    if (stored_.over()) MakeRoom(kNone, 0);  // its size has grown
    return true;
  }
  if (size > capacity_ || !MakeRoom(object, size)) return false;
  stored_.Store(object, size);
  counters_.written_bytes += size;
  return false;
}

bool LearnedCache::MakeRoom(uint32_t object, int64_t size) {
  return stored_.MakeRoom(
      object, size, [this](uint32_t each) { return Judge(each); }, [this](uint32_t each) { return Removed(each); });
}

Candidates::Judged LearnedCache::Judge(uint32_t object) {
  const double last = features_.last(object);
  if (!model_) return {rules_.rules_vote(rules_.rules_mask(object)), last, object};
  features_.Row(object, now_, Beside(object), row_.data());
  return {model_->Score(row_.data()), last, object};
}

ReuseFeatures::Beside LearnedCache::Beside(uint32_t object) const {
  const Shadows::Mask mask = rules_.rules_mask(object);
  return {mask, rules_.rules_vote(mask), static_cast<double>(stored_.used()) / static_cast<double>(capacity_)};
}

void LearnedCache::Sample(uint32_t object) { features_.Row(object, now_, Beside(object), samples_.Add(object, now_)); }

int64_t LearnedCache::Removed(uint32_t object) {
  const int64_t size = features_.size(object);
  counters_.deleted_bytes += size;
  ++counters_.objects_deleted;
  if (removed_) removed_->push_back(object);
  return size;
}

}  // namespace smartcache

#include "forecast_cache.hh"

#include <algorithm>
#include <cmath>

#include "smartcache/ageing.hh"

namespace smartcache {
namespace {

constexpr size_t kCandidates = 48, kKept = 12;
constexpr double kShare = 65535;

}  // namespace

ForecastCache::ForecastCache(int64_t capacity, bool per_open, uint64_t seed)
    : capacity_(capacity), per_open_(per_open), stored_(capacity, kCandidates, kKept, seed) {}

void ForecastCache::Reserve(size_t objects) {
  if (objects > known_.size()) known_.resize(objects);
  stored_.Reserve(objects);
}

void ForecastCache::Tell(int64_t t_us, double base_rate, const Forecast* forecast) {
  now_us_ = t_us;
  base_rate_ = base_rate;
  forecast_ = forecast;
  if (!forecast) return;
  edges_.horizon_s = forecast->horizon_s;  // may be another over the same edges
  if (forecast->id == edges_.id && forecast->edges == edges_.edges_s.size()) return;
  edges_.edges_s.assign(forecast->edges_s, forecast->edges_s + forecast->edges);
  edges_.id = forecast->id;
}

void ForecastCache::Replay(const uint32_t* objects, const int64_t* sizes, size_t n) {
  for (size_t i = 0; i < n; ++i) Request(objects[i], sizes[i]);
}

bool ForecastCache::Request(uint32_t object, int64_t size) {
  if (object >= known_.size()) known_.resize(std::max<size_t>(size_t{object} + 1, known_.size() * 2));
  ++counters_.requests;
  counters_.bytes += size;
  Known& known = known_[object];
  const bool hit = stored_.Holds(object);
  if (hit) {
    ++counters_.hits;
    counters_.hit_bytes += size;
    stored_.Grow(size - known.size);
  }
  Remember(&known, size);
  const bool refused = forecast_ && !forecast_->store;
  forecast_ = nullptr;
  if (hit) {
    if (stored_.over()) MakeRoom(kNone, 0);  // it has grown
    return true;
  }
  if (refused || size > capacity_ || !MakeRoom(object, size)) return false;
  stored_.Store(object, size);
  counters_.written_bytes += size;
  return false;
}

void ForecastCache::Remember(Known* known, int64_t size) {
  known->size = size;
  known->last_us = now_us_;
  known->base_rate = static_cast<float>(base_rate_);
  Said& said = known->said;
  said.buckets = 0;
  if (!forecast_ || forecast_->edges + 1 > kOutputs) return;
  said.forecast_id = forecast_->id;
  said.store = forecast_->store;
  said.buckets = static_cast<uint32_t>(forecast_->edges + 1);
  for (size_t i = 0; i < said.buckets; ++i)
    said.outputs[i] = static_cast<uint16_t>(std::lround(std::clamp(forecast_->outputs[i], 0.0, 1.0) * kShare));
}

std::optional<Forecast> ForecastCache::Again(const Said& said, double* outputs) const {
  if (said.buckets == 0 || said.forecast_id != edges_.id || said.buckets != edges_.edges_s.size() + 1) return std::nullopt;
  for (size_t i = 0; i < said.buckets; ++i) outputs[i] = said.outputs[i] / kShare;
  return Forecast{edges_.edges_s.data(), edges_.edges_s.size(), edges_.id, edges_.horizon_s, outputs, said.store};
}

bool ForecastCache::MakeRoom(uint32_t object, int64_t size) {
  return stored_.MakeRoom(
      object, size, [this](uint32_t each) { return Judge(each); }, [this](uint32_t each) { return Removed(each); });
}

Candidates::Judged ForecastCache::Judge(uint32_t object) const {
  const Known& known = known_[object];
  const double age_s = static_cast<double>(now_us_ - known.last_us) * 1e-6;
  double within = 0;
  if (known.said.buckets != 0 && known.said.forecast_id == edges_.id) {
    float outputs[kOutputs];
    for (size_t i = 0; i < known.said.buckets; ++i) outputs[i] = static_cast<float>(known.said.outputs[i] / kShare);
    within = OpenWithin(edges_.edges_s.data(), outputs, edges_.edges_s.size(), age_s, edges_.horizon_s);
  } else if (edges_.horizon_s > 0) {
    within = UnscoredOpenWithin(static_cast<double>(known.base_rate), age_s, edges_.horizon_s);
  }
  return {per_open_ ? within / static_cast<double>(std::max<int64_t>(known.size, 1)) : within, static_cast<double>(known.last_us), object};
}

int64_t ForecastCache::Removed(uint32_t object) {
  const int64_t size = known_[object].size;
  counters_.deleted_bytes += size;
  ++counters_.objects_deleted;
  if (removed_) removed_->push_back(object);
  return size;
}

}  // namespace smartcache

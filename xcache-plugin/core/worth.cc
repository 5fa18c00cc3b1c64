#include "smartcache/worth.hh"

#include <algorithm>

#include "smartcache/ageing.hh"

namespace smartcache {

double Worth(const Buckets& buckets, const History::Forecast* forecast, double base_rate, double age_s, int64_t bytes, bool per_open) {
  const bool predicted = forecast && forecast->buckets == buckets.edges + 1 && forecast->model_id == buckets.id;
  const double probability = predicted ? OpenWithin(buckets.edges_s, forecast->outputs, buckets.edges, age_s, buckets.horizon_s)
                                       : UnscoredOpenWithin(base_rate, age_s, buckets.horizon_s);
  return per_open ? probability / static_cast<double>(std::max<int64_t>(bytes, 1)) : probability;
}

}  // namespace smartcache

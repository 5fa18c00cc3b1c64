#include "smartcache/ageing.hh"

#include <algorithm>

namespace smartcache {
namespace {

// F(t) of the distribution.
double Before(double t, const double* edges_s, const float* outputs, size_t edges) {
  double sum = 0, low = 0;
  for (size_t i = 0; i < edges; ++i) {
    const auto share = static_cast<double>(std::max(0.0f, outputs[i]));
    if (t < edges_s[i]) return sum + share * std::max(0.0, t - low) / (edges_s[i] - low);
    sum += share;
    low = edges_s[i];
  }
  return sum;
}

}  // namespace

double OpenWithin(const double* edges_s, const float* outputs, size_t edges, double age_s, double horizon_s) {
  const double age = std::max(0.0, age_s);
  const double at = Before(age, edges_s, outputs, edges);
  const double left = 1.0 - at;
  // Outputs of 16 bits each: less than one of their steps is rounding.
  if (!(left > 1.0 / 65536)) return 0.0;
  const double within = Before(age + horizon_s, edges_s, outputs, edges) - at;
  return within > 0 ? std::min(1.0, within / left) : 0.0;
}

double UnscoredOpenWithin(double base_rate, double age_s, double horizon_s) {
  const double b = base_rate > 0 ? std::min(base_rate, 1.0) : 0.0;
  const double age = age_s > 0 ? age_s : 0.0;
  return b / (1.0 + b * age / std::max(horizon_s, 1e-6));
}

}  // namespace smartcache

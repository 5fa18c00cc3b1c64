#include "smartcache/endpoint_with_copy.hh"

namespace smartcache {

void EndpointWithCopy::Predict(const Bundle& bundle, const float* features, Clock::time_point began, Prediction* out) noexcept {
  if (AsksEndpoint(bundle)) {
    endpoint_->Predict(bundle, features, began, out);
    if (out->answered) return;
  } else {
    out->result(Source::kEndpoint) = why_not_.load(std::memory_order_relaxed);
  }
  copy_.Predict(bundle, features, began, out);
}

void EndpointWithCopy::PredictRows(const Bundle& bundle, const std::vector<const float*>& rows, Prediction* out) noexcept {
  if (!AsksEndpoint(bundle)) return Model::PredictRows(bundle, rows, out);
  endpoint_->PredictRows(bundle, rows, out);
  for (size_t i = 0; i < rows.size(); ++i)
    if (!out[i].answered) copy_.Predict(bundle, rows[i], {}, &out[i]);
}

Model::Warmth EndpointWithCopy::Warm(const Bundle& bundle, Finding* finding) {
  if (!bundle.network) return endpoint_->Warm(bundle, finding);
  const Warmth copy = copy_.Warm(bundle, finding);
  if (copy != Warmth::kReady) return copy;
  const Warmth endpoint = endpoint_->Warm(bundle, finding);
  if (endpoint == Warmth::kReady) {
    checked_.store(bundle.id, std::memory_order_release);
    return Warmth::kReady;
  }
  why_not_.store(finding->reason, std::memory_order_relaxed);
  return Warmth::kUsable;
}

}  // namespace smartcache

#include "smartcache/embedded.hh"

#include <cmath>
#include <vector>

namespace smartcache {
namespace {

constexpr double kGoldenTolerance = 1e-5;

}  // namespace

void EmbeddedModel::Predict(const Bundle& bundle, const float* features, Clock::time_point, Prediction* out) noexcept {
  out->answered = false;
  if (!bundle.network) return;
  float outputs[kMaxBuckets];
  out->answered = bundle.network->Evaluate(features, outputs);
  out->result(Source::kEmbedded) = out->answered ? Reason::kModel : Reason::kInvalidReply;
  out->buckets = bundle.buckets;
  for (size_t i = 0; i < bundle.buckets && out->answered; ++i) out->outputs[i] = static_cast<double>(outputs[i]);
}

Model::Warmth EmbeddedModel::Warm(const Bundle& bundle, Finding* finding) {
  if (!bundle.network) {
    finding->why = bundle.name + " has no weights.json, so there is no embedded copy of it";
    return Warmth::kLater;
  }
  Prediction prediction;
  if (bundle.golden_inputs.empty()) Predict(bundle, std::vector<float>(bundle.network->inputs()).data(), {}, &prediction);
  for (size_t row = 0; row < bundle.golden_inputs.size(); ++row) {
    Predict(bundle, bundle.golden_inputs[row].data(), {}, &prediction);
    for (size_t k = 0; k < bundle.buckets; ++k) {
      const double expected = static_cast<double>(bundle.golden_outputs[row][k]);
      if (prediction.answered && std::fabs(prediction.outputs[k] - expected) <= kGoldenTolerance) continue;
      const std::string given = prediction.answered ? std::to_string(prediction.outputs[k]) : "no number";
      finding->why = "weights.json gives " + given + " in bucket " + std::to_string(k) + " of golden row " + std::to_string(row) +
                     " where " + std::to_string(expected) + " is expected: it is damaged, or of another model; export the model again";
      return Warmth::kWrong;
    }
  }
  return Warmth::kReady;
}

}  // namespace smartcache

// The endpoint, and where it gives no answer the embedded copy of the model that it serves.
//
//   Predict: endpoint within its deadline -> answer; else (too late, breaker open, unreachable, no distribution) -> copy, a microsecond
//   later
// The copy makes a bundle good: one whose golden rows the copy answers as it should is usable at once, whatever the endpoint does; one
// whose copy is wrong is wrong. The endpoint is asked for a bundle only after it has answered that bundle's golden rows; until then the
// copy answers, and the reason is what the last check of the endpoint found (invalid_reply where it answers golden rows wrongly). A bundle
// without a copy is the endpoint's alone.
// Thread-safe. Failure: as those two.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "smartcache/embedded.hh"
#include "smartcache/model.hh"

namespace smartcache {

class EndpointWithCopy : public Model {
 public:
  explicit EndpointWithCopy(std::unique_ptr<Model> endpoint) : endpoint_(std::move(endpoint)) {}

  void Predict(const Bundle& bundle, const float* features, Clock::time_point began, Prediction* out) noexcept override;
  void PredictRows(const Bundle& bundle, const std::vector<const float*>& rows, Prediction* out) noexcept override;
  size_t rows_at_once() const noexcept override { return endpoint_->rows_at_once(); }
  std::optional<bool> breaker_open() const noexcept override { return endpoint_->breaker_open(); }
  Warmth Warm(const Bundle& bundle, Finding* finding) override;
  void Forget() noexcept override { endpoint_->Forget(); }

 private:
  bool AsksEndpoint(const Bundle& bundle) const { return !bundle.network || checked_.load(std::memory_order_acquire) == bundle.id; }

  const std::unique_ptr<Model> endpoint_;
  EmbeddedModel copy_;
  std::atomic<uint64_t> checked_{0};  // the id of the bundle whose golden rows the endpoint answered
  std::atomic<Reason> why_not_{Reason::kUnreachable};
};

}  // namespace smartcache

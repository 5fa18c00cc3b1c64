// The model in this process: the bundle's own network (network.hh). It needs no server, no deadline and about a microsecond.
//
// Warm evaluates the golden rows, which must come out as training wrote them to 1e-5 (kWrong otherwise) and which brings the weights into
// the CPU's caches; without golden rows, zeros. Without a network in the bundle it never answers (kNoModel).
// Thread-safe: no state. Failure: an output that is no distribution is kInvalidReply.
#pragma once

#include <string>

#include "smartcache/model.hh"

namespace smartcache {

class EmbeddedModel : public Model {
 public:
  void Predict(const Bundle& bundle, const float* features, Clock::time_point began, Prediction* out) noexcept override;
  size_t rows_at_once() const noexcept override { return 64; }  // to call another thread costs as much as these do
  Warmth Warm(const Bundle& bundle, Finding* finding) override;
};

}  // namespace smartcache

// Who gives the distribution of the time to the next open. The endpoint is one; a model inside the process would be another.
#pragma once

#include <string>

#include "smartcache/answer.hh"
#include "smartcache/bundle.hh"

namespace smartcache {

struct Prediction {
  bool answered = false;
  Reason why_not = Reason::kNoModel;  // where it did not answer
  size_t buckets = 0;
  double outputs[kMaxBuckets];
};

class Model {
 public:
  virtual ~Model() = default;

  // One distribution for `features` (as many as the schema names), within the deadline. Never throws. Thread-safe.
  virtual void Predict(const Bundle& bundle, const float* features, Prediction* out) noexcept = 0;

  // Whether this bundle may answer from now on: kReady after its golden rows came back as they should; kLater where nobody could say
  // (ask again); kWrong where the model answers something else than the bundle says. Slow, off the open path. `why` is for the log.
  enum class Warmth { kReady, kLater, kWrong };
  virtual Warmth Warm(const Bundle& bundle, std::string* why) = 0;
};

}  // namespace smartcache

// Who gives the distribution of the time to the next open: the endpoint (endpoint.hh), the copy of its model in this process (embedded.hh),
// or the first and in its place the second (endpoint_with_copy.hh).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "smartcache/answer.hh"
#include "smartcache/bundle.hh"

namespace smartcache {

struct Prediction {
  bool answered = false;
  // What became of asking each source: kModel for an answer, else why there is none; kNoModel where it was not asked.
  Reason results[kSources] = {Reason::kNoModel, Reason::kNoModel};
  size_t buckets = 0;
  double outputs[kMaxBuckets];

  Reason& result(Source source) { return results[static_cast<size_t>(source)]; }
  Reason result(Source source) const { return results[static_cast<size_t>(source)]; }
  // kModel where the source that was asked first answered, else why it did not, also where the other one answered in its place.
  Reason reason() const { return result(Source::kEndpoint) == Reason::kNoModel ? result(Source::kEmbedded) : result(Source::kEndpoint); }
};

// Why a bundle is not ready.
struct Finding {
  std::string why;                       // for the log
  Reason reason = Reason::kUnreachable;  // for opens until it is
};

class Model {
 public:
  virtual ~Model() = default;

  using Clock = std::chrono::steady_clock;

  // One distribution for `features` (as many as the schema names), within the deadline, which counts from `began`: what the open has
  // waited for before is part of it. Never throws. Thread-safe.
  virtual void Predict(const Bundle& bundle, const float* features, Clock::time_point began, Prediction* out) noexcept = 0;

  // The same for several rows where nobody waits: `out` has a Prediction for each of `rows`, in their order.
  virtual void PredictRows(const Bundle& bundle, const std::vector<const float*>& rows, Prediction* out) noexcept {
    for (size_t i = 0; i < rows.size(); ++i) Predict(bundle, rows[i], Clock::now(), &out[i]);
  }
  // How many of them one thread had better ask for together, as they cost hardly more than one does, or less than another thread; 1 where
  // each is waited for. May change at any time.
  virtual size_t rows_at_once() const noexcept { return 1; }

  // Whether its endpoint is left alone for now; none: there is no endpoint.
  virtual std::optional<bool> breaker_open() const noexcept { return std::nullopt; }

  // Whether this bundle may answer from now on: kReady after its golden rows came back as they should; kUsable where the embedded copy is
  // ready and the endpoint is not (ask again: until then it is left alone); kLater where nobody could say (ask again); kWrong where the
  // model answers something else than the bundle says. Slow, off the open path.
  enum class Warmth { kReady, kUsable, kLater, kWrong };
  virtual Warmth Warm(const Bundle& bundle, Finding* finding) = 0;
  // The bundle that was warmed last is not in use any more, and none in its place: nothing more is asked for it in the background.
  virtual void Forget() noexcept {}
};

}  // namespace smartcache

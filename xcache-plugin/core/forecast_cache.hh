// What a cache would hold that follows the model alone: the model's own policy, as one more shadow of the portfolio.
//
// Who is worth least goes first (worth.hh: the forecast made at its last open, as it has aged since), of some candidates (candidates.hh).
// The new file is passed by where the model's answer is not to store it, and where it is worth less than every candidate. A file that no
// model has spoken of has the base rate of its dataset, as the evictor has it; with no model at all every file is alike, and who was opened
// longest ago goes: LRU among the candidates.
// Cost: a dozen worths a miss. 80 bytes an object. Thread-safety: none. Failure: std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "policies/candidates.hh"
#include "policies/object_policy.hh"
#include "smartcache/forecast.hh"

namespace smartcache {

class ForecastCache final : public ObjectPolicy {
 public:
  // `per_open`: see worth.hh.
  ForecastCache(int64_t capacity, bool per_open, uint64_t seed = 1);

  static constexpr size_t kOutputs = 16;  // of a longer distribution nothing is kept
  // What a model said of a file at its last open.
  struct Said {
    uint32_t forecast_id = 0;      // of the edges
    uint32_t buckets = 0;          // 0: no forecast
    uint16_t outputs[kOutputs]{};  // shares, of 65535
    bool store = true;
  };
  // Of the newest model.
  struct Edges {
    std::vector<double> edges_s;
    uint32_t id = 0;
    double horizon_s = 0;
  };
  // What one cache was told, for another to go on with. The object must have been requested.
  const Said& said(uint32_t object) const { return known_[object].said; }
  const Edges& edges() const { return edges_; }
  void Use(const Edges& edges) { edges_ = edges; }
  // What was said, to be told again; none where it is over other edges than those of now. `outputs`, of kOutputs, is what it points to.
  std::optional<Forecast> Again(const Said& said, double* outputs) const;

  // Of the next request: when it is, how often files of its dataset are opened again, and what the model said, null for nothing.
  void Tell(int64_t t_us, double base_rate, const Forecast* forecast);

  bool Request(uint32_t object, int64_t size) override;
  void Replay(const uint32_t* objects, const int64_t* sizes, size_t n) override;
  bool Holds(uint32_t object) const override { return stored_.Holds(object); }
  void TellRemoved(std::vector<uint32_t>* removed) override { removed_ = removed; }
  void Reserve(size_t objects) override;
  PolicyCounters counters() const override { return counters_; }

 private:
  struct Known {
    int64_t size = 0, last_us = 0;
    float base_rate = 0;
    Said said;
  };
  void Remember(Known* known, int64_t size);
  bool MakeRoom(uint32_t object, int64_t size);
  Candidates::Judged Judge(uint32_t object) const;
  int64_t Removed(uint32_t object);

  const int64_t capacity_;
  const bool per_open_;
  std::vector<Known> known_;
  Candidates stored_;
  std::vector<uint32_t>* removed_ = nullptr;
  PolicyCounters counters_;

  // Told of the next request, or of the last.
  int64_t now_us_ = 0;
  double base_rate_ = 0;
  const Forecast* forecast_ = nullptr;
  Edges edges_;
};

}  // namespace smartcache

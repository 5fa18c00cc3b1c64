#include "shadows.hh"

#include <algorithm>
#include <cmath>
#include <utility>

#include "policies.hh"

namespace smartcache {
namespace {

constexpr std::array<const char*, Shadows::kRules> kRuleNames = {"lru",        "s3-fifo", "lirs",       "arc",       "lfu-da",
                                                                 "hyperbolic", "slru",    "uses2+lirs", "uses2+slru"};
constexpr double kTurnovers = 10, kWritePrice = 0.03, kStart = 0.01;
constexpr int kRequestsPerWeighing = 64;

std::vector<double> Starts(size_t shadows) {
  std::vector<double> starts(shadows);
  starts[Shadows::kLru] = kStart;
  if (shadows > Shadows::kRules) starts[Shadows::kJoined] = kStart;
  return starts;
}

}  // namespace

Shadows::Shadows(int64_t capacity) : capacity_(capacity), rules_(Starts(kRules)), all_(Starts(kRules)) {
  for (const char* rule : kRuleNames) Add(MakePolicy(rule, capacity));
}

void Shadows::Join(std::unique_ptr<ObjectPolicy> expert) {
  Add(std::move(expert));
  all_ = Votes(Starts(shadows_.size()));
}

void Shadows::Add(std::unique_ptr<ObjectPolicy> shadow) {
  shadow->TellRemoved(&removed_);
  shadows_.push_back(std::move(shadow));
  losses_.push_back(0);
}

void Shadows::Reserve(size_t objects) {
  for (const auto& shadow : shadows_) shadow->Reserve(objects);
  if (objects > masks_.size()) masks_.resize(objects);
}

const char* Shadows::Name(size_t shadow) { return shadow < kRules ? kRuleNames[shadow] : "model"; }

void Shadows::Restore(const std::vector<double>& losses, int64_t lru_missed_bytes) {
  losses_ = losses;
  lru_missed_bytes_ = lru_missed_bytes;
  if (std::all_of(losses.begin(), losses.end(), [](double loss) { return loss == 0; })) {
    all_ = Votes(Starts(shadows_.size()));
    rules_ = Votes(Starts(kRules));
  }
  all_.Weigh(losses_);
  rules_.Weigh(losses_);
}

void Shadows::Request(uint32_t object, int64_t size, std::vector<uint32_t>* changed) {
  if (object >= masks_.size()) masks_.resize(std::max<size_t>(size_t{object} + 1, masks_.size() * 2));
  decay_ = std::exp(-static_cast<double>(size) / (kTurnovers * static_cast<double>(capacity_)));
  for (size_t e = 0; e < shadows_.size(); ++e) {
    const auto bit = static_cast<Mask>(1u << e);
    removed_.clear();
    const bool hit = shadows_[e]->Request(object, size);
    const bool holds = shadows_[e]->Holds(object);
    for (const uint32_t each : removed_) {
      if (each == object) continue;
      masks_[each] &= static_cast<Mask>(~bit);
      changed->push_back(each);
    }
    masks_[object] = static_cast<Mask>(holds ? masks_[object] | bit : masks_[object] & ~bit);
    losses_[e] = losses_[e] * decay_ + Loss(size, hit, holds);
    if (e != kLru) continue;
    if (!hit) lru_missed_bytes_ += size;
    lru_removed_.swap(removed_);
  }
  if (++requests_ % kRequestsPerWeighing != 0) return;
  all_.Weigh(losses_);
  rules_.Weigh(losses_);
}

double Shadows::Loss(int64_t size, bool hit, bool stored) {
  return hit ? 0.0 : static_cast<double>(size) * (1.0 + (stored ? kWritePrice : 0.0));
}

}  // namespace smartcache

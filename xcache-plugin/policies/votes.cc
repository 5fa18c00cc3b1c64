#include "votes.hh"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace smartcache {
namespace {

constexpr double kSharpness = 300;

}  // namespace

Votes::Votes(std::vector<double> starts)
    : starts_(std::move(starts)), weights_(starts_.size(), 1.0 / static_cast<double>(starts_.size())), votes_(size_t{1} << starts_.size()) {
  Sum();
}

void Votes::Weigh(const std::vector<double>& losses) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t e = 0; e < weights_.size(); ++e) least = std::min(least, Counted(losses, e));
  if (least <= 0) return;
  double sum = 0;
  for (size_t e = 0; e < weights_.size(); ++e) sum += weights_[e] = std::exp(-kSharpness * (Counted(losses, e) - least) / least);
  for (double& weight : weights_) weight /= sum;
  Sum();
}

double Votes::Expected(const std::vector<double>& losses) const {
  double expected = 0;
  for (size_t e = 0; e < weights_.size(); ++e) expected += weights_[e] * losses[e];
  return expected;
}

void Votes::Sum() {
  for (size_t mask = 1; mask < votes_.size(); ++mask)
    votes_[mask] = votes_[mask & (mask - 1)] + weights_[static_cast<size_t>(__builtin_ctzll(mask))];
}

}  // namespace smartcache

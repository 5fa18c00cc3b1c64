// How much each of several caches beside a real one has to say, by what it has lost, and so what they say of an object together.
//
// Weights w ~ exp(-300 (M - M_min) / M_min), M the loss: who is 1 % behind has a twentieth of the leader's say. Some may have a start, a
// share by which their loss counts as less. Vote for an object: the weights of those that hold it.
//
// Followed experts: N. Cesa-Bianchi, G. Lugosi, Prediction, learning, and games, 2006 (exponential weights); the same idea in caches: LeCaR
// (HotStorage 2018), which follows two experts by regret. The start is ours.
// Cost: a vote is a table look-up; `Weigh` writes the table, 2^experts sums. Thread-safety: none. Failure: std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smartcache {

class Votes {
 public:
  // Who holds an object: a bit for each expert.
  using Mask = uint16_t;
  static constexpr size_t kMost = 16;

  // Experts, at most kMost, by the start of each, 0 to below 1. At first they have equally much to say.
  explicit Votes(std::vector<double> starts);

  // By what they have lost, one number each. Where one has lost nothing all stays as it was.
  void Weigh(const std::vector<double>& losses);

  double vote(Mask mask) const { return votes_[mask]; }
  double weight(size_t expert) const { return weights_[expert]; }
  // What is lost where they are followed as now.
  double Expected(const std::vector<double>& losses) const;
  size_t masks() const { return votes_.size(); }

 private:
  void Sum();
  double Counted(const std::vector<double>& losses, size_t expert) const { return losses[expert] * (1 - starts_[expert]); }

  std::vector<double> starts_, weights_, votes_;
};

}  // namespace smartcache

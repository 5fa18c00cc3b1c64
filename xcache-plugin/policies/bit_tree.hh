// A set of numbers below a bound, with the greatest of them: 64-ary bitmaps on top of each other.
// O(log64 n) for each call, that is 3 to 4 steps for millions; n/8 bytes. Thread-safety: none. Failure: std::bad_alloc when made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace smartcache {

class BitTree {
 public:
  explicit BitTree(size_t bound) {
    do {
      bound = bound / 64 + (bound % 64 != 0 || bound == 0);
      levels_.emplace_back(bound);
    } while (bound > 1);
  }

  // n is below the bound in all that follows.
  void Insert(size_t n) {
    for (auto& level : levels_) {
      const uint64_t before = level[n / 64];
      level[n / 64] = before | uint64_t{1} << n % 64;
      if (before) return;
      n /= 64;
    }
  }

  void Erase(size_t n) {
    for (auto& level : levels_) {
      level[n / 64] &= ~(uint64_t{1} << n % 64);
      if (level[n / 64]) return;
      n /= 64;
    }
  }

  bool empty() const { return levels_.back()[0] == 0; }

  // Only where it is not empty.
  size_t Greatest() const {
    size_t n = 0;
    for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) n = n * 64 + 63 - __builtin_clzll((*level)[n]);
    return n;
  }

 private:
  std::vector<std::vector<uint64_t>> levels_;
};

}  // namespace smartcache

#include "gdsf.hh"

#include <algorithm>

#include "ranked.hh"

namespace smartcache {
namespace {

struct GreedyDual {
  static constexpr bool kCompetes = true;
  double Worth(uint32_t uses, int64_t size) const { return age + uses / static_cast<double>(std::max<int64_t>(size, 1)); }
  void Evicted(double priority) { age = priority; }
  double age = 0;
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeGdsf(int64_t capacity) { return std::make_unique<PolicyOf<Ranked<GreedyDual>>>(capacity); }

}  // namespace smartcache

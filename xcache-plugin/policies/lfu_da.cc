#include "lfu_da.hh"

#include "ranked.hh"

namespace smartcache {
namespace {

struct AgedFrequency {
  static constexpr bool kCompetes = false;
  double Worth(uint32_t uses, int64_t /*size*/) const { return uses + age; }
  void Evicted(double priority) { age = priority; }
  double age = 0;
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeLfuDa(int64_t capacity) { return std::make_unique<PolicyOf<Ranked<AgedFrequency>>>(capacity); }

}  // namespace smartcache

#include "lfu.hh"

#include "ranked.hh"

namespace smartcache {
namespace {

struct Frequency {
  static constexpr bool kCompetes = false;
  double Worth(uint32_t uses, int64_t /*size*/) const { return uses; }
  void Evicted(double /*priority*/) {}
};

}  // namespace

std::unique_ptr<ObjectPolicy> MakeLfu(int64_t capacity) { return std::make_unique<PolicyOf<Ranked<Frequency>>>(capacity); }

}  // namespace smartcache

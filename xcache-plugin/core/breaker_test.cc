#include "smartcache/breaker.hh"

#include <gtest/gtest.h>

namespace smartcache {
namespace {

using std::chrono::seconds;
const Breaker::Time t0{};

TEST(Breaker, OpensAfterFailuresInARow) {
  Breaker breaker(3, seconds(5));
  breaker.Failed(t0);
  breaker.Failed(t0);
  breaker.Succeeded();
  breaker.Failed(t0);
  breaker.Failed(t0);
  EXPECT_TRUE(breaker.Allow());
  breaker.Failed(t0);
  EXPECT_FALSE(breaker.Allow());
}

TEST(Breaker, OneProbeAfterItsTimeDecides) {
  Breaker breaker(1, seconds(5));
  EXPECT_FALSE(breaker.TakeProbe(t0));
  breaker.Failed(t0);
  EXPECT_FALSE(breaker.TakeProbe(t0 + seconds(4)));
  EXPECT_TRUE(breaker.TakeProbe(t0 + seconds(5)));
  EXPECT_FALSE(breaker.TakeProbe(t0 + seconds(6)));  // one at a time
  breaker.Probed(false, t0 + seconds(6));
  EXPECT_FALSE(breaker.Allow());
  EXPECT_FALSE(breaker.TakeProbe(t0 + seconds(10)));
  EXPECT_TRUE(breaker.TakeProbe(t0 + seconds(11)));
  breaker.Probed(true, t0 + seconds(11));
  EXPECT_TRUE(breaker.Allow());
}

TEST(Breaker, LateFailuresDoNotPutTheProbeOff) {
  Breaker breaker(1, seconds(5));
  breaker.Failed(t0);
  breaker.Failed(t0 + seconds(4));
  EXPECT_TRUE(breaker.TakeProbe(t0 + seconds(5)));
}

}  // namespace
}  // namespace smartcache

#include "smartcache/exact_math.hh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace smartcache {
namespace {

TEST(ExactMath, AgreesWithLibm) {
  for (double x = 1e-12; x < 1e300; x *= 1.37) EXPECT_NEAR(Log1p(x) / std::log1p(x), 1.0, 4e-15) << x;
  for (double x = 0; x < 900; x += 0.0371) EXPECT_NEAR(HalfPower(x) / std::exp2(-x), 1.0, 4e-15) << x;
  for (double turn = 0; turn < 1; turn += 0.000917) {
    EXPECT_NEAR(SinCosTurn(turn).sin, std::sin(turn * 2 * M_PI), 4e-15) << turn;
    EXPECT_NEAR(SinCosTurn(turn).cos, std::cos(turn * 2 * M_PI), 4e-15) << turn;
  }
}

TEST(ExactMath, EdgesAreFinite) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Log1p(0), 0);
  EXPECT_EQ(Log1p(-1), 0);
  EXPECT_EQ(Log1p(nan), 0);
  EXPECT_NEAR(Log1p(inf), 709.78, 0.01);
  EXPECT_EQ(HalfPower(0), 1);
  EXPECT_EQ(HalfPower(-5), 1);
  EXPECT_EQ(HalfPower(nan), 1);
  EXPECT_EQ(HalfPower(inf), 0);
  EXPECT_EQ(HalfPower(1), 0.5);
}

// The exact bits, so that a compiler or a flag that changes them is found here and not in a training set.
TEST(ExactMath, BitsAreTheSameEverywhere) {
  const auto bits = [](double x) {
    uint64_t b;
    std::memcpy(&b, &x, sizeof b);
    return b;
  };
  EXPECT_EQ(bits(Log1p(3600.25)), bits(0x1.060c95d37ae03p+3));
  EXPECT_EQ(bits(HalfPower(0.3)), bits(0x1.9fdf8bcce533ep-1));
  EXPECT_EQ(bits(SinCosTurn(0.1).sin), bits(0x1.2cf2304755a5ep-1));
}

}  // namespace
}  // namespace smartcache

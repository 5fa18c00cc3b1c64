#include "smartcache/exact_math.hh"

#include <cstring>
#include <limits>

namespace smartcache {
namespace {

constexpr double kLn2 = 0.693147180559945309417;

uint64_t Bits(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

double FromBits(uint64_t bits) {
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// ln(m * 2^k) with m in [sqrt(1/2), sqrt(2)): ln m = 2 artanh((m-1)/(m+1)), a series in s^2 <= 0.0295.
double LnOfParts(double s, int k) {
  const double s2 = s * s;
  double series = 1.0 / 21;
  for (int n = 19; n >= 1; n -= 2) series = series * s2 + 1.0 / n;
  return 2.0 * s * series + k * kLn2;
}

}  // namespace

double Log1p(double x) {
  if (!(x > 0)) return 0.0;
  if (x > std::numeric_limits<double>::max()) x = std::numeric_limits<double>::max();
  if (x < 0.4) return LnOfParts(x / (2.0 + x), 0);  // 1 + x would lose the low bits of a small x
  const double y = 1.0 + x;
  int k = static_cast<int>(Bits(y) >> 52) - 1023;
  double m = FromBits((Bits(y) & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    ++k;
  }
  return LnOfParts((m - 1.0) / (m + 1.0), k);
}

double HalfPower(double x) {
  if (!(x > 0)) return 1.0;
  if (x >= 1000.0) return 0.0;
  const int n = static_cast<int>(x + 0.5);  // NOLINT(bugprone-incorrect-roundings): x > 0, and a neighbour would do as well
  const double f = (n - x) * kLn2;          // 2^-x = 2^-n * e^f, |f| <= ln(2) / 2
  double series = 1.0;
  for (int i = 14; i >= 1; --i) series = series * f * (1.0 / i) + 1.0;
  return series * FromBits(static_cast<uint64_t>(1023 - n) << 52);
}

SinCos SinCosTurn(double turn) {
  const int quadrant = static_cast<int>(turn * 4.0 + 0.5);             // NOLINT(bugprone-incorrect-roundings): the same
  const double a = (turn - quadrant * 0.25) * 6.28318530717958647693;  // |a| <= pi / 4
  const double a2 = a * a;
  double s = 1.0, c = 1.0;
  for (int n = 16; n >= 2; n -= 2) {
    c = 1.0 - c * a2 * (1.0 / (n * (n - 1)));
    s = 1.0 - s * a2 * (1.0 / (n * (n + 1)));
  }
  s *= a;
  switch (quadrant & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

}  // namespace smartcache

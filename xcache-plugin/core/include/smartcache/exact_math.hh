// Logarithm, powers of one half, sine and cosine out of IEEE-754 additions, multiplications and divisions alone.
//
// Why not libm: glibc picks a variant by the CPU (with or without fused multiply-add) and changes with releases, so the last bit of a
// feature could differ between the cache that logged it and the cluster that replays it. These give the same bits wherever the compiler
// does not contract (-ffp-contract=off). Relative error under 1e-14, far below float32. Thread-safe: pure functions.
#pragma once

#include <cstdint>

namespace smartcache {

// ln(1 + x) for x >= 0; 0 for anything else, NaN included. Infinity counts as the largest finite double.
double Log1p(double x);

// 2^-x for x >= 0; 1 for anything else. 0 from x = 1000 on.
double HalfPower(double x);

// sin and cos of 2*pi*turn for turn in [0, 1).
struct SinCos {
  double sin, cos;
};
SinCos SinCosTurn(double turn);

}  // namespace smartcache

// Distributions as an endpoint answers them: a JSON array of numbers, or an array of such arrays, strictly.
//
// Exactly `count` finite numbers in [0, 1] that sum to 1 within 1e-3, white space between them, and nothing else: an answer is believed as
// a whole or not at all. Hand-written, since it runs at every open; allocates nothing. Thread-safe: pure. Failure: false.
#pragma once

#include <cstddef>
#include <string_view>

namespace smartcache {

bool ParseDistribution(std::string_view text, size_t count, double* out);
// `rows` of them, the i-th to `out[i]`.
bool ParseDistributions(std::string_view text, size_t rows, size_t count, double* const* out);

}  // namespace smartcache

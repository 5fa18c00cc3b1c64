#include "smartcache/distribution.hh"

#include <charconv>
#include <cmath>

namespace smartcache {
namespace {

constexpr double kSumTolerance = 1e-3;

// What is left of the text.
class Reader {
 public:
  explicit Reader(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool Take(char c) {
    SkipSpace();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool AtEnd() {
    SkipSpace();
    return at_ == end_;
  }

  bool Distribution(size_t count, double* out) {
    double sum = 0;
    if (!Take('[')) return false;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0 && !Take(',')) return false;
      SkipSpace();
      if (at_ == end_ || *at_ < '0' || *at_ > '9') return false;  // from_chars would take "inf" and "nan" too
      const auto [next, error] = std::from_chars(at_, end_, out[i]);
      if (error != std::errc() || !(out[i] >= 0 && out[i] <= 1)) return false;
      at_ = next;
      sum += out[i];
    }
    return Take(']') && std::fabs(sum - 1.0) <= kSumTolerance;
  }

 private:
  void SkipSpace() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) ++at_;
  }

  const char* at_;
  const char* const end_;
};

}  // namespace

bool ParseDistribution(std::string_view text, size_t count, double* out) {
  Reader reader(text);
  return reader.Distribution(count, out) && reader.AtEnd();
}

bool ParseDistributions(std::string_view text, size_t rows, size_t count, double* const* out) {
  Reader reader(text);
  if (!reader.Take('[')) return false;
  for (size_t i = 0; i < rows; ++i)
    if ((i > 0 && !reader.Take(',')) || !reader.Distribution(count, out[i])) return false;
  return reader.Take(']') && reader.AtEnd();
}

}  // namespace smartcache

// Any bytes as the reply of an endpoint: what is taken as distributions are such, and the same to a JSON library.
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "smartcache/bundle.hh"
#include "smartcache/distribution.hh"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace smartcache;
  if (size < 2) return 0;
  const size_t count = 1 + data[0] % kMaxBuckets;
  const size_t rows = data[1] % 5;  // 0: one, not in an array
  const std::string_view text(reinterpret_cast<const char*>(data + 2), size - 2);
  // On the heap: a value too many would be seen.
  std::vector<std::vector<double>> outputs(rows == 0 ? 1 : rows, std::vector<double>(count));
  std::vector<double*> out;
  for (auto& row : outputs) out.push_back(row.data());
  if (!(rows == 0 ? ParseDistribution(text, count, out[0]) : ParseDistributions(text, rows, count, out.data()))) return 0;
  for (const auto& row : outputs) {
    double sum = 0;
    for (const double each : row) {
      if (!(each >= 0 && each <= 1)) std::abort();
      sum += each;
    }
    if (std::fabs(sum - 1) > 2e-3) std::abort();
  }
  // Ours takes numbers that JSON does not write so (01, 1.); where the library takes the text, both read the same.
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_discarded() && json != (rows == 0 ? nlohmann::json(outputs[0]) : nlohmann::json(outputs))) std::abort();
  return 0;
}

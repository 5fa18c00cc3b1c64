// Any bytes as weights.json: refused by a BundleError, or a network that answers with a distribution or says that it has none.
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "smartcache/network.hh"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace smartcache;
  try {
    const Network network(std::string_view(reinterpret_cast<const char*>(data), size), "weights.json", Network::Runnable().back());
    std::vector<float> features(network.inputs()), outputs(network.outputs());
    for (const float value : {0.0f, -1.0f, 20.0f, 3e38f}) {
      features.assign(features.size(), value);
      if (!network.Evaluate(features.data(), outputs.data())) continue;
      double sum = 0;
      for (const float each : outputs) {
        if (!(each >= 0 && each <= 1)) std::abort();
        sum += static_cast<double>(each);
      }
      if (std::fabs(sum - 1) > 1e-4) std::abort();
    }
  } catch (const BundleError& error) {
    if (error.what()[0] == '\0') std::abort();
  }
  return 0;
}

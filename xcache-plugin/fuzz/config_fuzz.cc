// Any text as a configuration: taken, or refused by a ConfigError that says something. What was taken can be used.
#include <cmath>
#include <cstdlib>

#include "smartcache/features.hh"
#include "smartcache/policy.hh"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace smartcache;
  try {
    const Config config = ParseConfig({reinterpret_cast<const char*>(data), size}, "fuzz");
    const Policy policy(config.policy);
    policy.ByRule("/store/data/Run2018A/f.root", false);
    for (const float fill : {-1.0f, 0.0f, 0.95f, 1.0f}) {
      const double threshold = policy.UnderPressure(0.2, fill);
      if (!(threshold >= 0 && threshold <= 1)) std::abort();
    }
    if (MakeSchema(config).names.empty()) std::abort();
  } catch (const ConfigError& error) {
    if (error.what()[0] == '\0') std::abort();
  }
  return 0;
}

// Any bytes as an LFN, and as a pattern for LFNs: features stay finite, the log stays JSON, the text that is logged is the one computed
// with.
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "smartcache/decision_log.hh"
#include "smartcache/features.hh"
#include "smartcache/pattern.hh"
#include "smartcache/utf8.hh"

namespace {

smartcache::FeatureCore& Core() {
  static smartcache::FeatureCore core(smartcache::ParseConfig(
      "[history]\nmemory_bytes = 1000000\n[dataset]\nrules = [{ prefix = \"/store/user/\", levels = 4 }]\n", "fuzz"));
  return core;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace smartcache;
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data + 1), size - 1);
  const size_t cut = std::min<size_t>(data[0], all.size());
  const std::string_view told = all.substr(cut);
  try {
    const Pattern pattern(all.substr(0, cut));
    pattern.Matches(told);
  } catch (const std::invalid_argument&) {
  }

  std::string scratch;
  static int64_t t_us = INT64_C(1760000000000000);
  const Open open = Sanitised(Open{t_us += data[0] * 1000, ValidUtf8(told, &scratch), data[0] % 2 == 0, int64_t{data[0]} - 2, 0.5f});
  ParsedLfn parsed;
  Core().Parse(open.lfn, &parsed);
  Core().parser().DatasetOf(open.lfn);
  std::vector<float> features(Core().schema().names.size());
  Core().Observe(open, parsed, features.data());
  for (const float each : features) {
    if (!std::isfinite(each)) std::abort();
  }

  DecisionRecord record{};
  record.cache = "host:1094";
  record.lfn = told;
  record.features = features.data();
  record.feature_count = features.size();
  std::string text;
  WriteRecord(record, &text);
  if (nlohmann::json::parse(text)["lfn"] != std::string(open.lfn)) std::abort();
  return 0;
}

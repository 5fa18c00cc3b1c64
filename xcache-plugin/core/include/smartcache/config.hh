// The configuration: smartcache.toml as it was compiled in, with a site's own TOML laid over it.
//
// The reference holds every default; this file holds types and rules only. An unknown section or key, a wrong type or a value out of range
// is an error anywhere in the text, also in sections that only other parts of smartcache read: a misspelt key must never pass in silence.
// Failure: ConfigError, whose text names source, field, rule, value and the way out. Thread-safe: no state.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace smartcache {

struct ConfigError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct DatasetRule {
  std::string prefix;
  int levels;
};

struct DatasetConfig {
  int levels;
  std::vector<DatasetRule> rules;
};

struct HistoryConfig {
  int64_t memory_bytes;
};

struct FeaturesConfig {
  std::vector<double> half_lives_s;
  int token_buckets;
};

struct ModelConfig {
  std::string bundle_dir;
  std::string endpoint_url;
  double deadline_ms;
  double poll_s;
  int breaker_failures;
  double breaker_open_s;
  int connections;
  std::string token_file;
  std::string ca_file;
};

struct PolicyConfig {
  bool fallback_admit;
  std::vector<std::string> always_admit;
  std::vector<std::string> never_admit;
  double explore;
  bool evict;
};

struct DecisionLogConfig {
  std::string host;
  int port;
  bool features;
};

struct PluginMetricsConfig {
  std::string textfile;
  double interval_s;
};

struct Config {
  std::string source;  // where it came from: begins a message about a value that turned out wrong later
  DatasetConfig dataset;
  HistoryConfig history;
  FeaturesConfig features;
  ModelConfig model;
  PolicyConfig policy;
  DecisionLogConfig decision_log;
  PluginMetricsConfig plugin_metrics;
};

// The text of the reference configuration.
const char* ReferenceToml();

// `toml` laid over the reference; `source` names it in messages. Throws ConfigError.
Config ParseConfig(std::string_view toml, const std::string& source);

// The same with the text of the file at `path`. Throws ConfigError, also where the file cannot be read.
Config LoadConfig(const std::string& path);

}  // namespace smartcache

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
  std::string file{};  // empty: not kept
  double save_s{};
  bool scan{};  // not of the history itself
};

struct FeaturesConfig {
  std::vector<double> half_lives_s;
  int token_buckets;
};

// Who is asked at an open: the endpoint and, where it does not answer, the embedded copy of its model; or one of them alone.
enum class ModelUse { kEndpointThenEmbedded, kEndpoint, kEmbedded };

struct ModelConfig {
  std::string bundle_dir;
  ModelUse use;
  std::string endpoint_url;
  double deadline_ms;
  double poll_s;
  int breaker_failures;
  double breaker_open_s;
  int connections;
  std::string token_file;
  std::string ca_file;
};

struct ChallengerConfig {
  double canary_share;
  bool shadow;
};

struct PressurePoint {
  double fill, factor;
};

struct PolicyConfig {
  std::string off_file;  // see off_switch.hh; empty: none
  bool fallback_admit;
  std::vector<std::string> always_admit;  // patterns: see pattern.hh
  std::vector<std::string> never_admit;
  std::vector<PressurePoint> pressure;
  double explore;
};

enum class EvictThrough { kAuto, kProcess, kClient };

struct EvictorConfig {
  bool enabled;
  bool dry_run;
  EvictThrough through;
  double high, low;
  bool benefit_per_open;  // else: per byte
  int64_t capacity_bytes;
  double scan_s;
  int files_per_minute, answers_per_minute;
};

struct BudgetConfig {
  int64_t write_bytes_per_s;
  double burst_s;
  int64_t objects;
  int64_t unknown_size_bytes;
};

struct PortfolioConfig {
  bool enabled;
  int64_t memory_bytes;
  std::string file;  // empty: not kept
};

struct DecisionLogConfig {
  std::string host;
  int port;
  bool features;
};

struct PluginMetricsConfig {
  std::string textfile;
  double interval_s;
  std::string bind;
  int port;
};

struct SideTableConfig {
  std::string file;  // empty: there is none
  double poll_s;
};

struct TraceConfig {
  unsigned concerns;  // a sum of Concern: see trace.hh
};

struct Config {
  std::string source;  // where it came from: begins a message about a value that turned out wrong later
  DatasetConfig dataset;
  HistoryConfig history;
  FeaturesConfig features;
  ModelConfig model;
  ChallengerConfig challenger{};
  PolicyConfig policy;
  BudgetConfig budget;
  EvictorConfig evictor;
  PortfolioConfig portfolio{};
  DecisionLogConfig decision_log;
  PluginMetricsConfig plugin_metrics;
  TraceConfig trace;
  SideTableConfig side_table;
};

// The text of the reference configuration.
const char* ReferenceToml();

// `toml` laid over the reference; `source` names it in messages. Throws ConfigError.
Config ParseConfig(std::string_view toml, const std::string& source);

// The same with the text of the file at `path`. Throws ConfigError, also where the file cannot be read.
Config LoadConfig(const std::string& path);

}  // namespace smartcache
